"""Every action × everybody: the table of who may do what, executed."""

from __future__ import annotations

import inspect
import pkgutil
from collections.abc import Callable
from datetime import timedelta
from importlib import import_module
from types import FunctionType
from typing import Any

import pytest
from allauth.mfa.models import Authenticator
from django.test import Client

import tenants.actions
from tenants.actions import groups, invitations, keys, members, organisations, sessions, users
from tenants.actions import tenants as tenant_actions
from tenants.actors import Actor
from tenants.errors import NotAllowed, NotFound
from tenants.groups import Granted
from tenants.models import ApiKey, Invitation, UserSession
from tenants.organisations import Organisation
from tenants.roles import ROLE_RIGHTS, Right, Role, can_grant
from tests.tenants.conftest import SYSTEM, Cast, count_events

EVERYBODY = (
    "owner",
    "admin",
    "developer",
    "viewer",
    "auditor",
    "stranger",
    "nobody",
    "anonymous",
    "support",
    "operator",
)
INSIDE = frozenset({*(role.value for role in Role), "support"})
"""Those who see the tenant, and are told what they may not do."""


def _key(team: Cast) -> ApiKey:
    return keys.create_key(by=SYSTEM, tenant=team.tenant, name="spare")[0]


def _organisation(team: Cast) -> Organisation:
    return organisations.create_organisation(by=SYSTEM, name="Initech Group")


def _session(team: Cast) -> UserSession:
    Client().force_login(team.users["viewer"])
    return team.users["viewer"].sessions.get()


def _totp(team: Cast) -> Authenticator:
    return Authenticator.objects.create(user=team.users["viewer"], type="totp", data={"secret": "x"})


def _invite(team: Cast, by: Actor, role: Role, email: str = "new@example.org") -> Invitation:
    return invitations.invite(by=by, tenant=team.tenant, email=email, role=role)[0]


def _invited(team: Cast, email: str = "new@example.org") -> Invitation:
    return _invite(team, team.actor("operator"), Role.VIEWER, email)


