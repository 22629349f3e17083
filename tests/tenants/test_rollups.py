"""Hours and days of the ledger: of the tenant's own clock, always the sums of its minutes, to the unit."""

from __future__ import annotations

import random
import threading
from collections import Counter
from datetime import UTC, date, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from django.db import connection
from django.utils import timezone
from hypothesis import given
from hypothesis import strategies as st

from serving.contract import UsageRow
from tenants.actions.tenants import update_tenant
from tenants.agreement import disagreements
from tenants.models import Tenant, UsageDay, UsageHour, UsageMinute, UsagePlatformDay, UsageWeek
from tenants.retention import prune_usage
from tenants.rollups import day_of, day_start, days_between, hour_of, hours_between, recut, recut_step
from tenants.scoping import all_tenants
from tenants.usage import record_usage
from tenants.usage_columns import COUNTS
from tests.tenants.conftest import SYSTEM, Cast, build_cast

BERLIN, KOLKATA, LORD_HOWE = (
    ZoneInfo(name) for name in ("Europe/Berlin", "Asia/Kolkata", "Australia/Lord_Howe")
)
PLACES = [
    ZoneInfo(name)
    for name in (
        "UTC",
        "Europe/Berlin",
        "America/New_York",
        "America/St_Johns",
        "Asia/Kolkata",
        "Asia/Kathmandu",
        "Australia/Lord_Howe",
        "America/Havana",  # its clock is set back from 1:00 to 0:00
        "Africa/Cairo",  # and this one forward at midnight
        "Pacific/Apia",
        "Atlantic/Azores",
    )
]
places = st.sampled_from(PLACES)
minutes = st.integers(1_600_000_000 // 60, 1_900_000_000 // 60).map(
    lambda n: datetime.fromtimestamp(n * 60, UTC)
)


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def row(team: Cast, moment: datetime, **values: Any) -> UsageRow:
    defaults = {
        "minute": int(moment.timestamp()),
        "tenant_id": team.tenant.pk,
        "key_id": "key_a",
        "model": "minilm",
        "version_id": "mv_1",
        "sla_class": "standard",
        "requests": 10,
        "failed": 1,
        "cancelled": 2,
        "rows": 20,
        "tokens": 300,
        "device_us": 4000,
        "cancelled_us": 40,
        "cost_micro": 5,
    }
    return UsageRow(**(defaults | values))


def days(team: Cast) -> dict[str, int]:
    """Requests by day of the first tenant."""
    found: Counter[str] = Counter()
    with all_tenants("a test"):
        for each in UsageDay.objects.filter(tenant_id=team.tenant.pk):
            found[each.day.isoformat()] += each.requests
    return dict(found)


def totals(model: Any) -> dict[tuple[Any, ...], list[int]]:
    """Sums per dimension."""
    found: dict[tuple[Any, ...], list[int]] = {}
    with all_tenants("a test"):
        for each in model.objects.all():
            key = (each.tenant_id, each.key_id, each.model, each.version_id, each.sla_class)
            held = found.setdefault(key, [0] * len(COUNTS))
            for place, name in enumerate(COUNTS):
                held[place] += getattr(each, name)
    return found


def assert_all_agree() -> None:
    assert totals(UsageMinute) == totals(UsageHour) == totals(UsageDay) == totals(UsageWeek) != {}
    assert not list(disagreements(timezone.now()))


# ---------------------------------------------------------------- the calendar


def test_a_day_of_the_clock_s_change_has_23_or_25_hours() -> None:
    for day, hours in ((date(2026, 3, 29), 23), (date(2026, 10, 25), 25), (date(2026, 7, 1), 24)):
        start, end = day_start(day, BERLIN), day_start(day + timedelta(days=1), BERLIN)
        assert end - start == timedelta(hours=hours)
        edges, begun = hours_between(start, end - timedelta(minutes=1), BERLIN)
        assert len(edges) == len(set(begun)) == hours


def test_hours_begin_when_the_clock_says_so() -> None:
    assert hour_of(at("2026-01-05T12:20"), KOLKATA) == at("2026-01-05T11:30")
    assert hour_of(at("2026-01-05T12:30"), KOLKATA) == at("2026-01-05T12:30")
    assert hour_of(at("2026-01-05T12:20"), BERLIN) == at("2026-01-05T12:00")


@given(moment=minutes, place=places)
def test_every_minute_lies_in_its_day_and_its_hour(moment: datetime, place: ZoneInfo) -> None:
    day = day_of(moment, place)
    assert day_start(day, place) <= moment < day_start(day + timedelta(days=1), place)
    assert timedelta() <= moment - hour_of(moment, place) < timedelta(hours=1)


