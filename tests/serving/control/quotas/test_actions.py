"""Who may set which quota, what is published, and what the trail says of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from serving.contract import QuotaEntry, decode_config
from serving.control import entries, publish
from serving.control.catalog.actions import create_model, update_model
from serving.control.catalog.models import Model
from serving.control.quotas.access import access_quota
from serving.control.quotas.actions import create_quota, delete_quota, update_quota
from serving.control.quotas.models import Quota
from serving.control.seam_tables import ConfigEntry
from tenants.actions.keys import create_key, roll_key
from tenants.actors import Actor
from tenants.errors import Conflict, Invalid, NotAllowed, NotFound
from tenants.models import ApiKey, AuditEvent
from tenants.scoping import all_tenants
from tests.tenants.conftest import SYSTEM, Cast, team

__all__ = ["team"]


@pytest.fixture
def cast(team: Cast) -> Iterator[Cast]:
    with all_tenants("a test"):
        yield team


@pytest.fixture
def key(cast: Cast) -> ApiKey:
    return create_key(by=SYSTEM, tenant=cast.tenant, name="nightly")[0]


def a_day(cast: Cast, by: Actor = SYSTEM, **fields: Any) -> Quota:
    given = {"resource": "requests", "window": "day", "limit": 100} | fields
    return create_quota(by=by, tenant=cast.tenant, **given)


def published(quota: Quota) -> QuotaEntry | None:
    row = ConfigEntry.objects.filter(kind="quota", key=quota.pk, deleted=False).first()
    if row is None:
        return None
    body = decode_config(json.dumps(row.body))
    assert isinstance(body, QuotaEntry)
    return body


def test_a_quota_is_published_in_the_transaction_that_sets_it(cast: Cast) -> None:
    quota = a_day(cast, soft_percent=80)
    assert published(quota) == quota.entry()
    assert quota.entry().limit == 100


def test_a_change_is_published_and_audited_by_what_differs(cast: Cast) -> None:
    quota = a_day(cast)
    update_quota(by=SYSTEM, quota=quota, limit=200, observe_only=False)
    found = published(quota)
    assert found is not None and found.limit == 200
    event = AuditEvent.objects.filter(action="quota.updated").get()
    assert (event.before, event.after) == ({"limit": 100}, {"limit": 200})


def test_a_lifted_quota_is_gone_for_gateways_and_stays_in_the_trail(cast: Cast) -> None:
    quota = a_day(cast)
    delete_quota(by=SYSTEM, quota=quota)
    assert published(quota) is None
    assert AuditEvent.objects.filter(action="quota.deleted", target_id=quota.pk).exists()


def test_reconciliation_publishes_what_was_changed_past_the_actions(cast: Cast) -> None:
    quota = a_day(cast)
    Quota.objects.filter(pk=quota.pk).update(limit=7)
    publish.everything()
    found = published(quota)
    assert found is not None and found.limit == 7


def test_only_operators_set_quotas_of_a_tenant(cast: Cast) -> None:
    with pytest.raises(NotAllowed):
        a_day(cast, by=cast.actor("owner"))


def test_a_tenants_admins_limit_their_own_keys(cast: Cast, key: ApiKey) -> None:
    quota = a_day(cast, by=cast.actor("admin"), key=key)
    assert update_quota(by=cast.actor("admin"), quota=quota, limit=50).limit == 50
    delete_quota(by=cast.actor("admin"), quota=quota)


def test_an_operators_limit_on_a_key_is_not_the_tenants_to_loosen(cast: Cast, key: ApiKey) -> None:
    quota = a_day(cast, key=key)
    for act in (
        lambda: update_quota(by=cast.actor("owner"), quota=quota, limit=1000),
        lambda: delete_quota(by=cast.actor("owner"), quota=quota),
    ):
        with pytest.raises(NotAllowed):
            act()


def test_a_tenants_own_limit_on_a_key_is_not_above_the_tenants(cast: Cast, key: ApiKey) -> None:
    a_day(cast, limit=100)
    with pytest.raises(Invalid) as refused:
        a_day(cast, by=cast.actor("admin"), key=key, limit=101)
    assert "limit" in refused.value.errors


def test_a_key_of_another_tenant_cannot_be_limited(cast: Cast) -> None:
    other = create_key(by=SYSTEM, tenant=cast.other, name="theirs")[0]
    with pytest.raises(Invalid) as refused:
        a_day(cast, key=other)
    assert "key" in refused.value.errors


def test_a_target_has_one_quota_of_each_kind(cast: Cast) -> None:
    a_day(cast)
    with pytest.raises(Invalid):
        a_day(cast)


@pytest.mark.parametrize(
    ("fields", "wrong"),
    [
        ({"resource": "device_us", "window": "minute"}, "window"),
        ({"resource": "concurrency", "window": "day"}, "window"),
        ({"resource": "requests", "window": ""}, "window"),
        ({"burst": 5}, "burst"),
        ({"resource": "tokens", "window": "minute", "soft_percent": 50}, "soft_percent"),
        ({"limit": 0}, "limit"),
        ({"limit": 1 << 53}, "limit"),
        ({"soft_percent": 101}, "soft_percent"),
    ],
)
def test_what_cannot_be_counted_is_refused_at_its_field(
    cast: Cast, fields: dict[str, Any], wrong: str
) -> None:
    with pytest.raises(Invalid) as refused:
        a_day(cast, **fields)
    assert wrong in refused.value.errors


def test_a_change_of_something_seen_otherwise_is_refused(cast: Cast) -> None:
    quota = a_day(cast)
    with pytest.raises(Conflict):
        update_quota(by=SYSTEM, quota=quota, limit=200, seen="what somebody saw before")


def test_a_stranger_cannot_tell_a_quota_from_none(cast: Cast) -> None:
    quota = a_day(cast)
    for quota_id in (quota.pk, "quo_none"):
        with pytest.raises(NotFound):
            access_quota(cast.actor("stranger"), quota_id)
    assert access_quota(cast.actor("viewer"), quota.pk) == quota


def test_a_key_that_was_rolled_keeps_its_limits_and_shares_them_with_the_old_one(
    cast: Cast, key: ApiKey
) -> None:
    quota = a_day(cast, key=key)
    second, _ = roll_key(by=SYSTEM, key=key, overlap=timedelta(days=1))
    third, _ = roll_key(by=SYSTEM, key=second, overlap=timedelta(days=1))
    later = a_day(cast, key=third, resource="tokens")
    for found in (published(quota), published(later)):
        assert found is not None and found.key_id == key.pk
    first_ids = [entry.first_id for entry in map(entries.key, (key.pk, second.pk, third.pk)) if entry]
    assert first_ids == [None, key.pk, key.pk]


# ---------------------------------------------------------------- guarantees


def shared(**pools: int) -> Model:
    model = create_model(by=SYSTEM, name="minilm")
    return update_model(by=SYSTEM, model=model, **pools)


def test_a_guarantee_is_a_part_of_what_a_models_tenants_share(cast: Cast) -> None:
    model = shared(pool_requests_per_s=50)
    fields = {"resource": "requests", "window": "second", "limit": 100, "model": model}
    quota = a_day(cast, **fields, guaranteed=20)
    known = published(quota)
    assert known is not None and known.guaranteed == 20
    with pytest.raises(Invalid) as refused:
        create_quota(by=SYSTEM, tenant=cast.other, **fields, guaranteed=31)
    assert refused.value.errors == {
        "guaranteed": "Of the model's pool of 50 only 30 are not guaranteed to others."
    }
    create_quota(by=SYSTEM, tenant=cast.other, **fields, guaranteed=30)
    update_quota(by=SYSTEM, quota=quota, guaranteed=20)
    with pytest.raises(Invalid, match="guaranteed"):
        update_quota(by=SYSTEM, quota=quota, guaranteed=21)


def test_a_pool_is_not_made_smaller_than_what_is_guaranteed_of_it(cast: Cast) -> None:
    model = shared(pool_concurrency=10)
    a_day(cast, resource="concurrency", window="", limit=8, model=model, guaranteed=6)
    for smaller in (5, None):
        with pytest.raises(Invalid) as refused:
            update_model(by=SYSTEM, model=model, pool_concurrency=smaller)
        assert refused.value.errors == {"pool_concurrency": "Tenants are guaranteed 6 of it."}
    assert update_model(by=SYSTEM, model=model, pool_concurrency=6).pool_concurrency == 6


@pytest.mark.parametrize(
    "fields",
    [
        {"window": "second", "limit": 10, "guaranteed": 11},
        {"window": "day", "limit": 10, "guaranteed": 5},
        {"window": "second", "limit": 10, "guaranteed": 5, "model": None},
        {"window": "", "resource": "concurrency", "limit": 10, "guaranteed": 5},
    ],
    ids=["above the limit", "of a budget", "of no model", "of no pool"],
)
def test_what_nobody_can_guarantee_is_refused_at_its_field(cast: Cast, fields: dict[str, Any]) -> None:
    model = shared(pool_requests_per_s=50)
    with pytest.raises(Invalid) as refused:
        a_day(cast, **({"resource": "requests", "model": model} | fields))
    assert list(refused.value.errors) == ["guaranteed"]


def test_an_owner_guarantees_themselves_nothing(cast: Cast) -> None:
    model = shared(pool_requests_per_s=50)
    with pytest.raises(NotAllowed):
        a_day(
            cast,
            cast.actor("owner"),
            resource="requests",
            window="second",
            limit=10,
            model=model,
            guaranteed=5,
        )


def test_a_share_of_the_queue_has_no_window_and_is_never_only_counted(cast: Cast, key: ApiKey) -> None:
    quota = a_day(cast, resource="queue", window="", key=key, limit=20)
    assert quota.name == "key-waiting-requests"
    assert published(quota) == quota.entry()
    with pytest.raises(Invalid):
        a_day(cast, resource="queue", window="day")
    with pytest.raises(Invalid):
        a_day(cast, resource="queue", window="", observe_only=True)
