"""One request and its answer: credentials, repetitions that cannot do harm, pages, problems."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from tidegate.errors import Refused, Unreachable

API = "/api/v1"
PAGE_ROWS = 200
TRIES = 4
LONGEST_WAIT_S = 60.0
MAX_ANSWER_BYTES = 64 << 20
"""Unpacked. The longest page of the API is a few megabytes."""
MAX_ANSWER_S = 300.0
"""For one answer to come in, however slowly it drips."""
_AGAIN = (429, 503)
_CSRF_COOKIE = "csrftoken"

Sleep = Callable[[float], None]
Json = dict[str, Any]


@dataclass
class Transport:
    """`key` is an API key; `cookies` those of a session that was signed in. Either may be absent."""

    url: str
    key: str | None = field(default=None, repr=False)
    cookies: Mapping[str, str] = field(default_factory=dict, repr=False)
    timeout_s: float = 30.0
    http: httpx.BaseTransport | None = None
    sleep: Sleep = time.sleep

    def __post_init__(self) -> None:
        headers = {"Accept": "application/json", "User-Agent": "tidegate-client"}
        if self.key:
            headers["Authorization"] = f"Bearer {self.key}"
        elif _CSRF_COOKIE in self.cookies:
            # Django compares the origin too, behind TLS.
            headers |= {"X-CSRFToken": self.cookies[_CSRF_COOKIE], "Referer": self.url}
        cookies = {} if self.key else dict(self.cookies)
        self._client = httpx.Client(
            base_url=self.url, headers=headers, cookies=cookies, timeout=self.timeout_s, transport=self.http
        )

    def close(self) -> None:
        self._client.close()

    def get(self, path: str, **query: Any) -> Any:
        return self.ask("GET", path, query=query)

    def post(self, path: str, body: Json | None = None, *, if_match: str | None = None, **more: Any) -> Any:
        """With an Idempotency-Key of its own, so that repeating it does it once."""
        headers = {"Idempotency-Key": f'"{uuid.uuid4()}"'} | _condition(if_match)
        return self.ask("POST", path, body, headers=headers, **more)

    def patch(self, path: str, body: Json, *, if_match: str | None = None, **query: Any) -> Any:
        return self.ask("PATCH", path, body, headers=_condition(if_match), query=query)

    def put(self, path: str, body: Json | None = None, **query: Any) -> Any:
        return self.ask("PUT", path, body, query=query)

    def delete(self, path: str, *, if_match: str | None = None) -> None:
        self.ask("DELETE", path, headers=_condition(if_match))

    def rows(self, path: str, **query: Any) -> Iterator[Any]:
        """Every row of a list, one page in memory at a time."""
        after = None
        while True:
            page = self.get(path, **{"limit": PAGE_ROWS, **query, "after": after})
            if not isinstance(page, Mapping) or not isinstance(page.get("data"), list):
                raise Refused.of(httpx.codes.OK, None)
            yield from page["data"]
            if not page.get("has_more"):
                return
            before, after = after, page.get("next_cursor")
            if not after or after == before:
                raise Unreachable(f"{self.url} answers with a list that goes round in circles.")

    def ask(
        self,
        method: str,
        path: str,
        body: Json | None = None,
        *,
        query: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        **more: Any,
    ) -> Any:
        """The answer's document. Raises `Refused` or `Unreachable`.

        Repeated, after the time the console asks for, where that cannot do harm: reads, and posts, which carry
        an Idempotency-Key. `more` is httpx's (`files`, `data`).
        """
        params = {name: value for name, value in (query or {}).items() if value is not None}
        request = {"params": params, "headers": headers, **more}
        if body is not None:
            request["json"] = body
        answer = self._answer(method, API + path, request, tries=TRIES if _may_repeat(method, more) else 1)
        return _document(answer)

    def download(self, path: str, to: Path) -> None:
        """Into `to`; one that broke goes on where it was, after the bytes that `to` holds already.

        Raises `Refused` or `Unreachable`; what has come by then stays.
        """
        for left in reversed(range(TRIES)):
            try:
                self._append(API + path, to)
            except httpx.TransportError as error:
                if not left:
                    raise Unreachable(f"The download broke off: {error}") from error
                self.sleep(1.0)
            else:
                return

    def _append(self, address: str, to: Path) -> None:
        have = to.stat().st_size if to.exists() else 0
        # As it lies there: a range of a compressed answer would be one of other bytes.
        headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={have}-"} if have else {})
        with self._client.stream("GET", address, headers=headers) as answer:
            if answer.status_code == httpx.codes.REQUESTED_RANGE_NOT_SATISFIABLE:
                return  # all of it came before
            if not answer.is_success:
                _document(self._whole(answer))
            is_rest = answer.status_code == httpx.codes.PARTIAL_CONTENT
            with to.open("ab" if is_rest else "wb") as file:
                for chunk in answer.iter_bytes():
                    file.write(chunk)

    def _answer(self, method: str, address: str, request: Json, tries: int) -> httpx.Response:
        for left in reversed(range(tries)):
            wait_s = float(2 ** (tries - left - 2))
            try:
                with self._client.stream(method, address, **request) as coming:
                    answer = self._whole(coming)
            except httpx.TransportError as error:
                if not left:
                    raise Unreachable(f"{self.url} does not answer: {error}") from error
            else:
                if answer.status_code not in _AGAIN or not left:
                    return answer
                wait_s = _asked_wait_s(answer, wait_s)
            self.sleep(min(wait_s, LONGEST_WAIT_S))
        raise AssertionError("the last try returns or raises")

    def _whole(self, answer: httpx.Response) -> httpx.Response:
        """What came, unpacked. Raises `Unreachable` for what does not end: nobody may fill our memory."""
        until, content = time.monotonic() + MAX_ANSWER_S, bytearray()
        for chunk in answer.iter_bytes():
            content += chunk
            if len(content) > MAX_ANSWER_BYTES or time.monotonic() > until:
                raise Unreachable(f"{self.url} answers without an end.")
        again = {"retry-after": answer.headers.get("retry-after", "")}
        return httpx.Response(answer.status_code, headers=again, content=bytes(content))


def _may_repeat(method: str, more: Mapping[str, Any]) -> bool:
    """A file that was read once cannot be sent again."""
    return method in ("GET", "POST") and "files" not in more


def _asked_wait_s(answer: httpx.Response, otherwise_s: float) -> float:
    text = answer.headers.get("retry-after", "")
    return float(text) if text.isdecimal() and text.isascii() else otherwise_s


def _condition(if_match: str | None) -> dict[str, str]:
    return {} if if_match is None else {"If-Match": if_match}


def _document(answer: httpx.Response) -> Any:
    if answer.status_code == httpx.codes.NO_CONTENT:
        return None
    try:
        body = answer.json()
    except (ValueError, RecursionError):
        body = None
    if answer.is_success and body is not None:
        return body
    raise Refused.of(answer.status_code, body)
