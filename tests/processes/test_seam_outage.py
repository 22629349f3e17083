"""A real PostgreSQL dies and comes back: followers keep what they know and catch up, reports arrive once."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from console.embedded.services import EmbeddedServices
from serving.contract import ConfigChange, TenantEntry, UsageReport, UsageRow, decode_report, encode_body
from serving.seam.follower import ConfigFollower
from serving.seam.outbox import ReportOutbox
from serving.seam.postgres import PostgresSeam

pytestmark = pytest.mark.processes

PROJECT = Path(__file__).resolve().parents[2]


@pytest.fixture
def services(tmp_path: Path) -> Iterator[EmbeddedServices]:
    """A PostgreSQL of this test alone, durable: it is killed in earnest."""
    made = EmbeddedServices(tmp_path / "services", environ={"VALKEY_URL": os.environ["VALKEY_URL"]})
    made.start()
    environment = os.environ | made.urls() | {"DJANGO_SETTINGS_MODULE": "console.settings"}
    command = [sys.executable, "manage.py", "migrate", "--skip-checks", "--verbosity=0"]
    subprocess.run(command, cwd=PROJECT, env=environment, check=True)
    yield made
    made.stop()


@pytest.fixture
async def seam(services: EmbeddedServices) -> AsyncIterator[PostgresSeam]:
    made = PostgresSeam(services.urls()["DATABASE_URL"], timeout_s=1.0)
    yield made
    await made.close()


def publish(services: EmbeddedServices, name: str) -> None:
    """What `serving.control.publish` does, by hand: this test's Django looks at another database."""
    body = TenantEntry(id="tnt_a", slug="a", name=name)
    with psycopg.connect(services.urls()["DATABASE_URL"]) as connection:
        connection.execute(
            "INSERT INTO control_config_clock (id, version, floor, history) VALUES (1, 1, 0, 'h')"
            " ON CONFLICT (id) DO UPDATE SET version = control_config_clock.version + 1"
        )
        connection.execute(
            "INSERT INTO control_config_entry (kind, key, version, body, deleted)"
            " SELECT 'tenant', 'tnt_a', version, %s::jsonb, false FROM control_config_clock"
            " ON CONFLICT (kind, key) DO UPDATE SET version = excluded.version, body = excluded.body",
            [encode_body(body).decode()],
        )


def usage(minute: int) -> UsageReport:
    row = UsageRow(
        minute=minute, tenant_id="t", key_id="k", model="m", version_id="v", sla_class="batch", requests=1
    )
    return UsageReport(rows=(row,))


def counted(services: EmbeddedServices) -> int:
    with psycopg.connect(services.urls()["DATABASE_URL"]) as connection:
        bodies = connection.execute("SELECT body::text FROM control_report").fetchall()
    reports = [decode_report(body) for (body,) in bodies]
    return sum(row.requests for body in reports if isinstance(body, UsageReport) for row in body.rows)


async def test_an_outage_costs_neither_configuration_nor_usage(
    services: EmbeddedServices, seam: PostgresSeam, tmp_path: Path
) -> None:
    names: list[str] = []

    def take(changes: list[ConfigChange]) -> None:
        names.extend(change.body.name for change in changes if isinstance(change.body, TenantEntry))

    publish(services, "before")
    follower = ConfigFollower(seam, ("tenant",), tmp_path / "last-good.json", take, poll_interval_s=0.05)
    outbox = ReportOutbox(seam, "gateway-0", tmp_path / "reports.jsonl", send_interval_s=0.05)
    await follower.start()
    await outbox.start()
    outbox.put(usage(0))
    await until(lambda: outbox.pending == 0)
    assert names == ["before"]

    (postgres,) = services.services
    postgres.process.kill()
    await until(lambda: not follower.is_connected)
    for minute in range(5):
        outbox.put(usage(60 * minute))
    await until(lambda: (tmp_path / "reports.jsonl").exists())
    assert follower.is_loaded and names == ["before"]

    services.stop()
    services.start()  # in this thread: the kernel ties the server to the one that started it
    publish(services, "after")
    await until(lambda: names == ["before", "after"])
    await until(lambda: outbox.pending == 0)
    assert counted(services) == 6
    await follower.stop()
    await outbox.stop()
    assert not (tmp_path / "reports.jsonl").exists()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.02)
