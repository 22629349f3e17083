"""What stands ready unused: counted by the hour, borne by whom the model's policy says, exact to the unit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db.models import Sum
from hypothesis import given
from hypothesis import strategies as st

from serving.contract import UsageRow
from serving.control.catalog.actions import update_model
from serving.control.catalog.models import Model, ModelGrant, Version
from serving.control.fleet.models import Deployment, Host, Replica
from serving.control.pricing import idle, ready
from serving.control.pricing.models import Price, ReadyHour
from serving.control.quotas.actions import create_quota
from serving.prices import PARTS_PER_MICRO, PriceLine, Rates
from tenants.agreement import disagreements
from tenants.errors import Invalid
from tenants.ledger import Asked, Span, sums_by, total
from tenants.models import AuditEvent, Tenant, UsageMinute
from tenants.scoping import all_tenants
from tenants.usage import record_usage
from tests.tenants.conftest import SYSTEM, Cast, team

__all__ = ["team"]
HOUR = datetime(2026, 3, 3, 10, tzinfo=UTC)
LATER = HOUR + timedelta(hours=1, minutes=20)
MINUTE = timedelta(minutes=1)
SECOND_US = 1_000_000
HOUR_US = 3600 * SECOND_US
PRICE = 3_600_000
"""Of a device-hour: a second costs 1,000 micro-units."""


@pytest.fixture
def cast(team: Cast) -> Iterator[Cast]:
    with all_tenants("a test"):
        yield team


@pytest.fixture
def replica(cast: Cast, make_version: Callable[..., Version], make_host: Callable[..., Host]) -> Replica:
    """Ready since the hour began, at `PRICE`."""
    version = make_version(price_micro_per_device_hour=PRICE)
    deployment = Deployment.objects.create(model=version.model, version=version)
    return Replica.objects.create(
        deployment=deployment, version=version, host=make_host(), slot=1, device="cpu", address="a",
        state="ready", ready_at=HOUR,
    )  # fmt: skip


def bear(replica: Replica, policy: str) -> None:
    Model.objects.filter(pk=replica.deployment.model_id).update(idle_policy=policy)


def use(tenant: Tenant, replica: Replica, seconds: int, key_id: str = "key_a", **values: Any) -> None:
    minute = int((HOUR + 7 * MINUTE).timestamp())
    row = UsageRow(
        minute=minute, tenant_id=tenant.pk, key_id=key_id, model="minilm", version_id=replica.version_id,
        sla_class="batch", requests=1, device_us=seconds * SECOND_US, **values,
    )  # fmt: skip
    record_usage("gateway-1", [row])


def borne() -> dict[tuple[str, str], tuple[int, int]]:
    """By tenant and key: device time in microseconds, and cost."""
    rows = UsageMinute.objects.filter(sla_class="idle")
    assert not any(row.requests or row.rows or row.tokens for row in rows)
    return {(row.tenant_id, row.key_id): (row.device_us, row.cost_micro) for row in rows}


def other_tenant(cast: Cast) -> Tenant:
    return Tenant.objects.create(slug="other", name="Other")


# ---------------------------------------------------------------- pure


@given(st.integers(0, 10**18), st.lists(st.integers(0, 10**12), max_size=30))
def test_parts_are_the_total_and_each_within_one_of_its_share(total: int, weights: list[int]) -> None:
    parts = idle.spread(total, weights)
    whole = sum(weights)
    assert sum(parts) == (total if whole else 0)
    for part, weight in zip(parts, weights, strict=True):
        assert abs(part * whole - total * weight) < max(1, whole)
        assert part == 0 or weight > 0


def test_idle_time_costs_the_mean_price_of_what_was_ready() -> None:
    half_dear = 1800 * SECOND_US * PRICE  # the other half hour cost nothing
    assert idle.idle_of(HOUR_US, half_dear, HOUR_US // 2) == (HOUR_US // 2, 900_000)
    assert idle.idle_of(HOUR_US, half_dear, 2 * HOUR_US) == (0, 0)
    assert idle.idle_of(0, 0, 5) == (0, 0)


def test_a_span_is_cut_at_hours_and_where_the_price_changes() -> None:
    change = (HOUR + 5 * MINUTE).timestamp()
    line = PriceLine([(float("-inf"), Rates(1)), (change, Rates(2))])
    pieces = list(ready.priced(HOUR - MINUTE, HOUR + 6 * MINUTE, line))
    assert pieces == [
        (HOUR - MINUTE, HOUR, 1),
        (HOUR, HOUR + 5 * MINUTE, 1),
        (HOUR + 5 * MINUTE, HOUR + 6 * MINUTE, 2),
    ]


# ---------------------------------------------------------------- ready time


@pytest.mark.django_db
def test_time_between_two_looks_is_counted_once(replica: Replica) -> None:
    for minutes in (1, 2, 2, 70):
        ready.count(HOUR + minutes * MINUTE)
    hours = {row.hour: row for row in ReadyHour.objects.all()}
    assert {hour: row.ready_us for hour, row in hours.items()} == {
        HOUR: HOUR_US,
        HOUR + timedelta(hours=1): 600 * SECOND_US,
    }
    assert hours[HOUR].ready_parts == HOUR_US * PRICE


@pytest.mark.django_db
def test_what_was_not_ready_at_both_looks_is_nobodys(replica: Replica) -> None:
    ready.count(HOUR + MINUTE)
    Replica.objects.update(state="failed")
    ready.count(HOUR + 2 * MINUTE)
    Replica.objects.update(state="ready", ready_at=HOUR + 5 * MINUTE)
    ready.count(HOUR + 6 * MINUTE)
    assert ReadyHour.objects.get().ready_us == 120 * SECOND_US


@pytest.mark.django_db
def test_the_books_price_of_the_moment_is_counted(replica: Replica) -> None:
    Version.objects.update(price_micro_per_device_hour=0)
    Price.objects.create(device_class="cpu", micro_per_device_hour=7, effective_from=HOUR + 30 * MINUTE)
    ready.count(HOUR + 60 * MINUTE)
    assert ReadyHour.objects.get().ready_parts == HOUR_US // 2 * 7


@pytest.mark.django_db
def test_a_controller_that_was_away_for_long_charges_a_day_at_most(replica: Replica) -> None:
    ready.count(HOUR + timedelta(days=9))
    counted = ReadyHour.objects.aggregate(sum=Sum("ready_us"))["sum"]
    assert counted == 24 * HOUR_US


# ---------------------------------------------------------------- who bears it


@pytest.mark.django_db
@pytest.mark.parametrize("policy", ["none", "by_use", "by_guarantee"])
def test_without_a_policy_or_anybody_to_bear_it_idle_time_is_free(replica: Replica, policy: str) -> None:
    bear(replica, policy)
    ready.step(HOUR + timedelta(hours=1))
    ready.step(LATER)
    assert borne() == {}
    hour = ReadyHour.objects.get(hour=HOUR)
    assert hour.settled_at == LATER and hour.charged_us == 0


@pytest.mark.django_db
def test_by_use_those_that_used_it_bear_the_rest_by_device_time_and_key(cast: Cast, replica: Replica) -> None:
    bear(replica, "by_use")
    other = other_tenant(cast)
    use(cast.tenant, replica, 100, cost_micro=100_000)
    use(cast.tenant, replica, 200, key_id="key_b")
    use(other, replica, 300)
    ready.step(HOUR + timedelta(hours=1))
    ready.step(LATER)
    idle_s = 3600 - 600
    assert borne() == {
        (cast.tenant.pk, "key_a"): (idle_s // 6 * SECOND_US, idle_s * 1000 // 6),
        (cast.tenant.pk, "key_b"): (idle_s // 3 * SECOND_US, idle_s * 1000 // 3),
        (other.pk, "key_a"): (idle_s // 2 * SECOND_US, idle_s * 1000 // 2),
    }


@pytest.mark.django_db
def test_by_grant_all_that_may_use_it_bear_it_evenly_and_nothing_is_lost(
    cast: Cast, replica: Replica
) -> None:
    bear(replica, "by_grant")
    Model.objects.update(is_public=False)
    Version.objects.update(price_micro_per_device_hour=10)
    tenants = [cast.tenant, other_tenant(cast), Tenant.objects.create(slug="third", name="Third")]
    Tenant.objects.create(slug="stranger", name="Stranger")
    ModelGrant.objects.bulk_create([ModelGrant(model=replica.deployment.model, tenant=t) for t in tenants])
    ready.step(HOUR + timedelta(hours=1))
    ready.step(LATER)
    shares = borne()
    assert set(shares) == {(tenant.pk, "") for tenant in tenants}
    assert sum(us for us, _ in shares.values()) == HOUR_US
    assert sorted(cost for _, cost in shares.values()) == [3, 3, 4]


@pytest.mark.django_db
def test_by_guarantee_those_that_hold_capacity_bear_it(cast: Cast, replica: Replica) -> None:
    bear(replica, "by_guarantee")
    update_model(by=SYSTEM, model=replica.deployment.model, pool_requests_per_s=100)
    other = other_tenant(cast)
    for tenant, guaranteed in ((cast.tenant, 30), (other, 10)):
        create_quota(
            by=SYSTEM, tenant=tenant, model=replica.deployment.model,
            resource="requests", window="second", limit=50, guaranteed=guaranteed,
        )  # fmt: skip
    ready.step(HOUR + timedelta(hours=1))
    ready.step(LATER)
    assert borne() == {
        (cast.tenant.pk, ""): (HOUR_US * 3 // 4, 2_700_000),
        (other.pk, ""): (HOUR_US // 4, 900_000),
    }


@pytest.mark.django_db
def test_an_hour_is_spread_once_and_every_sum_holds_it(cast: Cast, replica: Replica) -> None:
    bear(replica, "by_use")
    use(cast.tenant, replica, 600, cost_micro=600_000)
    ready.step(HOUR + timedelta(hours=1))
    for minutes in (0, 1, 70):
        ready.step(LATER + minutes * MINUTE)
    asked = Asked(Span(HOUR.date(), HOUR.date()))
    assert total(asked)["cost_micro"] == 3_600_000
    assert {row["sla_class"]: row["device_us"] for row in sums_by(asked, ("class",))} == {
        "batch": 600 * SECOND_US,
        "idle": 3000 * SECOND_US,
    }
    assert list(disagreements(LATER)) == []


@pytest.mark.django_db
def test_a_policy_binds_from_the_next_hour(cast: Cast, replica: Replica) -> None:
    use(cast.tenant, replica, 1)
    ready.count(HOUR + MINUTE)
    bear(replica, "by_use")
    ready.count(HOUR + timedelta(hours=1, minutes=1))
    assert dict(ReadyHour.objects.values_list("hour", "policy")) == {
        HOUR: "none",
        HOUR + timedelta(hours=1): "by_use",
    }


@pytest.mark.django_db
def test_an_hour_waits_for_its_usage_and_is_forgotten_in_the_end(replica: Replica) -> None:
    ready.step(HOUR + timedelta(hours=1, minutes=14))
    assert ReadyHour.objects.get(hour=HOUR).settled_at is None
    ready.step(LATER)
    assert ready.prune(LATER) == 0
    assert ready.prune(LATER + timedelta(days=36)) == 1


@pytest.mark.django_db
def test_the_policy_is_one_of_four_and_a_change_is_recorded(replica: Replica) -> None:
    model = replica.deployment.model
    with pytest.raises(Invalid) as refused:
        update_model(by=SYSTEM, model=model, idle_policy="by_lot")
    assert "idle_policy" in refused.value.errors
    update_model(by=SYSTEM, model=model, idle_policy="by_use")
    event = AuditEvent.objects.get(action="model.updated")
    assert (event.before, event.after) == ({"idle_policy": "none"}, {"idle_policy": "by_use"})


def test_a_millionth_is_whole_parts() -> None:
    assert HOUR_US * PRICE // PARTS_PER_MICRO == PRICE
