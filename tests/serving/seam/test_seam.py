"""One suite for every seam: the public test double behaves as the real one."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import psycopg
import pytest
from asgiref.sync import sync_to_async
from django.db import connection, connections, transaction

from serving.contract import (
    ConfigBody,
    HostReport,
    KeyEntry,
    ReplicaReport,
    Report,
    TenantEntry,
    UsageReport,
    UsageRow,
    decode_report,
)
from serving.seam import Seam, SeamUnavailable
from serving.seam.memory import MemorySeam
from serving.seam.postgres import PostgresSeam

KINDS = ("key", "tenant")
PATIENCE_S = 20.0
pytestmark = pytest.mark.django_db(transaction=True)


@dataclass
class Bench:
    """A seam, and the control plane's side of it."""

    seam: Seam
    put: Callable[[str, ConfigBody], Awaitable[Any]]
    delete: Callable[[str, str], Awaitable[Any]]
    prune: Callable[[], Awaitable[Any]]
    received: Callable[[], Awaitable[list[Any]]]


@pytest.fixture(autouse=True)
async def _connections_end_with_the_test() -> AsyncIterator[None]:
    yield
    await sync_to_async(connections.close_all)()


@pytest.fixture(params=["memory", "postgres"])
async def bench(request: pytest.FixtureRequest) -> AsyncIterator[Bench]:
    made = _memory() if request.param == "memory" else _postgres()
    yield made
    await made.seam.close()


def _memory() -> Bench:
    seam = MemorySeam()

    async def put(key: str, body: ConfigBody) -> None:
        seam.put(key, body)

    async def delete(kind: str, key: str) -> None:
        seam.delete(kind, key)

    async def prune() -> None:
        seam.prune()

    async def received() -> list[Any]:
        return seam.received()

    return Bench(seam, put, delete, prune, received)


def database_url() -> str:
    settings = connection.settings_dict
    return psycopg.conninfo.make_conninfo(
        "",
        dbname=settings["NAME"],
        user=settings["USER"] or None,
        host=settings["HOST"] or None,
        port=settings["PORT"] or None,
    )


def _postgres() -> Bench:
    from datetime import UTC, datetime, timedelta

    from serving.control import publish
    from serving.control.seam_tables import ReportRow

    def put(key: str, body: ConfigBody) -> None:
        with transaction.atomic():
            publish.put(str(type(body).__struct_config__.tag), key, body)

    def delete(kind: str, key: str) -> None:
        with transaction.atomic():
            publish.delete(kind, key)

    def prune() -> None:
        publish.prune_tombstones(datetime.now(UTC) + timedelta(hours=1))

    def received() -> list[Any]:
        import json

        return [decode_report(json.dumps(row.body)) for row in ReportRow.objects.order_by("id")]

    return Bench(
        PostgresSeam(database_url()),
        sync_to_async(put),
        sync_to_async(delete),
        sync_to_async(prune),
        sync_to_async(received),
    )


def tenant(id: str, name: str = "A") -> TenantEntry:
    return TenantEntry(id=id, slug=id[4:], name=name)


def key(id: str) -> KeyEntry:
    return KeyEntry(id=id, tenant_id="tnt_a", digest=bytes(range(32)), expires_at=1.5)


async def test_the_first_answer_is_complete(bench: Bench) -> None:
    await bench.put("tnt_a", tenant("tnt_a"))
    await bench.put("key_a", key("key_a"))
    await bench.delete("tenant", "tnt_a")
    delta = await bench.seam.changes_since(0, KINDS)
    assert delta.is_complete
    assert [(c.kind, c.key, c.body) for c in delta.changes] == [("key", "key_a", key("key_a"))]


async def test_an_empty_seam_answers_with_nothing(bench: Bench) -> None:
    delta = await bench.seam.changes_since(0, KINDS)
    assert not delta.changes


async def test_a_later_answer_holds_only_what_changed_deletions_included(bench: Bench) -> None:
    for number in range(3):
        await bench.put(f"tnt_{number}", tenant(f"tnt_{number}"))
    first = await bench.seam.changes_since(0, KINDS)
    await bench.put("tnt_1", tenant("tnt_1", "B"))
    await bench.delete("tenant", "tnt_0")
    delta = await bench.seam.changes_since(first.version, KINDS, first.history)
    assert not delta.is_complete
    assert [(c.key, c.body) for c in delta.changes] == [("tnt_1", tenant("tnt_1", "B")), ("tnt_0", None)]
    assert [c.version for c in delta.changes] == sorted(c.version for c in delta.changes)
    again = await bench.seam.changes_since(delta.version, KINDS, delta.history)
    assert not again.changes and not again.is_complete


