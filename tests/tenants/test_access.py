"""Gates: what is not yours looks exactly like what is not there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tenants import access
from tenants.actions.keys import create_key
from tenants.actors import Actor
from tenants.errors import Invalid, NotAllowed, NotFound
from tenants.models import ApiKey
from tenants.roles import Right
from tenants.scoping import ScopeError, current_scope
from tests.tenants.conftest import SYSTEM, Cast


def _refusal(gate: Callable[..., Any], *given: Any) -> tuple[type, str, dict[str, Any]]:
    with pytest.raises(NotFound) as caught:
        gate(*given)
    return type(caught.value), str(caught.value), vars(caught.value)


@pytest.mark.parametrize("who", ["stranger", "nobody", "anonymous"])
def test_another_tenants_things_answer_like_unknown_ones(team: Cast, who: str) -> None:
    actor = team.actor(who)
    key, _ = create_key(by=SYSTEM, tenant=team.tenant, name="k")
    pairs: list[tuple[Callable[..., Any], str, str]] = [
        (access.access_tenant, team.tenant.pk, "tnt_0000000000000000"),
        (access.access_tenant_by_slug, "acme", "nosuch"),
        (access.access_key, key.pk, "key_000000000000"),
        (access.access_member, team.members["viewer"].pk, "mem_0000000000000000"),
    ]
    for gate, theirs, unknown in pairs:
        for right in (Right.VIEW, Right.MANAGE_KEYS, Right.MANAGE_TENANTS):
            assert _refusal(gate, actor, theirs, right) == _refusal(gate, actor, unknown, right)


def test_a_member_passes_the_gate_with_the_right_and_is_refused_without(team: Cast) -> None:
    viewer = team.actor("viewer")
    assert access.access_tenant(viewer, team.tenant.pk) == team.tenant
    with pytest.raises(NotAllowed, match="manage keys"):
        access.access_tenant(viewer, team.tenant.pk, Right.MANAGE_KEYS)


def test_an_operator_passes_every_gate(team: Cast) -> None:
    key, _ = create_key(by=SYSTEM, tenant=team.other, name="k")
    operator = team.actor("operator")
    assert access.access_key(operator, key.pk, Right.MANAGE_KEYS) == key
    assert set(access.visible_tenants(operator)) == {team.tenant, team.other}


def test_each_sees_their_own_tenants_only(team: Cast) -> None:
    assert list(access.visible_tenants(team.actor("viewer"))) == [team.tenant]
    assert list(access.visible_tenants(team.actor("stranger"))) == [team.other]
    assert list(access.visible_tenants(team.actor("nobody"))) == []
    assert list(access.visible_tenants(Actor.anonymous())) == []


def test_accounts_are_found_by_those_who_may_add_them(team: Cast) -> None:
    found = access.access_account(team.actor("operator"), team.tenant.pk, "NOBODY")
    assert found == team.users["nobody"]
    assert (
        access.access_account(team.actor("admin"), team.tenant.pk, "viewer@EXAMPLE.org").username == "viewer"
    )
    for login in ("", "no-such", "nobody", "stranger@example.org"):  # who is there sounds like who is not
        with pytest.raises(Invalid, match="No account that you know"):
            access.access_account(team.actor("admin"), team.tenant.pk, login)
    with pytest.raises(NotAllowed):
        access.access_account(team.actor("viewer"), team.tenant.pk, "nobody")
    with pytest.raises(NotFound, match="tenant"):
        access.access_account(team.actor("stranger"), team.tenant.pk, "nobody")
    with pytest.raises(NotFound):
        access.access_user(team.actor("owner"), team.users["nobody"].pk)


def test_the_scope_of_an_actor_is_what_they_may_see(team: Cast) -> None:
    create_key(by=SYSTEM, tenant=team.other, name="theirs")
    with access.scope_of(team.actor("viewer")):
        assert not ApiKey.objects.exists()
    with access.scope_of(team.actor("operator")):
        assert ApiKey.objects.exists()
    with access.scope_of(team.actor("operator"), team.tenant.pk):
        assert not ApiKey.objects.exists()
    with pytest.raises(NotFound):
        access.scope_of(team.actor("viewer"), team.other.pk)
    with pytest.raises(ScopeError):
        current_scope()
