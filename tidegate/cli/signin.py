"""Signing in as a person: operators act on the platform, which no API key does. The session lies in one file."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path

import httpx

from tidegate.errors import Refused, Unreachable

LOGIN = "/accounts/login/"
_SESSION, _CSRF = "sessionid", "csrftoken"
_CODE_FIELD = re.compile(r'name="code"')


def sign_in(
    url: str,
    user: str,
    password: str,
    ask_code: Callable[[], str],
    http: httpx.BaseTransport | None = None,
) -> dict[str, str]:
    """The session's cookies. `ask_code` is called where a second factor is asked for.

    Raises `Refused` when the console does not sign in, `Unreachable`.
    """
    with httpx.Client(base_url=url, follow_redirects=True, timeout=30.0, transport=http) as browser:
        try:
            browser.get(LOGIN).raise_for_status()
            answer = _post(browser, LOGIN, {"login": user, "password": password})
            if _CODE_FIELD.search(answer.text):
                answer = _post(browser, answer.url.path, {"code": ask_code()})
        except httpx.TransportError as error:
            raise Unreachable(f"{url} does not answer: {error}") from error
        if browser.get("/api/v1/me").status_code != httpx.codes.OK:
            raise Refused(401, "sign_in_failed", "The console did not sign you in.", {}, "")
        return {name: browser.cookies[name] for name in (_SESSION, _CSRF)}


def session_path() -> Path:
    home = os.environ.get("XDG_CONFIG_HOME") or str(Path.home() / ".config")
    return Path(home) / "tidegate" / "session.json"


def remember(url: str, cookies: dict[str, str]) -> None:
    """Readable for its owner alone, from its first byte on."""
    path = session_path()
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as stream:
        os.fchmod(stream.fileno(), 0o600)
        json.dump({"url": url, "cookies": cookies}, stream)


def remembered(url: str) -> dict[str, str]:
    """The cookies kept for this console; none for another one's."""
    try:
        kept = json.loads(session_path().read_text())
    except (OSError, ValueError):
        return {}
    return dict(kept["cookies"]) if isinstance(kept, dict) and kept.get("url") == url else {}


def forget() -> None:
    session_path().unlink(missing_ok=True)


def _post(browser: httpx.Client, address: str, form: dict[str, str]) -> httpx.Response:
    headers = {"Referer": str(browser.base_url)}
    token = browser.cookies.get(_CSRF) or ""
    answer = browser.post(address, data={**form, "csrfmiddlewaretoken": token}, headers=headers)
    if answer.status_code == httpx.codes.TOO_MANY_REQUESTS:
        raise Refused(429, "too_many_requests", "Too many attempts; wait a while.", {}, "")
    return answer