@given(moment=minutes, hours=st.integers(0, 80), place=places)
def test_edges_cut_time_as_each_minute_says_itself(moment: datetime, hours: int, place: ZoneInfo) -> None:
    last = moment + timedelta(hours=hours)
    for edges, periods, of in (
        (*hours_between(moment, last, place), hour_of),
        (*days_between(day_of(moment, place), day_of(last, place), place), day_of),
    ):
        assert edges == sorted(edges)
        for probe in (moment, last, *(moment + timedelta(minutes=n) for n in range(0, hours * 60, 7))):
            bucket = sum(edge <= probe for edge in edges)
            assert periods[bucket - 1] == of(probe, place)


# ---------------------------------------------------------------- as usage comes in


def test_usage_lands_in_the_day_of_the_tenant_s_own_clock(team: Cast) -> None:
    update_tenant(by=SYSTEM, tenant=team.tenant, time_zone="Asia/Kolkata")
    recut_step(at("2026-01-01T00:00"))
    record_usage("gateway", [row(team, at("2026-01-05T18:29")), row(team, at("2026-01-05T18:30"))])
    assert days(team) == {"2026-01-05": 10, "2026-01-06": 10}
    with all_tenants("a test"):
        hours = set(UsageHour.objects.values_list("hour", flat=True))
    assert hours == {at("2026-01-05T17:30"), at("2026-01-05T18:30")}


def test_late_and_reordered_reports_are_in_the_day_they_belong_to(team: Cast) -> None:
    for text in ("2026-01-06T00:00", "2026-01-05T23:59", "2026-01-06T00:01", "2026-01-05T00:00"):
        record_usage("gateway", [row(team, at(text))])
    assert days(team) == {"2026-01-05": 20, "2026-01-06": 20}
    assert_all_agree()


def test_whatever_is_reported_every_sum_is_the_same(team: Cast) -> None:
    draw = random.Random(13)
    start = at("2026-03-28T00:00")
    update_tenant(by=SYSTEM, tenant=team.tenant, time_zone="Europe/Berlin")
    recut_step(start)
    for _ in range(10):
        rows = [
            row(
                team,
                start + timedelta(minutes=draw.randrange(4000)),
                tenant_id=draw.choice([team.tenant.pk, team.other.pk, "tnt_gone"]),
                key_id=draw.choice("ab"),
                model=draw.choice("mn"),
                sla_class=draw.choice(["batch", "standard"]),
                requests=draw.randrange(3, 99),
                device_us=draw.randrange(10**9),
                cost_micro=draw.randrange(10**6),
            )
            for _ in range(40)
        ]
        record_usage("gateway", rows)
    assert_all_agree()


# ---------------------------------------------------------------- when the zone changes


def test_a_change_of_zone_cuts_the_days_anew(team: Cast) -> None:
    moments = [at("2026-10-24T21:59"), at("2026-10-24T22:00"), at("2026-10-25T22:59"), at("2026-10-25T23:00")]
    record_usage("gateway", [row(team, moment) for moment in moments])
    assert days(team) == {"2026-10-24": 20, "2026-10-25": 20}
    update_tenant(by=SYSTEM, tenant=team.tenant, time_zone="Europe/Berlin")
    assert recut_step(moments[-1]) == [team.tenant.pk]
    # The 25th has 25 hours in Berlin.
    assert days(team) == {"2026-10-24": 10, "2026-10-25": 20, "2026-10-26": 10}
    assert_all_agree()
    assert recut_step(moments[-1]) == [], "once is enough"
    record_usage("gateway", [row(team, moments[0])])
    assert days(team)["2026-10-24"] == 20


@pytest.mark.parametrize("place", ["Australia/Lord_Howe", "Asia/Kathmandu", "America/Havana", "Pacific/Apia"])
def test_cutting_anew_gives_what_coming_in_would_have_given(team: Cast, place: str) -> None:
    draw = random.Random(place)
    start = at("2026-04-04T00:00")
    rows = [row(team, start + timedelta(minutes=draw.randrange(4000))) for _ in range(300)]
    update_tenant(by=SYSTEM, tenant=team.tenant, time_zone=place)
    record_usage("gateway", rows)
    recut(team.tenant.pk)
    assert_all_agree()
    cut = _periods(team.tenant)
    with all_tenants("a test"):
        for model in (UsageMinute, UsageHour, UsageDay, UsageWeek, UsagePlatformDay):
            model.objects.all().delete()  # type: ignore[attr-defined]
    record_usage("gateway", rows)
    assert _periods(team.tenant) == cut


