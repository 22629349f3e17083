"""Keeps one process's configuration current: poll is the truth, a hint only wakes it earlier.

While the database is away the process keeps what it has. What it has is also on disk (the last-good
file), so that it can start and serve without the database.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec
import structlog

from serving.contract import ConfigBody, ConfigChange, decode_config
from serving.ending import end_tasks
from serving.seam import Delta, Seam, SeamUnavailable
from serving.seam.private_file import PrivateFile

log = structlog.get_logger(__name__)

OnChanges = Callable[[list[ConfigChange]], None]

FIRST_ANSWER_S = 1.0
"""How long a start waits for the seam before it goes on with the last-good file."""


class LastGood(msgspec.Struct, frozen=True):
    """The last-good file: what the follower knew, and where in the line of versions that was."""

    version: int
    history: str
    kinds: tuple[str, ...]
    entries: tuple[tuple[str, str, int, msgspec.Raw], ...]
    """(kind, key, version, body) of every entry that exists."""


class ConfigFollower:
    """Calls `on_changes` with every difference, in the event loop's thread, deletions included.

    `start()` then `stop()`. `is_loaded` turns true once there is a configuration, from the file or from
    the seam; `on_changes` was called with it before.
    """

    def __init__(
        self,
        seam: Seam,
        kinds: tuple[str, ...],
        last_good: Path,
        on_changes: OnChanges,
        *,
        poll_interval_s: float = 0.25,
        complete_interval_s: float = 600.0,
    ) -> None:
        self._seam = seam
        self._kinds = tuple(sorted(kinds))
        self._file = PrivateFile(last_good)
        self._on_changes = on_changes
        self._poll_interval_s = poll_interval_s
        self._complete_interval_s = complete_interval_s
        self._entries: dict[tuple[str, str], ConfigChange] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._loaded = asyncio.Event()
        self._is_unsaved = asyncio.Event()
        self._saving: asyncio.Task[None] | None = None
        self._next_complete = 0.0
        self.version = 0
        self.history = ""
        self.is_connected = False

    @property
    def is_loaded(self) -> bool:
        return self._loaded.is_set()

    async def start(self) -> None:
        """Load the last-good file, give the seam a moment to answer, then follow in the background."""
        self._load()
        self._next_complete = time.monotonic() + self._complete_interval_s
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FIRST_ANSWER_S):
                await self.poll()
        self._tasks = [asyncio.create_task(self._follow()), asyncio.create_task(self._save_forever())]

    async def stop(self) -> None:
        """Stop following and leave the newest configuration in the last-good file."""
        await end_tasks(self._tasks)
        self._tasks = []
        if self._saving is not None:
            await self._saving
        if self._is_unsaved.is_set():
            await self._save()

    async def wait_loaded(self, timeout_s: float) -> bool:
        """Whether there is a configuration within `timeout_s`."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._loaded.wait()
        return self.is_loaded

    async def poll(self) -> bool:
        """Ask the seam once and apply the answer; False when it cannot be reached."""
        is_due = time.monotonic() >= self._next_complete
        try:
            # Now and then everything is read again: it heals what no version number can show, such as
            # a database restored from a backup that has since moved past our version.
            delta = await self._seam.changes_since(0 if is_due else self.version, self._kinds, self.history)
        except SeamUnavailable as error:
            self._note_contact(False, str(error))
            return False
        if is_due:
            self._next_complete = time.monotonic() + self._complete_interval_s
        self._note_contact(True)
        self._apply(delta)
        return True

    # -------------------------------------------------------------------- applying

    def _apply(self, delta: Delta) -> None:
        changes = self._difference(delta) if delta.is_complete else list(delta.changes)
        is_moved = (delta.version, delta.history) != (self.version, self.history)
        self.version, self.history = delta.version, delta.history
        for change in changes:
            self._remember(change)
        if changes:
            self._deliver(changes)
        if changes or is_moved:
            self._is_unsaved.set()
        self._loaded.set()

    def _deliver(self, changes: list[ConfigChange]) -> None:
        try:
            self._on_changes(changes)
        except Exception:  # one change the process cannot take must not hold up a revocation behind it
            log.exception("config.changes_refused", count=len(changes))
            for change in changes:
                self._deliver_alone(change)

    def _deliver_alone(self, change: ConfigChange) -> None:
        try:
            self._on_changes([change])
        except Exception:
            log.exception("config.change_refused", kind=change.kind, key=change.key)

    def _remember(self, change: ConfigChange) -> None:
        if change.body is None:
            self._entries.pop((change.kind, change.key), None)
        else:
            self._entries[change.kind, change.key] = change

    def _difference(self, delta: Delta) -> list[ConfigChange]:
        """What turns our entries into those of a complete answer: the gone ones first, fail closed."""
        present = {(change.kind, change.key): change for change in delta.changes if change.body is not None}
        gone = [
            ConfigChange(kind, key, delta.version, None)
            for kind, key in self._entries
            if (kind, key) not in present
        ]
        new = [change for key, change in present.items() if not _is_same(self._entries.get(key), change)]
        return gone + new

    # -------------------------------------------------------------------- loops

    async def _follow(self) -> None:
        while True:
            await self._seam.wait_for_hint(self._poll_interval_s)
            try:
                await self.poll()
            except Exception:  # loop top
                log.exception("config.poll_failed")
                await asyncio.sleep(self._poll_interval_s)

    async def _save_forever(self) -> None:
        while True:
            await self._is_unsaved.wait()
            # A stop in the middle must neither lose what is being written nor write beside it.
            self._saving = asyncio.create_task(self._save())
            await asyncio.shield(self._saving)
            await asyncio.sleep(0.1)  # a burst of changes becomes one write

    def _note_contact(self, is_connected: bool, reason: str = "") -> None:
        if is_connected != self.is_connected:
            self.is_connected = is_connected
            log.info("config.connected") if is_connected else log.warning(
                "config.disconnected", reason=reason
            )

    # -------------------------------------------------------------------- last-good file

    async def _save(self) -> None:
        self._is_unsaved.clear()
        version, history, entries = self.version, self.history, list(self._entries.values())
        try:
            content = await asyncio.to_thread(_encode, version, history, self._kinds, entries)
            await asyncio.to_thread(self._file.replace, [content])
        except OSError as error:
            log.error("config.last_good_not_written", path=str(self._file.path), error=str(error))

    def _load(self) -> None:
        saved = _decode(self._file)
        if saved is None or saved.kinds != self._kinds:
            return
        self._entries = {(change.kind, change.key): change for change in _changes(saved)}
        self.version, self.history = saved.version, saved.history
        if self._entries:
            self._deliver(list(self._entries.values()))
        self._loaded.set()
        log.info("config.last_good_loaded", version=self.version, entries=len(self._entries))


def _is_same(mine: ConfigChange | None, theirs: ConfigChange) -> bool:
    return mine is not None and mine.body == theirs.body


def _encode(version: int, history: str, kinds: tuple[str, ...], entries: Iterable[ConfigChange]) -> bytes:
    return msgspec.json.encode(
        {
            "version": version,
            "history": history,
            "kinds": kinds,
            "entries": [(change.kind, change.key, change.version, change.body) for change in entries],
        }
    )


def _decode(file: PrivateFile) -> LastGood | None:
    try:
        content = file.read()
        return None if content is None else msgspec.json.decode(content, type=LastGood)
    except (OSError, msgspec.DecodeError) as error:
        log.error("config.last_good_unreadable", path=str(file.path), error=str(error))
        return None


def _changes(saved: LastGood) -> Iterable[ConfigChange]:
    for kind, key, version, raw in saved.entries:
        try:
            body: ConfigBody = decode_config(bytes(raw))
        except msgspec.ValidationError as error:
            log.error("config.unreadable", kind=kind, key=key, error=str(error))
        else:
            yield ConfigChange(kind, key, version, body)
