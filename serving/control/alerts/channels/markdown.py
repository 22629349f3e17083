"""Text in the Markdown of chat robots, so that no label writes markup or mentions anybody. Pure."""

from __future__ import annotations

import re

_MARKUP = re.compile(r"([\\`*_\[\]#>!|~-])")


def escaped(text: str) -> str:
    """Markup is escaped, and nothing is a tag."""
    return _MARKUP.sub(r"\\\1", untagged(text))


def untagged(text: str) -> str:
    """`<`, which opens their tags (`<@all>`, `<font …>`), and `@` are written wide."""
    return text.replace("<", "＜").replace("@", "＠")
