"""Members: nobody reaches above their own role, and a tenant keeps an owner."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from django.db import IntegrityError, connection, transaction

from tenants.actions.members import add_member, change_role, remove_member
from tenants.errors import Conflict, DomainError, Invalid, NotAllowed, NotFound
from tenants.models import Membership
from tenants.roles import Role
from tenants.scoping import tenant_scope
from tests.tenants.conftest import SYSTEM, Cast, build_cast


def test_a_person_is_a_member_once(team: Cast) -> None:
    with pytest.raises(Invalid) as caught:
        add_member(by=SYSTEM, tenant=team.tenant, user=team.users["viewer"], role="admin")
    assert caught.value.errors == {"user": "This person is a member already."}


def test_an_unknown_role_is_refused(team: Cast) -> None:
    with pytest.raises(Invalid) as caught:
        add_member(by=SYSTEM, tenant=team.tenant, user=team.users["nobody"], role="king")
    assert set(caught.value.errors) == {"role"}
    with tenant_scope(team.tenant.pk), pytest.raises(IntegrityError), transaction.atomic():
        Membership.objects.filter(pk=team.members["viewer"].pk).update(role="king")


@pytest.mark.parametrize(
    "change",
    [
        lambda team, by: remove_member(by=by, membership=team.members["owner"]),
        lambda team, by: change_role(by=by, membership=team.members["owner"], role="viewer"),
    ],
)
def test_an_admin_cannot_touch_an_owner(team: Cast, change: Callable[..., object]) -> None:
    with pytest.raises(NotAllowed, match="above your own"):
        change(team, team.actor("admin"))


def test_the_last_owner_stays(team: Cast) -> None:
    owner = team.members["owner"]
    for by in (team.actor("owner"), SYSTEM):
        with pytest.raises(Conflict, match="at least one owner"):
            remove_member(by=by, membership=owner)
        with pytest.raises(Conflict, match="at least one owner"):
            change_role(by=by, membership=owner, role="admin")


def test_an_owner_may_leave_when_another_is_there(team: Cast) -> None:
    change_role(by=team.actor("owner"), membership=team.members["admin"], role="owner")
    remove_member(by=team.actor("owner"), membership=team.members["owner"])
    with tenant_scope(team.tenant.pk):
        assert Membership.objects.filter(role=Role.OWNER).get().user.username == "admin"


def test_a_member_removed_meanwhile_is_not_found(team: Cast) -> None:
    remove_member(by=SYSTEM, membership=team.members["viewer"])
    with pytest.raises(NotFound):
        change_role(by=SYSTEM, membership=team.members["viewer"], role="admin")


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("round_number", range(3))
def test_two_owners_who_leave_at_once_leave_one_behind(round_number: int) -> None:
    team = build_cast()
    change_role(by=SYSTEM, membership=team.members["admin"], role="owner")
    start = threading.Barrier(2)
    refused: list[DomainError] = []

    def leave(who: str) -> None:
        try:
            start.wait(timeout=10)
            remove_member(by=team.actor(who), membership=team.members[who])
        except DomainError as error:
            refused.append(error)
        finally:
            connection.close()

    threads = [threading.Thread(target=leave, args=(who,)) for who in ("owner", "admin")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=20)
    assert [type(error) for error in refused] == [Conflict]
    with tenant_scope(team.tenant.pk):
        assert Membership.objects.filter(role=Role.OWNER).count() == 1
