"""A key rolls without a gap: old and new work side by side until the overlap has passed."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from tenants.actions.keys import create_key, revoke_key, roll_key
from tenants.ending import ending_keys
from tenants.errors import Conflict, Invalid, NotAllowed
from tenants.models import ApiKey, AuditEvent
from tenants.scoping import all_tenants, tenant_scope
from tests.tenants.conftest import SYSTEM, Cast

DAY = timedelta(days=1)


def _key(team: Cast, **values: Any) -> ApiKey:
    given = {"name": "ci", "allowed_models": ["m"], "allowed_networks": ["192.0.2.0/24"]}
    return create_key(by=team.actor("owner"), tenant=team.tenant, **given | values)[0]


def _again(key: ApiKey) -> ApiKey:
    with all_tenants("a test"):
        return ApiKey.objects.get(pk=key.pk)


def test_the_new_key_is_like_the_old_one_and_both_work_until_the_overlap_ends(
    team: Cast, announced: list[tuple[str, str]]
) -> None:
    old = _key(team)
    fresh, token = roll_key(by=team.actor("developer"), key=old, overlap=DAY)
    before = _again(old)
    assert (before.state, before.replaced_by_id) == ("active", fresh.pk)
    assert before.expires_at is not None
    assert timedelta(hours=23) < before.expires_at - timezone.now() <= DAY
    assert (fresh.name, fresh.scopes, fresh.allowed_models) == ("ci", ["infer"], ["m"])
    assert (fresh.allowed_networks, fresh.expires_at, fresh.state) == (["192.0.2.0/24"], None, "active")
    assert fresh.creator_id == team.users["developer"].pk
    assert token.startswith(f"{fresh.prefix}_") and fresh.pk != old.pk
    assert announced[-2:] == [("key", old.pk), ("key", fresh.pk)]


def test_rolling_is_told_of_both_keys(team: Cast) -> None:
    old = _key(team)
    fresh, token = roll_key(by=SYSTEM, key=old, overlap=DAY)
    with all_tenants("a test"):
        made, rolled = AuditEvent.objects.order_by("-seq")[:2]
    assert (rolled.action, rolled.target_id, rolled.after["replaced_by"]) == ("key.rolled", old.pk, fresh.pk)
    assert (made.action, made.target_id, made.after["replaces"]) == ("key.created", fresh.pk, old.pk)
    assert token.split("_", 2)[2] not in f"{made.after}{rolled.after}"


def test_a_key_that_ends_sooner_keeps_its_end(team: Cast) -> None:
    end = timezone.now() + timedelta(hours=1)
    old = _key(team, expires_at=end)
    roll_key(by=SYSTEM, key=old, overlap=DAY)
    assert _again(old).expires_at == end


def test_without_an_overlap_the_old_key_ends_at_once(team: Cast) -> None:
    old = _key(team)
    roll_key(by=SYSTEM, key=old, overlap=timedelta(0))
    assert _again(old).state == "expired"


def test_a_key_rolls_once_and_the_new_one_rolls_on(team: Cast) -> None:
    old = _key(team)
    fresh, _ = roll_key(by=SYSTEM, key=old, overlap=DAY)
    with pytest.raises(Conflict, match="already"):
        roll_key(by=SYSTEM, key=old, overlap=DAY)
    assert roll_key(by=SYSTEM, key=fresh, overlap=DAY)[0].name == "ci"


def test_a_key_that_no_longer_works_does_not_roll(team: Cast) -> None:
    old = _key(team)
    revoke_key(by=SYSTEM, key=old)
    with pytest.raises(Conflict, match="revoked"):
        roll_key(by=SYSTEM, key=old, overlap=DAY)


@pytest.mark.parametrize("overlap", [-DAY, 91 * DAY])
def test_an_overlap_is_bounded(team: Cast, overlap: timedelta) -> None:
    with pytest.raises(Invalid) as caught:
        roll_key(by=SYSTEM, key=_key(team), overlap=overlap)
    assert set(caught.value.errors) == {"overlap"}


def test_nobody_rolls_a_key_above_their_own_rights(team: Cast) -> None:
    old = _key(team, scopes=["audit:export"])
    with pytest.raises(Invalid):
        roll_key(by=team.actor("developer"), key=old, overlap=DAY)
    with pytest.raises(NotAllowed):
        roll_key(by=team.actor("viewer"), key=old, overlap=DAY)


@pytest.mark.parametrize(
    "networks",
    [[], ["192.0.2.1/24"], ["x"], ["10.0.0.0/33"], ["fe80::%1/64"], [f"10.0.{n}.0/24" for n in range(51)]],
)
def test_what_is_no_network_is_refused_at_its_field(team: Cast, networks: list[str]) -> None:
    with pytest.raises(Invalid) as caught:
        _key(team, allowed_networks=networks)
    assert set(caught.value.errors) == {"allowed_networks"}


@pytest.mark.parametrize(
    ("address", "may"),
    [("192.0.2.7", True), ("192.0.3.7", False), ("2001:db8::1", True), ("::1", False), (None, False)],
)
def test_a_key_is_used_from_its_networks_only(team: Cast, address: str | None, may: bool) -> None:
    key = _key(team, allowed_networks=["192.0.2.0/24", "2001:db8::/32"])
    assert key.may_be_used_from(address) is may
    assert _key(team, name="open", allowed_networks=None).may_be_used_from(address)


def test_a_key_warns_of_its_end_two_weeks_before_and_not_once_it_was_rolled(team: Cast) -> None:
    soon = _key(team, expires_at=timezone.now() + 13 * DAY)
    assert soon.expires_soon
    assert not _key(team, name="later", expires_at=timezone.now() + 15 * DAY).expires_soon
    assert not _key(team, name="never").expires_soon
    with tenant_scope(team.tenant.pk):
        assert list(ending_keys()) == [soon]
    with tenant_scope(team.other.pk):
        assert list(ending_keys()) == []
    roll_key(by=SYSTEM, key=soon, overlap=DAY)
    assert not _again(soon).expires_soon
    with tenant_scope(team.tenant.pk):
        assert list(ending_keys()) == []
