"""Organisations: their admins have an admin's rights in each of their tenants, and no more than that."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from tenants.access import access_tenant, visible_tenants
from tenants.actions.members import add_member
from tenants.actions.organisations import (
    add_organisation_admin,
    create_organisation,
    move_tenant,
    remove_organisation_admin,
    update_organisation,
)
from tenants.actions.tenants import create_tenant, update_tenant
from tenants.actors import Actor
from tenants.errors import Conflict, Invalid, NotAllowed, NotFound
from tenants.models import AuditEvent, Tenant
from tenants.organisations import Organisation
from tenants.roles import ROLE_RIGHTS, Role
from tenants.scoping import all_tenants
from tests.console.conftest import World
from tests.tenants.conftest import SYSTEM


@dataclass
class Group:
    world: World
    row: Organisation

    @property
    def admin(self) -> Actor:
        """`nobody`, who belongs to no tenant by themselves."""
        return self.world.cast.actor("nobody")

    @property
    def browser(self) -> Client:
        return self.world.client("nobody")


@pytest.fixture
def group(world: World) -> Group:
    row = create_organisation(by=SYSTEM, name="Initech Group", max_tenants=2)
    move_tenant(by=SYSTEM, tenant=world.cast.tenant, organisation=row)
    add_organisation_admin(by=SYSTEM, organisation=row, user=world.cast.users["nobody"])
    return Group(world, row)


def test_its_admin_has_an_admins_rights_in_each_of_its_tenants_and_none_elsewhere(group: Group) -> None:
    cast = group.world.cast
    assert group.admin.rights_in(cast.tenant.pk) == ROLE_RIGHTS[Role.ADMIN]
    assert not group.admin.can_see(cast.other.pk) and not group.admin.platform_rights
    assert list(visible_tenants(group.admin)) == [cast.tenant]
    with pytest.raises(NotFound):
        access_tenant(group.admin, cast.other.pk)


def test_the_stronger_of_two_roles_counts(group: Group) -> None:
    cast = group.world.cast
    add_member(by=SYSTEM, tenant=cast.tenant, user=cast.users["nobody"], role=Role.VIEWER)
    assert group.admin.memberships[cast.tenant.pk] is Role.ADMIN
    add_organisation_admin(by=SYSTEM, organisation=group.row, user=cast.users["owner"])
    assert cast.actor("owner").memberships[cast.tenant.pk] is Role.OWNER


def test_roles_are_read_in_one_query_however_many_tenants_there_are(group: Group) -> None:
    with CaptureQueriesContext(connection) as few:
        _ = group.admin
    create_tenant(by=SYSTEM, slug="initech-two", name="Two", organisation=group.row)
    with CaptureQueriesContext(connection) as more:
        assert len(group.admin.memberships) == 2
    assert len(few) == len(more) == 1


def test_an_admin_makes_tenants_up_to_the_maximum(group: Group) -> None:
    answer = group.browser.post(
        f"/organisations/{group.row.pk}/tenants/new", {"name": "Two", "slug": "initech-two"}
    )
    assert answer.status_code == 302
    assert group.browser.get("/tenants/initech-two/").status_code == 200
    with pytest.raises(Conflict, match="An operator may raise"):
        create_tenant(by=group.admin, slug="initech-three", name="Three", organisation=group.row)
    assert "disabled" in group.browser.get(f"/organisations/{group.row.pk}/").content.decode()


def test_an_admin_sets_no_limits_and_makes_nothing_outside(group: Group) -> None:
    with pytest.raises(NotAllowed):
        create_tenant(by=group.admin, slug="greedy", name="G", organisation=group.row, max_concurrency=9000)
    with pytest.raises(NotAllowed):
        create_tenant(by=group.admin, slug="outside", name="O")
    other = create_organisation(by=SYSTEM, name="Other")
    with pytest.raises(NotAllowed, match="admin of this organisation"):
        create_tenant(by=group.admin, slug="theirs", name="T", organisation=other)
    with pytest.raises(NotAllowed):
        update_tenant(by=group.admin, tenant=group.world.cast.tenant, max_concurrency=9000)


def test_an_admin_moves_nothing_out_and_names_no_other_admin(group: Group) -> None:
    cast = group.world.cast
    with pytest.raises(NotAllowed):
        move_tenant(by=group.admin, tenant=cast.tenant, organisation=None)
    with pytest.raises(NotAllowed):
        add_organisation_admin(by=group.admin, organisation=group.row, user=cast.users["viewer"])
    with pytest.raises(NotAllowed):
        update_organisation(by=group.admin, organisation=group.row, name="Mine", max_tenants=1000)
    assert group.browser.post(f"/organisations/{group.row.pk}/tenants/acme/move-out").status_code == 403


def test_an_admin_makes_nobody_an_owner(group: Group) -> None:
    cast = group.world.cast
    with pytest.raises(NotAllowed, match="above your own"):
        add_member(by=group.admin, tenant=cast.tenant, user=cast.users["support"], role=Role.OWNER)


def test_a_tenant_moved_out_and_an_admin_removed_are_gone_at_once(group: Group) -> None:
    cast = group.world.cast
    move_tenant(by=SYSTEM, tenant=cast.tenant, organisation=None)
    assert not group.admin.can_see(cast.tenant.pk)
    move_tenant(by=SYSTEM, tenant=cast.tenant, organisation=group.row)
    remove_organisation_admin(by=SYSTEM, admin=group.row.admins.get())
    assert not group.admin.can_see(cast.tenant.pk)
    assert group.browser.get(f"/organisations/{group.row.pk}/").status_code == 404


def test_a_switched_off_admin_and_one_without_their_second_factor_have_nothing(group: Group) -> None:
    user = group.world.cast.users["nobody"]
    user.is_active = False
    user.save()
    assert not Actor.of_user(user).organisations


def test_its_admin_sees_its_own_organisation_only(group: Group) -> None:
    other = create_organisation(by=SYSTEM, name="Somebody Else")
    text = group.browser.get("/organisations/").content.decode()
    assert "Initech Group" in text and "Somebody Else" not in text
    assert group.browser.get(f"/organisations/{other.pk}/").status_code == 404


def test_an_operator_does_it_all_on_pages(world: World) -> None:
    client = world.client("operator")
    assert client.post("/organisations/new", {"name": "Initech", "max_tenants": 3}).status_code == 302
    row = Organisation.objects.get()
    at = f"/organisations/{row.pk}/"
    client.post(f"{at}admins/new", {"login": "nobody@example.org"})
    assert "(acme)" in client.get(f"{at}tenants/move").content.decode()
    client.post(f"{at}tenants/move", {"slug": "acme"})
    assert "(acme)" not in client.get(f"{at}tenants/move").content.decode()
    text = client.get(at).content.decode()
    assert "nobody" in text and "acme" in text and "1 of at most 3" in text
    answer = client.post(f"{at}edit", {"name": "Initech", "max_tenants": 5, "seen": "stale"})
    assert answer.status_code == 422 and "Somebody else changed this" in answer.content.decode()
    client.post(f"{at}tenants/acme/move-out")
    assert Tenant.objects.get(slug="acme").organisation is None
    user = world.cast.users["nobody"]
    client.post(f"{at}admins/{user.pk}/remove", {"name": "nobody"})
    assert not row.admins.exists()
    with all_tenants("a test"):
        actions = set(AuditEvent.objects.values_list("action", flat=True))
    assert {
        "organisation.created",
        "organisation.admin_added",
        "organisation.admin_removed",
        "tenant.moved",
    } <= actions


def test_two_organisations_cannot_share_a_name(world: World) -> None:
    create_organisation(by=SYSTEM, name="Initech")
    with pytest.raises(Invalid, match="Another organisation"):
        create_organisation(by=SYSTEM, name="INITECH")


def test_an_admin_is_named_once(group: Group) -> None:
    with pytest.raises(Invalid, match="already"):
        add_organisation_admin(by=SYSTEM, organisation=group.row, user=group.world.cast.users["nobody"])
