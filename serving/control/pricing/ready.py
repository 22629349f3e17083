"""How long replicas stood ready: per hour and version, with what that time would cost."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal

from django.db import connection, transaction
from django.db.models import Q

from serving.control.fleet.models import Replica
from serving.control.pricing import idle
from serving.control.pricing.classes import classes_of
from serving.control.pricing.current import price_entry
from serving.control.pricing.models import Price, ReadyHour
from serving.prices import PriceBook, PriceLine

AT_MOST = timedelta(hours=24)
"""Between two looks: what a controller missed that was away for longer, nobody is charged for."""
KEPT = timedelta(days=35)
"""Of hours that were spread."""
_US = timedelta(microseconds=1)
_ADD = """
    INSERT INTO control_readyhour AS held (hour, version_id, model, policy, ready_us, ready_parts, idle_us, charged_us)
    VALUES (%s, %s, %s, %s, %s, %s, 0, 0)
    ON CONFLICT (hour, version_id) DO UPDATE
    SET ready_us = held.ready_us + excluded.ready_us, ready_parts = held.ready_parts + excluded.ready_parts
    WHERE held.settled_at IS NULL
"""
"""The policy is the one with which the hour began: it is in the row already."""
Hours = dict[tuple[datetime, str, str, str], tuple[int, int]]
"""Hour, version, model and policy → microseconds, and their cost in parts."""


def step(now: datetime) -> None:
    """Count what stood ready since the last look; spread the hours that are over."""
    count(now)
    idle.settle(now)


@transaction.atomic
def count(now: datetime) -> None:
    """Whatever was not ready at both looks is left out: the seconds before a crash are nobody's."""
    looked_at = Replica.objects.filter(Q(state="ready") | Q(ready_counted_at__isnull=False)).order_by("pk")
    rows = list(
        looked_at.select_for_update(of=("self",)).select_related("version", "host", "deployment__model")
    )
    if not rows:
        return
    book, classes, hours = PriceBook(map(price_entry, Price.objects.all())), classes_of(rows), Hours()
    for row in rows:
        line = book.line(row.deployment.model.name, classes[row.pk], row.version.price_micro_per_device_hour)
        _count(row, line, now, hours)
    Replica.objects.bulk_update(rows, ["ready_counted_at"], batch_size=1000)
    with connection.cursor() as cursor:
        cursor.executemany(_ADD, [(*key, us, Decimal(parts)) for key, (us, parts) in sorted(hours.items())])


def _count(row: Replica, line: PriceLine, now: datetime, hours: Hours) -> None:
    if row.state != "ready" or row.ready_at is None:
        row.ready_counted_at = None
        return
    since = max(row.ready_counted_at or row.ready_at, row.ready_at, now - AT_MOST)
    model = row.deployment.model
    for begin, end, per_hour in priced(since, now, line):
        key = (hour_of(begin), row.version_id, model.name, model.idle_policy)
        us, parts = hours.get(key, (0, 0))
        took_us = (end - begin) // _US
        hours[key] = us + took_us, parts + took_us * per_hour
    row.ready_counted_at = max(since, now)


def priced(since: datetime, now: datetime, line: PriceLine) -> Iterator[tuple[datetime, datetime, int]]:
    """A span in pieces of one hour and one price: from, to, micro-units per device-hour."""
    while since < now:
        rates = line.at(since.timestamp())
        end = min(now, hour_of(since) + idle.HOUR)
        if line.until < end.timestamp():
            end = max(since + _US, datetime.fromtimestamp(line.until, UTC))
        yield since, end, rates.micro_per_device_hour
        since = end


def hour_of(moment: datetime) -> datetime:
    return moment.astimezone(UTC).replace(minute=0, second=0, microsecond=0)


def prune(now: datetime) -> int:
    """Forget hours that were spread long ago; returns how many."""
    return ReadyHour.objects.filter(settled_at__isnull=False, hour__lt=now - KEPT).delete()[0]