ACTIONS: dict[str, tuple[Callable[[Cast, Actor], Any], frozenset[str]]] = {
    "create_tenant": (
        lambda team, by: tenant_actions.create_tenant(by=by, slug="initech", name="Initech"),
        frozenset({"operator"}),
    ),
    "update_tenant": (
        lambda team, by: tenant_actions.update_tenant(by=by, tenant=team.tenant, name="Acme & Co"),
        frozenset({"operator", "owner", "admin"}),
    ),
    "update_tenant limits": (
        lambda team, by: tenant_actions.update_tenant(by=by, tenant=team.tenant, max_concurrency=9000),
        frozenset({"operator"}),
    ),
    "suspend_tenant": (
        lambda team, by: tenant_actions.suspend_tenant(by=by, tenant=team.tenant),
        frozenset({"operator"}),
    ),
    "resume_tenant": (
        lambda team, by: (
            tenant_actions.suspend_tenant(by=SYSTEM, tenant=team.tenant),
            tenant_actions.resume_tenant(by=by, tenant=team.tenant),
        ),
        frozenset({"operator"}),
    ),
    "add_member viewer": (
        lambda team, by: members.add_member(
            by=by, tenant=team.tenant, user=team.users["nobody"], role=Role.VIEWER
        ),
        frozenset({"operator", "owner", "admin"}),
    ),
    "add_member owner": (
        lambda team, by: members.add_member(
            by=by, tenant=team.tenant, user=team.users["nobody"], role=Role.OWNER
        ),
        frozenset({"operator", "owner"}),
    ),
    "change_role to admin": (
        lambda team, by: members.change_role(by=by, membership=team.members["developer"], role=Role.ADMIN),
        frozenset({"operator", "owner", "admin"}),
    ),
    "change_role to owner": (
        lambda team, by: members.change_role(by=by, membership=team.members["developer"], role=Role.OWNER),
        frozenset({"operator", "owner"}),
    ),
    "remove_member": (
        lambda team, by: members.remove_member(by=by, membership=team.members["viewer"]),
        frozenset({"operator", "owner", "admin"}),
    ),
    "invite viewer": (
        lambda team, by: _invite(team, by, Role.VIEWER),
        frozenset({"operator", "owner", "admin"}),
    ),
    "invite owner": (
        lambda team, by: _invite(team, by, Role.OWNER),
        frozenset({"operator", "owner"}),
    ),
    "renew_invitation": (
        lambda team, by: invitations.renew_invitation(by=by, invitation=_invited(team)),
        frozenset({"operator", "owner", "admin"}),
    ),
    "withdraw_invitation": (
        lambda team, by: invitations.withdraw_invitation(by=by, invitation=_invited(team)),
        frozenset({"operator", "owner", "admin"}),
    ),
    "accept_invitation": (
        lambda team, by: invitations.accept_invitation(
            by=by, invitation=_invited(team, "nobody@example.org")
        ),
        frozenset({"nobody"}),
    ),
    "join_as_new_person": (
        lambda team, by: invitations.join_as_new_person(
            by=by, invitation=_invited(team), username="fresh", password="correct horse battery staple"
        ),
        frozenset(EVERYBODY),
    ),
    "create_key": (
        lambda team, by: keys.create_key(by=by, tenant=team.tenant, name="new"),
        frozenset({"operator", "owner", "admin", "developer"}),
    ),
    "roll_key": (
        lambda team, by: keys.roll_key(by=by, key=_key(team), overlap=timedelta(days=1)),
        frozenset({"operator", "owner", "admin", "developer"}),
    ),
    "revoke_key": (
        lambda team, by: keys.revoke_key(by=by, key=_key(team)),
        frozenset({"operator", "owner", "admin", "developer"}),
    ),
    "create_user": (
        lambda team, by: users.create_user(by=by, username="newcomer"),
        frozenset({"operator"}),
    ),
    "set_password": (
        lambda team, by: users.set_password(
            by=by, user=team.users["viewer"], password="correct horse battery staple"
        ),
        frozenset({"operator"}),
    ),
    "create_tenant in an organisation": (
        lambda team, by: tenant_actions.create_tenant(
            by=by, slug="initech", name="Initech", organisation=_organisation(team)
        ),
        frozenset({"operator"}),
    ),
    "create_organisation": (
        lambda team, by: organisations.create_organisation(by=by, name="New"),
        frozenset({"operator"}),
    ),
    "update_organisation": (
        lambda team, by: organisations.update_organisation(
            by=by, organisation=_organisation(team), name="Renamed", max_tenants=3
        ),
        frozenset({"operator"}),
    ),
    "add_organisation_admin": (
        lambda team, by: organisations.add_organisation_admin(
            by=by, organisation=_organisation(team), user=team.users["viewer"]
        ),
        frozenset({"operator"}),
    ),
    "remove_organisation_admin": (
        lambda team, by: organisations.remove_organisation_admin(
            by=by,
            admin=organisations.add_organisation_admin(
                by=SYSTEM, organisation=_organisation(team), user=team.users["viewer"]
            ),
        ),
        frozenset({"operator"}),
    ),
    "move_tenant": (
        lambda team, by: organisations.move_tenant(
            by=by, tenant=team.tenant, organisation=_organisation(team)
        ),
        frozenset({"operator"}),
    ),
    "apply_groups": (
        lambda team, by: groups.apply_groups(
            by=by, user=team.users["nobody"], granted=Granted(roles={"acme": Role.VIEWER})
        ),
        frozenset({"operator"}),
    ),
    "end_session": (
        lambda team, by: sessions.end_session(by=by, session=_session(team)),
        frozenset({"operator", "viewer"}),
    ),
    "end_sessions": (
        lambda team, by: (_session(team), sessions.end_sessions(by=by, user_id=team.users["viewer"].pk)),
        frozenset({"operator", "viewer"}),
    ),
    "set_active": (
        lambda team, by: users.set_active(by=by, user=team.users["viewer"], is_active=False),
        frozenset({"operator"}),
    ),
    "reset_second_factor": (
        lambda team, by: (_totp(team), users.reset_second_factor(by=by, user=team.users["viewer"])),
        frozenset({"operator"}),
    ),
    "change_platform_role": (
        lambda team, by: users.change_platform_role(
            by=by, user=team.users["viewer"], platform_role="operator"
        ),
        frozenset({"operator"}),
    ),
}
PLATFORM_ACTIONS = {
    "create_tenant",
    "create_user",
    "set_password",
    "create_tenant in an organisation",
    "create_organisation",
    "update_organisation",
    "add_organisation_admin",
    "remove_organisation_admin",
    "move_tenant",
    "apply_groups",
    "end_session",
    "end_sessions",
    "accept_invitation",
    "set_active",
    "reset_second_factor",
    "change_platform_role",
}


