"""What every noun of the client has."""

from __future__ import annotations

from typing import Any

from tidegate.transport import Transport


class Noun:
    def __init__(self, transport: Transport) -> None:
        self._at = transport

    def _one(self, path: str, **query: Any) -> dict[str, Any]:
        found: dict[str, Any] = self._at.get(path, **query)
        return found

    def _post(self, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        made: dict[str, Any] = self._at.post(path, body)
        return made
