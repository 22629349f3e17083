"""Whichever sums answer a question about usage, the answer is what the days say, to the unit."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import date, timedelta
from itertools import combinations
from typing import Any

import pytest
from django.db.models import Sum

from tenants.ledger import GROUPS, Asked, Span, sums_by, total
from tenants.models import UsageDay, UsagePlatformDay
from tenants.scoping import all_tenants, tenant_scope
from tenants.usage import record_usage
from tenants.usage_columns import COUNTS
from tests.tenants.conftest import Cast
from tests.tenants.test_rollups import at, row

START = date(2026, 2, 2)
SPANS = [
    Span(START + timedelta(days=first), START + timedelta(days=first + length - 1))
    for first, length in (
        (0, 1),
        (0, 7),
        (1, 7),
        (3, 11),
        (6, 8),
        (1, 12),
        (1, 13),
        (0, 40),
        (5, 30),
        (30, 200),
    )
]


@pytest.fixture
def used(team: Cast) -> Iterator[Cast]:
    draw = random.Random(7)
    rows = [
        row(
            team,
            at(f"{START}T12:00") + timedelta(days=draw.randrange(40)),
            tenant_id=draw.choice([team.tenant.pk, team.other.pk]),
            key_id=draw.choice("abc"),
            model=draw.choice("mn"),
            version_id=draw.choice("vw"),
            sla_class=draw.choice(["batch", "standard"]),
            device_us=draw.randrange(10**9),
            cost_micro=draw.randrange(10**6),
        )
        for _ in range(300)
    ]
    record_usage("gateway", rows)
    with all_tenants("a test"):
        yield team


def said_by_days(asked: Asked, groups: tuple[str, ...]) -> dict[tuple[Any, ...], tuple[int, ...]]:
    columns = [GROUPS[group][0] for group in groups]
    sums = {f"sum_{name}": Sum(name) for name in COUNTS}
    return {
        tuple(each[column] for column in columns): tuple(each[name] for name in sums)
        for each in asked.days().values(*columns).annotate(**sums)
    }


def answered(asked: Asked, groups: tuple[str, ...]) -> dict[tuple[Any, ...], tuple[int, ...]]:
    columns = [GROUPS[group][0] for group in groups]
    return {
        tuple(each[column] for column in columns): tuple(each[name] for name in COUNTS)
        for each in sums_by(asked, groups)
    }


def test_every_question_is_answered_as_the_days_answer_it(used: Cast) -> None:
    wanted: list[dict[str, str]] = [{}, {"model": "m"}, {"key": "a", "class": "batch"}]
    groups = [pair for size in (1, 2) for pair in combinations(GROUPS, size)]
    draw = random.Random(3)
    for span in SPANS:
        for ids in (None, [used.tenant.pk], [], [used.tenant.pk, used.other.pk]):
            asked = Asked(span, ids, draw.choice(wanted))
            for group in draw.sample(groups, 5):
                assert answered(asked, group) == said_by_days(asked, group), (asked, group)


def test_a_narrower_scope_never_reads_the_sums_of_all(used: Cast) -> None:
    asked = Asked(Span(START, START + timedelta(days=60)))
    with tenant_scope(used.tenant.pk):
        assert not UsagePlatformDay.objects.exists()
        own = total(asked)
        assert own["requests"] == sum(UsageDay.objects.values_list("requests", flat=True))
    assert total(asked)["requests"] == 3000 > own["requests"]


def test_the_platform_s_days_are_read_where_nobody_is_told_apart(used: Cast) -> None:
    asked = Asked(Span(START, START + timedelta(days=60)))
    assert [rows.model for rows in asked.rows(["day", "model"])] == [UsagePlatformDay]
    assert len(asked.rows(["key_id"])) == 2, "whole weeks, and the days around them"
