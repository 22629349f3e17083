"""Usage outlives a process that is killed, and is counted once whatever was on its way."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from serving.contract import Report
from serving.gateway import usage_journal
from serving.gateway.metrics import Metrics
from serving.gateway.routing import Lane
from serving.gateway.usage import Usage
from serving.gateway.usage_journal import JournalFile
from tests.serving.gateway.test_counting import Outbox, lane

NOW = 60.0


@pytest.fixture
def one() -> Lane:
    return lane(Metrics())


def started(outbox: Outbox, directory: Path) -> Usage:
    """A gateway's start: what was left is taken over before anything new is counted."""
    usage = Usage(outbox, directory)
    outbox.put_numbered(usage.recover())
    usage.start()
    return usage


def requests(outbox: Outbox) -> int:
    return sum(row.requests for row in outbox.rows)


def test_what_was_never_handed_over_is_found_after_a_kill(tmp_path: Path, one: Lane) -> None:
    outbox = Outbox()
    usage = started(outbox, tmp_path)
    usage.of(one, "key_a", NOW).count_answer(rows=2, tokens=7, device_us=100)
    usage.of(one, "key_a", NOW).count_cancellation()
    usage.of(one, "key_b", NOW + 60).count_failure()
    assert outbox.rows == []
    started(outbox, tmp_path)
    by_key = {row.key_id: row for row in outbox.rows}
    assert (by_key["key_a"].requests, by_key["key_a"].cancelled, by_key["key_a"].rows) == (2, 1, 2)
    assert (by_key["key_a"].tokens, by_key["key_a"].device_us, by_key["key_a"].minute) == (7, 100, 60)
    assert (by_key["key_b"].failed, by_key["key_b"].minute) == (1, 120)


def test_what_was_handed_over_is_counted_once_after_a_kill(tmp_path: Path, one: Lane) -> None:
    outbox = Outbox()
    usage = started(outbox, tmp_path)
    usage.of(one, "key_a", NOW).count_failure()
    usage.flush()
    usage.of(one, "key_a", NOW).count_failure()
    started(outbox, tmp_path)
    assert requests(outbox) == 2


def test_what_is_on_its_way_is_not_mixed_with_what_comes_after(tmp_path: Path, one: Lane) -> None:
    outbox = Outbox()
    usage = started(outbox, tmp_path)
    for _ in range(3):
        usage.of(one, "key_a", NOW).count_failure()
        usage.flush()
    assert requests(outbox) == 1  # the others add up until the first is delivered
    outbox.waiting.clear()
    usage.flush()
    assert requests(outbox) == 3


def test_nothing_delivered_is_found_again(tmp_path: Path, one: Lane) -> None:
    outbox = Outbox()
    usage = started(outbox, tmp_path)
    usage.of(one, "key_a", NOW).count_failure()
    usage.flush()
    outbox.waiting.clear()
    usage.flush()
    assert Usage(Outbox(), tmp_path).recover() == []


def test_a_clean_stop_hands_everything_over_and_leaves_nothing(tmp_path: Path, one: Lane) -> None:
    outbox = Outbox()
    usage = started(outbox, tmp_path)
    for _ in range(2):
        usage.of(one, "key_a", NOW).count_failure()
        usage.flush()
    usage.stop()
    usage.of(one, "key_a", NOW).count_failure()  # later than it should be, and still no error
    usage.close()
    assert requests(outbox) == 2
    assert Usage(Outbox(), tmp_path).recover() == []


def test_recovering_twice_gives_the_same_numbers(tmp_path: Path, one: Lane) -> None:
    usage = started(Outbox(), tmp_path)
    for key in ("key_a", "key_b"):
        usage.of(one, key, NOW).count_failure()
    first: list[Report] = Usage(Outbox(), tmp_path).recover()
    assert first == Usage(Outbox(), tmp_path).recover() != []


def test_accounts_beyond_the_room_are_counted_all_the_same(
    tmp_path: Path, one: Lane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(usage_journal, "SLOTS", 3)
    outbox = Outbox()
    usage = started(outbox, tmp_path)
    for index in range(10):
        usage.of(one, f"key_{index}", NOW).count_failure()
    usage.of(one, "key_" + "x" * 600, NOW).count_failure()
    usage.flush()
    assert requests(outbox) == 11


def test_a_file_of_somebody_else_is_no_usage(tmp_path: Path, one: Lane) -> None:
    (tmp_path / "usage-0.journal").write_bytes(b"\xff" * 10_000)
    (tmp_path / "usage-1.journal").write_bytes(b"tgusage1" + b"\x01" * 10_000)
    outbox = Outbox()
    usage = started(outbox, tmp_path)
    usage.of(one, "key_a", NOW).count_failure()
    usage.stop()
    assert requests(outbox) == 1


def test_without_a_place_for_files_usage_is_counted_in_memory(tmp_path: Path, one: Lane) -> None:
    (tmp_path / "file").write_text("")
    outbox = Outbox()
    usage = started(outbox, tmp_path / "file")
    usage.of(one, "key_a", NOW).count_failure()
    usage.flush()
    assert requests(outbox) == 1


def test_without_room_on_the_disk_usage_is_counted_in_memory(
    tmp_path: Path, one: Lane, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int, offset: int, size: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", full)
    outbox = Outbox()
    usage = started(outbox, tmp_path)
    usage.of(one, "key_a", NOW).count_failure()
    usage.flush()
    assert requests(outbox) == 1


def test_the_room_for_sums_is_reserved_so_that_a_full_disk_kills_nobody(tmp_path: Path) -> None:
    JournalFile(tmp_path / "usage-0.journal")
    found = (tmp_path / "usage-0.journal").stat()
    assert found.st_blocks * 512 >= found.st_size


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(steps=st.lists(st.sampled_from(["count", "count", "flush", "deliver", "kill", "stop"]), max_size=30))
def test_whatever_happens_every_request_is_counted_once(
    tmp_path_factory: pytest.TempPathFactory, steps: list[str]
) -> None:
    directory, outbox, one = tmp_path_factory.mktemp("journal"), Outbox(), lane(Metrics())
    counted, usage = 0, started(outbox, directory)
    for step in (*steps, "stop"):
        if step == "count":
            usage.of(one, "key_a", NOW).count_failure()
            counted += 1
        elif step == "flush":
            usage.flush()
        elif step == "deliver":
            outbox.waiting.clear()
        else:
            if step == "stop":
                usage.stop()
                usage.close()
            outbox.process += "'"  # the next start has a name of its own
            usage = started(outbox, directory)
    assert requests(outbox) == counted


def test_a_file_is_private(tmp_path: Path) -> None:
    JournalFile(tmp_path / "state" / "usage-0.journal")
    assert (tmp_path / "state" / "usage-0.journal").stat().st_mode & 0o077 == 0
