"""A process follows its configuration, keeps it while the database is away, and starts from the file."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from serving.contract import BindingEntry, ConfigChange, KeyEntry, ProfileEntry, TenantEntry
from serving.seam import Delta
from serving.seam.follower import ConfigFollower
from serving.seam.memory import MemorySeam

KINDS = ("tenant", "key", "profile")


class Replica:
    """What a process makes of the changes it is told."""

    def __init__(self) -> None:
        self.entries: dict[tuple[str, str], object] = {}
        self.calls = 0

    def take(self, changes: list[ConfigChange]) -> None:
        self.calls += 1
        for change in changes:
            if change.body is None:
                self.entries.pop((change.kind, change.key), None)
            else:
                self.entries[change.kind, change.key] = change.body


def tenant(id: str = "tnt_a", name: str = "A") -> TenantEntry:
    return TenantEntry(id=id, slug=id[4:], name=name)


def key(id: str = "key_a") -> KeyEntry:
    return KeyEntry(id=id, tenant_id="tnt_a", digest=bytes(range(32)))


@pytest.fixture
def seam() -> MemorySeam:
    return MemorySeam()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "gateway" / "last-good.json"


def follow(seam: MemorySeam, file: Path) -> tuple[ConfigFollower, Replica]:
    seen = Replica()
    return ConfigFollower(seam, KINDS, file, seen.take, poll_interval_s=0.02), seen


async def until(condition) -> None:  # type: ignore[no-untyped-def]
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.005)


async def test_what_exists_arrives_at_the_start_and_what_changes_afterwards(
    seam: MemorySeam, file: Path
) -> None:
    seam.put("tnt_a", tenant())
    follower, seen = follow(seam, file)
    await follower.start()
    assert seen.entries == {("tenant", "tnt_a"): tenant()}
    seam.put("key_a", key())
    seam.put("bnd_a", BindingEntry(id="bnd_a", profile_id="pro_a"))
    await until(lambda: len(seen.entries) == 2)
    seam.delete("key", "key_a")
    await until(lambda: len(seen.entries) == 1)
    await follower.stop()


async def test_a_process_starts_without_the_database_from_its_last_good_file(
    seam: MemorySeam, file: Path
) -> None:
    seam.put("tnt_a", tenant())
    seam.put("key_a", key())
    first, _ = follow(seam, file)
    await first.start()
    await first.stop()
    assert file.stat().st_mode & 0o777 == 0o600
    seam.is_down = True
    second, seen = follow(seam, file)
    await second.start()
    assert second.is_loaded and not second.is_connected
    assert seen.entries == {("tenant", "tnt_a"): tenant(), ("key", "key_a"): key()}
    seam.is_down = False
    seam.delete("key", "key_a")
    await until(lambda: ("key", "key_a") not in seen.entries)
    await second.stop()


async def test_a_seam_that_hangs_does_not_hold_up_a_start_from_the_file(seam: MemorySeam, file: Path) -> None:
    class Hangs(MemorySeam):
        async def changes_since(self, version: int, kinds: tuple[str, ...], history: str = "") -> Delta:
            await asyncio.Event().wait()
            raise AssertionError

    seam.put("tnt_a", tenant())
    first, _ = follow(seam, file)
    await first.start()
    await first.stop()
    second, seen = follow(Hangs(), file)
    async with asyncio.timeout(20):
        await second.start()
    assert seen.entries == {("tenant", "tnt_a"): tenant()}
    await second.stop()


async def test_without_database_and_file_nothing_is_loaded_until_the_seam_answers(
    seam: MemorySeam, file: Path
) -> None:
    seam.is_down = True
    follower, seen = follow(seam, file)
    await follower.start()
    assert not await follower.wait_loaded(0.05)
    seam.is_down = False
    assert await follower.wait_loaded(5)
    await follower.stop()


async def test_missed_and_pruned_deletions_are_noticed(seam: MemorySeam, file: Path) -> None:
    seam.put("tnt_a", tenant())
    seam.put("key_a", key())
    first, _ = follow(seam, file)
    await first.start()
    await first.stop()
    seam.delete("key", "key_a")
    seam.put("pro_a", ProfileEntry(id="pro_a", name="p"))
    seam.prune()
    second, seen = follow(seam, file)
    await second.start()
    assert seen.entries == {
        ("tenant", "tnt_a"): tenant(),
        ("profile", "pro_a"): ProfileEntry(id="pro_a", name="p"),
    }
    await second.stop()


async def test_a_database_restored_to_an_older_state_wins(seam: MemorySeam, file: Path) -> None:
    seam.put("tnt_a", tenant(name="old"))
    backup = MemorySeam()
    backup.put("tnt_a", tenant(name="old"))
    backup.history = seam.history
    seam.put("tnt_a", tenant(name="new"))
    seam.put("key_a", key())
    follower, seen = follow(seam, file)
    await follower.start()
    follower._seam = backup
    await until(lambda: seen.entries == {("tenant", "tnt_a"): tenant(name="old")})
    await follower.stop()


async def test_another_history_is_read_completely(seam: MemorySeam, file: Path) -> None:
    seam.put("key_a", key())
    follower, seen = follow(seam, file)
    await follower.start()
    other = MemorySeam()
    for _ in range(5):
        other.put("tnt_b", tenant("tnt_b"))
    follower._seam = other
    await until(lambda: seen.entries == {("tenant", "tnt_b"): tenant("tnt_b")})
    await follower.stop()


async def test_an_unreadable_file_is_no_configuration_and_no_crash(seam: MemorySeam, file: Path) -> None:
    file.parent.mkdir()
    file.write_text('{"version": 7, "entr')
    seam.is_down = True
    follower, seen = follow(seam, file)
    await follower.start()
    assert not follower.is_loaded and not seen.entries
    await follower.stop()


async def test_one_change_the_process_cannot_take_does_not_hold_up_the_next(
    seam: MemorySeam, file: Path
) -> None:
    seen: list[str] = []

    def take(changes: list[ConfigChange]) -> None:
        for change in changes:
            if change.key == "tnt_bad":
                raise ValueError("no")
        seen.extend(change.key for change in changes)

    seam.put("tnt_bad", tenant("tnt_bad"))
    seam.put("tnt_b", tenant("tnt_b"))
    follower = ConfigFollower(seam, KINDS, file, take, poll_interval_s=0.02)
    await follower.start()
    assert seen == ["tnt_b"]
    await follower.stop()


async def test_nothing_is_told_twice(seam: MemorySeam, file: Path) -> None:
    seam.put("tnt_a", tenant())
    follower, seen = follow(seam, file)
    await follower.start()
    for _ in range(3):
        await follower.poll()
    follower._next_complete = 0.0
    await follower.poll()
    assert seen.calls == 1
    await follower.stop()


async def test_a_stop_while_the_file_is_written_leaves_the_newest_configuration(
    seam: MemorySeam, file: Path
) -> None:
    follower, _ = follow(seam, file)
    await follower.start()
    seam.put("tnt_a", tenant())
    await follower.poll()
    await asyncio.sleep(0)  # the write has begun
    await follower.stop()
    seam.is_down = True
    again, seen = follow(seam, file)
    await again.start()
    assert seen.entries == {("tenant", "tnt_a"): tenant()}
    await again.stop()