@pytest.mark.parametrize(
    ("old", "new"), [("Pacific/Kiritimati", "Pacific/Pago_Pago"), ("Pacific/Pago_Pago", "Pacific/Kiritimati")]
)
def test_from_one_side_of_the_date_line_to_the_other_days_move_by_two(team: Cast, old: str, new: str) -> None:
    update_tenant(by=SYSTEM, tenant=team.tenant, time_zone=old)
    recut(team.tenant.pk)
    moments = [at("2026-01-12T10:00") + timedelta(hours=number) for number in range(60)]
    rows = [row(team, moment) for moment in moments]
    record_usage("gateway", [*rows, row(team, moments[0], tenant_id=team.other.pk)])
    update_tenant(by=SYSTEM, tenant=team.tenant, time_zone=new)
    recut(team.tenant.pk)
    assert_all_agree()


def test_what_others_were_charged_without_a_request_stays_in_the_platform_s_sums(team: Cast) -> None:
    nothing = dict.fromkeys(COUNTS, 0)
    charge = row(team, at("2026-01-11T09:00"), tenant_id=team.other.pk, **(nothing | {"cost_micro": 7}))
    record_usage("gateway", [row(team, at("2026-01-11T09:00"), model="m"), charge])
    update_tenant(by=SYSTEM, tenant=team.tenant, time_zone="Europe/Berlin")
    recut(team.tenant.pk)
    assert_all_agree()


def _periods(tenant: Tenant) -> tuple[dict[Any, int], dict[Any, int]]:
    with all_tenants("a test"):
        hours = dict(UsageHour.objects.filter(tenant_id=tenant.pk).values_list("hour", "requests"))
        days = dict(UsageDay.objects.filter(tenant_id=tenant.pk).values_list("day", "requests"))
    return hours, days


def test_days_whose_minutes_are_gone_stay_as_they_were(team: Cast, settings: Any) -> None:
    settings.USAGE_MINUTES_KEPT_DAYS, settings.USAGE_HOURS_KEPT_DAYS = 2, 400
    for number in range(1, 11):
        record_usage("gateway", [row(team, at(f"2026-01-{number:02}T23:30"), requests=10 + number)])
    before = days(team)
    assert prune_usage(at("2026-01-10T12:00"))["usage_minutes"] == 7
    record_usage("gateway", [row(team, at("2026-01-03T23:00"))])  # so late that its minutes were gone
    update_tenant(by=SYSTEM, tenant=team.tenant, time_zone="Europe/Berlin")
    recut(team.tenant.pk)
    after = days(team)
    assert {day: after[day] for day in ("2026-01-01", "2026-01-02")} == {"2026-01-01": 11, "2026-01-02": 12}
    assert after["2026-01-03"] == 13 + 10
    assert "2026-01-08" not in after and after["2026-01-11"] == 20
    assert sum(after.values()) == sum(before.values()) + 10
    assert not [each for each in disagreements(at("2026-01-12T00:00")) if each.period == "day"], (
        "weeks and the platform's days follow"
    )


def test_what_is_pruned_is_still_in_the_days(team: Cast, settings: Any) -> None:
    settings.USAGE_MINUTES_KEPT_DAYS, settings.USAGE_HOURS_KEPT_DAYS = 2, 4
    record_usage("gateway", [row(team, at(f"2026-01-{number:02}T12:00")) for number in range(1, 11)])
    assert prune_usage(at("2026-01-10T12:00")) == {"usage_minutes": 7, "usage_hours": 5}
    assert sum(days(team).values()) == 100


@pytest.mark.django_db(transaction=True)
def test_a_change_of_zone_amid_reports_loses_and_doubles_nothing() -> None:
    team = build_cast()
    start = threading.Barrier(3)
    places = ["Asia/Kolkata", "America/New_York", "UTC", "Europe/Berlin"]

    def report(process: int) -> None:
        start.wait(timeout=10)
        for number in range(20):
            moment = at("2026-01-05T00:00") + timedelta(hours=number * 3 + process)
            record_usage(f"g{process}", [row(team, moment), row(team, moment, key_id="key_b")])
        connection.close()

    def move() -> None:
        start.wait(timeout=10)
        for place in places:
            update_tenant(by=SYSTEM, tenant=team.tenant, time_zone=place)
            recut(team.tenant.pk)
        connection.close()

    threads = [threading.Thread(target=report, args=(n,)) for n in range(2)] + [threading.Thread(target=move)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert_all_agree()
    assert sum(days(team).values()) == 800
    with all_tenants("a test"):
        for each in UsageMinute.objects.filter(key_id="key_a"):
            day = day_of(each.minute, BERLIN)
            assert UsageDay.objects.filter(day=day, key_id="key_a").exists()
