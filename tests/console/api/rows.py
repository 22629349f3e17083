"""What an address of the API names: each function makes its row, or finds it, and returns the address's arguments."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.test import Client
from django.utils import timezone

from console.sessions import sessions_of
from serving.control.pricing.actions import set_price
from serving.control.pricing.models import Price
from serving.control.quotas.actions import create_quota
from serving.control.quotas.models import Quota
from tenants.actions.invitations import invite
from tenants.actions.organisations import add_organisation_admin, create_organisation, move_tenant
from tenants.actions.users import create_user
from tenants.models import AuditArchive, AuditEvent, AuditExport, AuditVerification, AuditWebhook, User
from tenants.organisations import OrganisationAdmin
from tenants.people import Invitation
from tenants.scoping import all_tenants
from tenants.trail.exports import request_export
from tenants.trail.search import Asked
from tenants.trail.webhooks.actions import create_webhook
from tests.console.conftest import World, sign_in
from tests.console.tuned import build_encoder, build_run
from tests.tenants.conftest import SYSTEM

RECEIVER = "https://siem.example.org/"
EMPTY_FILE = {"prev_hash": b"", "last_hash": b"", "size_bytes": 0, "sha256": "0" * 64, "manifest": {}}


def nothing(world: World) -> list[object]:
    return []


def tenant(world: World) -> list[object]:
    return [world.cast.tenant.pk]


def member(world: World) -> list[object]:
    return [world.cast.members["developer"].pk]


def account(world: World) -> list[object]:
    return [world.cast.users["nobody"].pk]


def invitation(world: World) -> list[object]:
    with all_tenants("a test looks whether it made one"):
        known = Invitation.objects.first()
    owner, tenant = world.cast.actor("owner"), world.cast.tenant
    asked = {"by": owner, "tenant": tenant, "email": "old@example.org", "role": "viewer"}
    return [(known or invite(**asked)[0]).pk]


def session(world: World) -> list[object]:
    """Of somebody who is none of those who ask."""
    person = User.objects.filter(username="elsewhere").first() or create_user(by=SYSTEM, username="elsewhere")
    sign_in(Client(), person)
    return [sessions_of(person)[0].pk]


def organisation(world: World) -> list[object]:
    """The first tenant's."""
    tenant = world.cast.tenant
    tenant.refresh_from_db()
    if tenant.organisation is None:
        made = create_organisation(by=SYSTEM, name="group")
        add_organisation_admin(by=SYSTEM, organisation=made, user=world.cast.users["nobody"])
        move_tenant(by=SYSTEM, tenant=tenant, organisation=made)
        tenant.refresh_from_db()
    return [tenant.organisation_id]


def organisation_admin(world: World) -> list[object]:
    found = organisation(world)
    return [*found, OrganisationAdmin.objects.filter(organisation=str(found[0]))[0].user_id]


def organisation_tenant(world: World) -> list[object]:
    return [*organisation(world), world.cast.tenant.pk]


def key(world: World) -> list[object]:
    return [world.key.pk]


def model(world: World) -> list[object]:
    return [world.model.pk]


def grant(world: World) -> list[object]:
    return [world.model.pk, world.cast.tenant.pk]


def alias(world: World) -> list[object]:
    return [world.model.pk, "champion"]


def version(world: World) -> list[object]:
    return [world.version.pk]


def deployment(world: World) -> list[object]:
    return [world.deployment.pk]


def profile(world: World) -> list[object]:
    return [world.profile.pk]


def binding(world: World) -> list[object]:
    return [world.binding.pk]


def quota(world: World) -> list[object]:
    """One that the tenant's owner set on a key."""
    owner, tenant = world.cast.actor("owner"), world.cast.tenant
    with all_tenants("a test looks whether it made one"):
        known = Quota.objects.first()
    target = {"tenant": tenant, "key": world.key, "resource": "requests", "window": "hour"}
    made = known or create_quota(by=owner, limit=10, **target)
    return [made.pk]


def price(world: World) -> list[object]:
    """Of a model that only the first tenant may use, and not yet in force."""
    known = Price.objects.first()
    return [(known or set_price(by=SYSTEM, model=world.model, effective_from=next_year())).pk]


def next_year() -> datetime:
    return (timezone.now() + timedelta(days=365)).replace(second=0, microsecond=0)


def event(world: World) -> list[object]:
    with all_tenants("a test names an event"):
        found = AuditEvent.objects.filter(tenant_id=world.cast.tenant.pk).first()
    assert found is not None
    return [found.event_id]


def export(world: World) -> list[object]:
    """One that is still being written."""
    with all_tenants("a test looks whether it made one"):
        known = AuditExport.objects.first()
    owner, tenant = world.cast.actor("owner"), world.cast.tenant
    return [(known or request_export(by=owner, tenant=tenant, format="csv", asked=Asked())).pk]


def archive(world: World) -> list[object]:
    """One whose file is away."""
    chain, now = world.cast.tenant.pk, timezone.now()
    with all_tenants("a test looks whether it made one"):
        row, _ = AuditArchive.objects.get_or_create(
            chain=chain,
            first_position=1,
            defaults={"tenant_id": chain, "last_position": 1, "first_at": now, "last_at": now, **EMPTY_FILE},
        )
    return [row.pk]


def webhook(world: World) -> list[object]:
    with all_tenants("a test looks whether it made one"):
        known = AuditWebhook.objects.first()
    if known is None:
        known, _ = create_webhook(by=SYSTEM, tenant=world.cast.tenant, url=RECEIVER)
    return [known.pk]


def verification(world: World) -> list[object]:
    with all_tenants("a test looks whether it made one"):
        row, _ = AuditVerification.objects.get_or_create(
            tenant_id=world.cast.tenant.pk, state="done", requested_by_name="tests"
        )
    return [row.pk]


def encoder(world: World) -> list[object]:
    return [build_encoder(world.model).pk]


def tuning(world: World) -> list[object]:
    return [build_run(build_encoder(world.model)).pk]
