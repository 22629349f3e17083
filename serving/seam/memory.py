"""A seam inside one process: the public test double of `PostgresSeam`, proved by the same suite."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Sequence

from serving.contract import ConfigBody, ConfigChange, Report, ReportBody, decode_config, encode_body
from serving.seam import Delta, SeamUnavailable


class MemorySeam:
    """`put` and `delete` play the control plane; `is_down` plays an absent database."""

    def __init__(self) -> None:
        self.is_down = False
        self.version = 0
        self.floor = 0
        self.history = secrets.token_hex(8)
        self.reports: dict[tuple[str, int], Report] = {}
        self._entries: dict[tuple[str, str], ConfigChange] = {}
        self._hint = asyncio.Event()

    # -------------------------------------------------------- the control plane's side

    def put(self, key: str, body: ConfigBody) -> int:
        """Publish an entry and return the version it was given."""
        kind = type(body).__struct_config__.tag
        # Through JSON and back, as every real seam does: what does not survive fails here too.
        return self._write(str(kind), key, decode_config(encode_body(body)))

    def delete(self, kind: str, key: str) -> int:
        return self._write(kind, key, None)

    def prune(self) -> None:
        """Forget deletions; whoever missed them gets a complete answer."""
        self._entries = {key: change for key, change in self._entries.items() if change.body is not None}
        self.floor = self.version

    def received(self) -> list[ReportBody]:
        """Bodies of all reports, each once, in the order of their arrival."""
        return [report.body for report in self.reports.values()]

    def _write(self, kind: str, key: str, body: ConfigBody | None) -> int:
        self.version += 1
        self._entries.pop((kind, key), None)
        self._entries[kind, key] = ConfigChange(kind, key, self.version, body)
        self._hint.set()
        return self.version

    # -------------------------------------------------------- the data plane's side

    async def changes_since(self, version: int, kinds: tuple[str, ...], history: str = "") -> Delta:
        self._check()
        is_complete = _must_be_complete(version, self.version, self.floor, history, self.history)
        changes = [
            change
            for change in self._entries.values()
            if change.kind in kinds and (change.body is not None if is_complete else change.version > version)
        ]
        return Delta(self.version, self.history, tuple(changes), is_complete)

    async def send_reports(self, reports: Sequence[Report]) -> None:
        self._check()
        for report in reports:
            self.reports.setdefault((report.process, report.sequence), report)

    async def wait_for_hint(self, timeout_s: float) -> None:
        try:
            async with asyncio.timeout(timeout_s):
                await self._hint.wait()
        except TimeoutError:
            pass
        self._hint.clear()

    async def close(self) -> None:
        self.is_down = True

    def _check(self) -> None:
        if self.is_down:
            raise SeamUnavailable("the seam is down")


def _must_be_complete(version: int, current: int, floor: int, history: str, current_history: str) -> bool:
    is_other_line = bool(history) and history != current_history
    return version == 0 or version > current or version < floor or is_other_line