async def test_kinds_not_asked_for_do_not_arrive_but_move_the_version(bench: Bench) -> None:
    await bench.put("key_a", key("key_a"))
    first = await bench.seam.changes_since(0, ("tenant",))
    assert not first.changes
    await bench.put("key_b", key("key_b"))
    delta = await bench.seam.changes_since(first.version, ("tenant",), first.history)
    assert not delta.changes and delta.version > first.version


async def test_who_missed_a_pruned_deletion_gets_everything(bench: Bench) -> None:
    await bench.put("tnt_a", tenant("tnt_a"))
    first = await bench.seam.changes_since(0, KINDS)
    await bench.put("tnt_b", tenant("tnt_b"))
    await bench.delete("tenant", "tnt_b")
    await bench.prune()
    delta = await bench.seam.changes_since(first.version, KINDS, first.history)
    assert delta.is_complete
    assert [c.key for c in delta.changes] == ["tnt_a"]


@pytest.mark.parametrize("version, history", [(10_000, ""), (1, "another")])
async def test_who_is_ahead_or_from_another_line_gets_everything(
    bench: Bench, version: int, history: str
) -> None:
    await bench.put("tnt_a", tenant("tnt_a"))
    await bench.put("tnt_b", tenant("tnt_b"))
    delta = await bench.seam.changes_since(version, KINDS, history)
    assert delta.is_complete
    assert {c.key for c in delta.changes} == {"tnt_a", "tnt_b"}


async def test_a_report_sent_twice_is_stored_once(bench: Bench) -> None:
    row = UsageRow(
        minute=0, tenant_id="t", key_id="k", model="m", version_id="v", sla_class="batch", requests=3
    )
    first = Report("gateway", 1, UsageReport(rows=(row,)))
    second = Report("gateway", 2, HostReport(host="h", epoch=1, devices=(), replica_dir="/r"))
    await bench.seam.send_reports([first])
    await bench.seam.send_reports([first, second])
    assert await bench.received() == [first.body, second.body]


async def test_a_report_may_hold_any_text(bench: Bench) -> None:
    reason = 'zero \x00 quote " backslash \\u0000 \\ \\\x00 emoji \N{DIZZY SYMBOL} line\nend'
    body = ReplicaReport(replica_id="r", version_id="v", host="h", epoch=1, state="failed", reason=reason)
    await bench.seam.send_reports([Report("agent", 1, body)])
    (stored,) = await bench.received()
    assert stored.reason.replace("\x00", "") == reason.replace("\x00", "")


async def test_a_hint_ends_the_wait_early_and_none_ends_it_in_time(bench: Bench) -> None:
    async with asyncio.timeout(PATIENCE_S):
        await bench.seam.wait_for_hint(0.05)
    waiting = asyncio.create_task(bench.seam.wait_for_hint(10 * PATIENCE_S))
    async with asyncio.timeout(PATIENCE_S):
        while not waiting.done():  # a change before the wait began gives no hint: change until one does
            await bench.put("tnt_a", tenant("tnt_a", str(time.monotonic())))
            await asyncio.sleep(0.01)


async def test_an_absent_database_is_one_error_and_comes_back() -> None:
    seam = PostgresSeam("postgresql://nobody@127.0.0.1:1/none")
    with pytest.raises(SeamUnavailable):
        await seam.changes_since(0, KINDS)
    with pytest.raises(SeamUnavailable):
        await seam.send_reports([Report("p", 1, UsageReport(rows=()))])
    await seam.wait_for_hint(0.01)
    seam._url = database_url()
    await seam.changes_since(0, KINDS)
    await seam.close()
    with pytest.raises(SeamUnavailable):
        await seam.changes_since(0, KINDS)


async def test_a_lost_connection_is_replaced() -> None:
    seam = PostgresSeam(database_url(), name="seam-under-test")
    await seam.changes_since(0, KINDS)
    await seam.wait_for_hint(0.01)

    @sync_to_async
    def kill() -> None:
        with connection.as_owner(), connection.cursor() as cursor:
            cursor.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'seam-under-test'"
            )

    await kill()
    with pytest.raises(SeamUnavailable):
        await seam.changes_since(0, KINDS)
    await seam.changes_since(0, KINDS)
    await seam.wait_for_hint(0.01)
    await seam.wait_for_hint(0.01)
    await seam.close()


async def test_a_database_that_accepts_and_stays_silent_is_unavailable_in_bounded_time() -> None:
    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    seam = PostgresSeam(f"postgresql://nobody@127.0.0.1:{port}/none", timeout_s=0.2)
    async with asyncio.timeout(PATIENCE_S):
        with pytest.raises(SeamUnavailable):
            await seam.changes_since(0, KINDS)
    server.close()
