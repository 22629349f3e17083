"""From the gateway's count to the ledger's days: once each, whatever is killed, repeated or late on the way."""

from __future__ import annotations

import contextlib
import random
from pathlib import Path
from typing import Any

import msgspec
import pytest
from django.db import transaction
from django.db.models import Sum

from serving.contract import ProfileEntry, VersionEntry
from serving.control import reports
from serving.control.seam_tables import ReportRow
from serving.gateway.metrics import Metrics
from serving.gateway.routing import Lane
from serving.gateway.usage import Usage
from serving.prices import PARTS_PER_MICRO, Rates
from tenants.actions.tenants import create_tenant
from tenants.actors import Actor
from tenants.models import Tenant, UsageDay, UsageHour, UsageMinute, UsagePlatformDay, UsageWeek
from tenants.scoping import all_tenants
from tests.serving.gateway.test_counting import Outbox

pytestmark = pytest.mark.django_db
RATES = Rates(7_654_321, 123_457, 89_123)
START = 1_790_000_000


class Killed(Exception):
    pass


class Gateway:
    """A gateway's counting, and all that can happen to its process."""

    def __init__(self, name: str, directory: Path, lane: Lane, draw: random.Random) -> None:
        self.outbox, self.directory, self.lane, self.draw = Outbox(), directory, lane, draw
        self.outbox.process = name
        self.counted: dict[str, int] = dict.fromkeys(("requests", "cancelled", "tokens", "device_us"), 0)
        self.parts = self.kills = 0
        self._start()

    def _start(self) -> None:
        self.usage = Usage(self.outbox, self.directory)
        self.outbox.put_numbered(self.usage.recover())
        self.usage.start()

    def answer(self) -> None:
        device_us, tokens = self.draw.randrange(1, 10**6), self.draw.randrange(900)
        parts = RATES.answer_parts(device_us, tokens)
        self._used().count_answer(1, tokens, device_us, parts)
        self._count(requests=1, tokens=tokens, device_us=device_us)
        self.parts += parts

    def cancel(self) -> None:
        device_us = self.draw.randrange(10**6)
        used, parts = self._used(), RATES.device_parts(device_us)
        used.count_cancellation()
        used.add_device_time(device_us, parts, is_cancelled=True)
        self._count(requests=1, cancelled=1, device_us=device_us)
        self.parts += parts

    def flush(self) -> None:
        self.usage.flush()

    def deliver(self) -> None:
        self.outbox.waiting.clear()

    def kill(self) -> None:
        self.outbox.process += "'"
        self.kills += 1
        self._start()

    def stop(self) -> None:
        self.usage.stop()
        self.usage.close()

    def _used(self) -> Any:
        return self.usage.of(
            self.lane, self.draw.choice(("key_a", "key_b")), START + self.draw.randrange(200_000)
        )

    def _count(self, **counts: int) -> None:
        for name, count in counts.items():
            self.counted[name] += count


@pytest.mark.parametrize("seed", range(6))
def test_every_request_is_in_the_ledger_once(seed: int, tmp_path: Path, operator: Actor) -> None:
    draw = random.Random(seed)
    gateways = [Gateway(f"g{number}", tmp_path / str(number), _lane(operator), draw) for number in range(2)]
    for _ in range(150):
        step = draw.choice(("answer", "answer", "answer", "cancel", "flush", "deliver", "kill"))
        getattr(draw.choice(gateways), step)()
    for gateway in gateways:
        gateway.stop()
    _arrive([row for gateway in gateways for row in _reported(gateway)], draw)
    counted = {name: sum(g.counted[name] for g in gateways) for name in gateways[0].counted}
    widths = (UsageMinute, UsageHour, UsageDay, UsageWeek, UsagePlatformDay)
    sums = [_sums(model) for model in widths]
    assert sums == [sums[0]] * len(widths)
    assert {name: sums[0][name] for name in counted} == counted
    # What is less than a micro-unit is carried on, and dies with its process: one per account at most.
    exact = sum(g.parts for g in gateways) / PARTS_PER_MICRO
    accounts = 2 * 2 * (1 + sum(g.kills for g in gateways))
    assert exact - accounts <= sums[0]["cost_micro"] <= exact


def _lane(operator: Actor) -> Lane:
    tenant = Tenant.objects.first() or create_tenant(
        by=operator, slug="acme", name="Acme", time_zone="Asia/Kolkata"
    )
    version = VersionEntry(
        id="mv_a", model="m", number=1, engine="echo", artifact_sha256="", artifact_path=""
    )
    series = Metrics().series(tenant.pk, "m", "mv_a", "infer", "standard", 1000)
    return Lane(tenant.pk, version, ProfileEntry(id="pro_a", name="a"), series)


def _reported(gateway: Gateway) -> list[ReportRow]:
    return [
        ReportRow(process=process, sequence=sequence, kind="usage", body=msgspec.to_builtins(body))
        for (process, sequence), body in gateway.outbox.reports.items()
    ]


def _arrive(rows: list[ReportRow], draw: random.Random) -> None:
    """In any order, some twice, while an ingester dies now and then."""
    arriving = [*rows, *draw.sample(rows, len(rows) // 2)]
    draw.shuffle(arriving)
    for row in arriving:
        again = ReportRow(process=row.process, sequence=row.sequence, kind=row.kind, body=row.body)
        ReportRow.objects.bulk_create([again], ignore_conflicts=True)
        if draw.random() < 0.3:
            _die_ingesting()
        if draw.random() < 0.5:
            reports.ingest(limit=draw.randrange(1, 4))
    reports.ingest()
    assert not ReportRow.objects.exclude(error="").exists()


def _die_ingesting() -> None:
    with contextlib.suppress(Killed), transaction.atomic():
        reports.ingest(limit=2)
        raise Killed


def _sums(model: Any) -> dict[str, int]:
    names = ("requests", "failed", "cancelled", "rows", "tokens", "device_us", "cancelled_us", "cost_micro")
    with all_tenants("a test"):
        found = model.objects.aggregate(**{f"sum_{name}": Sum(name) for name in names})
    return {name: int(found[f"sum_{name}"] or 0) for name in names}
