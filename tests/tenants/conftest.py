"""A tenant with one person per role, a second tenant with its owner, and the people outside both."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from tenants import changes
from tenants.actions.members import add_member
from tenants.actions.tenants import create_tenant
from tenants.actions.users import create_user
from tenants.actors import Actor
from tenants.models import AuditEvent, Membership, Tenant, User
from tenants.roles import PlatformRole, Role
from tenants.scoping import all_tenants
from tests import shared_rows

SYSTEM = Actor.system("tests")


@dataclass
class Cast:
    tenant: Tenant
    other: Tenant
    users: dict[str, User] = field(default_factory=dict)
    members: dict[str, Membership] = field(default_factory=dict)

    def actor(self, who: str) -> Actor:
        """`owner` … `auditor`, `stranger` (owner of the other tenant), `nobody`, `support`, `operator`, `anonymous`."""
        return Actor.anonymous() if who == "anonymous" else Actor.of_user(self.users[who])


@pytest.fixture
def team(request: pytest.FixtureRequest) -> Cast:
    cast: Cast = shared_rows.rows(request, build_cast)
    return cast


def build_cast() -> Cast:
    built = Cast(
        tenant=create_tenant(by=SYSTEM, slug="acme", name="Acme"),
        other=create_tenant(by=SYSTEM, slug="globex", name="Globex"),
    )
    for role in Role:
        _join(built, role.value, built.tenant, role)
    _join(built, "stranger", built.other, Role.OWNER)
    built.users["nobody"] = create_user(by=SYSTEM, username="nobody", email="nobody@example.org")
    built.users["support"] = create_user(by=SYSTEM, username="support", platform_role=PlatformRole.SUPPORT)
    built.users["operator"] = create_user(by=SYSTEM, username="operator", platform_role=PlatformRole.OPERATOR)
    return built


def _join(built: Cast, who: str, tenant: Tenant, role: Role) -> None:
    built.users[who] = create_user(by=SYSTEM, username=who, email=f"{who}@example.org")
    built.members[who] = add_member(by=SYSTEM, tenant=tenant, user=built.users[who], role=role)


@pytest.fixture
def announced() -> Iterator[list[tuple[str, str]]]:
    """What is announced during the test."""
    heard: list[tuple[str, str]] = []

    def listen(kind: changes.ChangeKind, object_id: str) -> None:
        heard.append((kind, object_id))

    changes.subscribe(listen)
    yield heard
    changes.unsubscribe(listen)


def last_event() -> AuditEvent:
    with all_tenants("a test reads the trail"):
        event = AuditEvent.objects.first()
    assert event is not None
    return event


def count_events() -> int:
    with all_tenants("a test counts the trail"):
        return AuditEvent.objects.count()
