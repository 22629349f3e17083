"""What an API key may do: its scopes, as far as its maker may do the same in the tenant, now."""

from __future__ import annotations

import pytest

from console.pages.keys import SCOPES
from tenants.access import require, scope_of, visible_tenants
from tenants.actions.keys import create_key, revoke_key
from tenants.actions.members import change_role, remove_member
from tenants.actions.tenants import suspend_tenant
from tenants.actors import Actor
from tenants.errors import Invalid, NotAllowed, NotFound
from tenants.models import ApiKey
from tenants.roles import KEY_SCOPES, PLATFORM_RIGHTS, ROLE_RIGHTS, PlatformRole, Right, Role
from tenants.scoping import all_tenants, current_scope
from tests.tenants.conftest import SYSTEM, Cast, last_event

EVERY_SCOPE = tuple(KEY_SCOPES)


def _made_by(team: Cast, who: str, *scopes: str) -> ApiKey:
    key, _ = create_key(by=team.actor(who), tenant=team.tenant, name="ci", scopes=scopes)
    return _again(key)


def _again(key: ApiKey) -> ApiKey:
    """The key as the next request reads it."""
    with all_tenants("a test"):
        return ApiKey.objects.select_related("tenant", "creator").get(pk=key.pk)


def _rights(team: Cast, key: ApiKey) -> frozenset[Right]:
    return Actor.of_key(_again(key)).rights_in(team.tenant.pk)


@pytest.mark.parametrize("scope", KEY_SCOPES)
def test_a_key_holds_what_its_scopes_say(team: Cast, scope: str) -> None:
    assert _rights(team, _made_by(team, "owner", scope)) == KEY_SCOPES[scope].rights


def test_scopes_add_up_and_reach_no_owner_and_no_platform(team: Cast) -> None:
    held = _rights(team, _made_by(team, "operator", *EVERY_SCOPE))
    assert held == ROLE_RIGHTS[Role.ADMIN]


def test_a_key_sees_its_own_tenant_and_no_other(team: Cast) -> None:
    actor = Actor.of_key(_made_by(team, "operator", *EVERY_SCOPE))
    assert not actor.platform_rights
    assert list(visible_tenants(actor)) == [team.tenant]
    with pytest.raises(NotFound):
        require(actor, Right.VIEW, team.other.pk)
    with scope_of(actor):
        assert current_scope().tenant_ids == {team.tenant.pk}


def test_a_key_without_the_right_is_told_so(team: Cast) -> None:
    actor = Actor.of_key(_made_by(team, "owner", "usage:read"))
    require(actor, Right.VIEW_USAGE, team.tenant.pk)
    with pytest.raises(NotAllowed):
        require(actor, Right.VIEW, team.tenant.pk)


def test_a_key_shrinks_with_the_person_who_made_it(team: Cast) -> None:
    key = _made_by(team, "admin", *EVERY_SCOPE)
    change_role(by=SYSTEM, membership=team.members["admin"], role=Role.AUDITOR)
    assert _rights(team, key) == {Right.VIEW, Right.VIEW_USAGE, Right.VIEW_AUDIT, Right.EXPORT_AUDIT}
    remove_member(by=SYSTEM, membership=team.members["admin"])
    assert _rights(team, key) == frozenset()


def test_a_key_of_an_account_that_is_switched_off_or_gone_manages_nothing(team: Cast) -> None:
    key = _made_by(team, "operator", *EVERY_SCOPE)
    team.users["operator"].is_active = False
    team.users["operator"].save()
    assert _rights(team, key) == frozenset()
    with all_tenants("an account's rows lie with many tenants"):
        team.users["operator"].delete()
    assert _rights(team, key) == frozenset()


def test_a_key_that_the_system_made_only_infers(team: Cast) -> None:
    assert _rights(team, create_key(by=SYSTEM, tenant=team.tenant, name="ci")[0]) == frozenset()
    with pytest.raises(Invalid):
        create_key(by=SYSTEM, tenant=team.tenant, name="other", scopes=["manage:read"])


def test_a_key_manages_nothing_while_its_tenant_is_suspended(team: Cast) -> None:
    key = _made_by(team, "owner", *EVERY_SCOPE)
    suspend_tenant(by=SYSTEM, tenant=team.tenant)
    assert _rights(team, key) == frozenset()


def test_a_revoked_key_manages_nothing(team: Cast) -> None:
    key = _made_by(team, "owner", *EVERY_SCOPE)
    revoke_key(by=SYSTEM, key=key)
    assert _rights(team, key) == frozenset()


def test_a_scope_that_no_longer_exists_allows_nothing(team: Cast) -> None:
    key = _made_by(team, "owner", "manage:read")
    with all_tenants("a test"):
        ApiKey.objects.update(scopes=["gone"])
    assert _rights(team, key) == frozenset()


def test_nobody_makes_a_key_above_their_own_rights(team: Cast) -> None:
    with pytest.raises(Invalid) as caught:
        create_key(by=team.actor("developer"), tenant=team.tenant, name="ci", scopes=EVERY_SCOPE)
    assert caught.value.errors == {"scopes": "Not above your own rights: audit:export, manage:write."}
    assert _rights(team, _made_by(team, "developer", "infer", "usage:read")) == {Right.VIEW_USAGE}


def test_a_key_makes_no_key_above_itself_and_both_answer_to_the_same_person(team: Cast) -> None:
    actor = Actor.of_key(_made_by(team, "owner", "manage:write"))
    child, _ = create_key(by=actor, tenant=team.tenant, name="child", scopes=["manage:read"])
    assert child.creator_id == team.users["owner"].pk
    assert (last_event().actor_type, last_event().actor_id) == ("api_key", actor.id)
    with pytest.raises(Invalid):
        create_key(by=actor, tenant=team.tenant, name="above", scopes=["audit:export"])


def test_no_scope_of_a_key_holds_a_platform_right() -> None:
    platform = PLATFORM_RIGHTS[PlatformRole.OPERATOR] - ROLE_RIGHTS[Role.OWNER]
    assert not any(scope.rights & platform for scope in KEY_SCOPES.values())


def test_the_dialog_says_every_scope_as_the_table_does() -> None:
    assert {name: str(said) for name, said in SCOPES.items()} == {
        name: scope.sentence for name, scope in KEY_SCOPES.items()
    }
