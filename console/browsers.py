"""What a person recognises of a `User-Agent`: which browser, on what."""

from __future__ import annotations

# The first word that occurs decides: every browser also claims to be the ones it descends from.
_BROWSERS = (
    ("Edg/", "Edge"),
    ("OPR/", "Opera"),
    ("Firefox/", "Firefox"),
    ("Chromium/", "Chromium"),
    ("Chrome/", "Chrome"),
    ("Safari/", "Safari"),
    ("curl/", "curl"),
    ("python-httpx/", "httpx"),
)
_SYSTEMS = (
    ("Android", "Android"),
    ("iPhone", "iPhone"),
    ("iPad", "iPad"),
    ("Windows", "Windows"),
    ("Mac OS X", "macOS"),
    ("CrOS", "ChromeOS"),
    ("Linux", "Linux"),
)
_SHOWN_CHARS = 40


def name_of(user_agent: str) -> str:
    """`Firefox · Linux`; the beginning of what it says when neither is known, empty for nothing."""
    known = [
        next((name for word, name in table if word in user_agent), "") for table in (_BROWSERS, _SYSTEMS)
    ]
    return " · ".join(filter(None, known)) or user_agent[:_SHOWN_CHARS]