@pytest.mark.parametrize("who", EVERYBODY)
@pytest.mark.parametrize("action", ACTIONS)
def test_everybody_may_do_exactly_what_the_table_says(team: Cast, action: str, who: str) -> None:
    act, allowed = ACTIONS[action]
    if who in allowed:
        act(team, team.actor(who))
        return
    is_told_no = who in INSIDE or action in PLATFORM_ACTIONS
    with pytest.raises(NotAllowed if is_told_no else NotFound):
        act(team, team.actor(who))


@pytest.mark.parametrize("action", ACTIONS)
def test_every_action_leaves_an_event_in_the_audit_trail(team: Cast, action: str) -> None:
    before = count_events()
    act, allowed = ACTIONS[action]
    act(team, team.actor("operator" if "operator" in allowed else min(allowed)))
    assert count_events() > before


def _all_actions() -> list[FunctionType]:
    modules = [
        import_module(f"tenants.actions.{found.name}")
        for found in pkgutil.iter_modules(tenants.actions.__path__)
    ]
    return [
        function
        for module in modules
        for name, function in inspect.getmembers(module, inspect.isfunction)
        if function.__module__ == module.__name__ and not name.startswith("_") and name != "lock_tenant"
    ]


@pytest.mark.parametrize("action", _all_actions(), ids=lambda function: function.__name__)
def test_every_action_takes_keywords_only_names_its_actor_and_is_atomic(action: FunctionType) -> None:
    signature = inspect.signature(action)
    assert all(
        parameter.kind in (parameter.KEYWORD_ONLY, parameter.VAR_KEYWORD)
        for parameter in signature.parameters.values()
    )
    assert "by" in signature.parameters
    assert hasattr(action, "__wrapped__"), "@transaction.atomic is missing"
    assert any(name.split()[0] == action.__name__ for name in ACTIONS), "missing in this file's table"


@pytest.mark.parametrize("role", Role)
def test_whoever_manages_members_grants_up_to_their_own_role(role: Role) -> None:
    own = ROLE_RIGHTS[role]
    granted = {other for other in Role if can_grant(own, other)}
    expected = {
        Role.OWNER: set(Role),
        Role.ADMIN: set(Role) - {Role.OWNER},
    }
    assert granted == expected.get(role, set())


def test_no_tenant_role_holds_a_platform_right() -> None:
    platform = {right for right in Right if right.value.startswith("manage_")} - {
        Right.MANAGE_MEMBERS,
        Right.MANAGE_OWNERS,
        Right.MANAGE_KEYS,
        Right.MANAGE_ALERTS,
    } | {Right.VIEW_PLATFORM}
    for rights in ROLE_RIGHTS.values():
        assert not rights & platform


def test_someone_switched_off_is_nobody(team: Cast) -> None:
    user = team.users["owner"]
    user.is_active = False
    user.save()
    assert team.actor("owner").is_anonymous
