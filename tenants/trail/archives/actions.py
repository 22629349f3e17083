"""How long a trail stays in the database, and who may fetch what left it."""

from __future__ import annotations

from django.db import transaction

from tenants.access import require
from tenants.actors import Actor
from tenants.audit import Target, record
from tenants.errors import Invalid, NotFound
from tenants.models import AuditEvent, Tenant
from tenants.roles import Right
from tenants.scoping import all_tenants
from tenants.trail.archives.models import MAX_MONTHS, MIN_MONTHS, AuditArchive, AuditRetention
from tenants.trail.canonical import chain_of


@transaction.atomic
def set_retention(*, by: Actor, tenant: Tenant | None, months: int | None) -> int | None:
    """None keeps everything in the database for ever. Raises `Invalid`."""
    tenant_id = tenant.pk if tenant else None
    for right in (Right.EXPORT_AUDIT, Right.EDIT_TENANT):
        require(by, right, tenant_id)
    if months is not None and not MIN_MONTHS <= months <= MAX_MONTHS:
        raise Invalid({"months": f"From {MIN_MONTHS} to {MAX_MONTHS}."})
    chain = chain_of(tenant_id)
    with all_tenants("the row is its owner's, who was asked above"):
        before = AuditRetention.objects.filter(pk=chain).values_list("months", flat=True).first()
        if months == before:
            return months
        if months is None:
            AuditRetention.objects.filter(pk=chain).delete()
        else:
            AuditRetention.objects.update_or_create(
                chain=chain, defaults={"tenant_id": tenant_id, "months": months}
            )
    target = Target("audit_trail", chain, "audit trail")
    facts = ({"months": before}, {"months": months})
    record(
        by=by, action="audit.retention_changed", target=target, before=facts[0], after=facts[1], tenant=tenant
    )
    return months


def retention_of(tenant: Tenant | None) -> int | None:
    """Months; None keeps everything."""
    with all_tenants("a number, no event"):
        found = AuditRetention.objects.filter(pk=chain_of(tenant.pk if tenant else None))
        return found.values_list("months", flat=True).first()


def access_archive(actor: Actor, archive_id: str) -> AuditArchive:
    """Raises `NotFound` for one of a trail the actor may not export."""
    with all_tenants("a gate looks the row up before it can know the tenant"):
        archive = AuditArchive.objects.filter(pk=archive_id).first()
    if archive is None or not actor.has(Right.EXPORT_AUDIT, archive.tenant_id):
        raise NotFound("archive")
    return archive


def record_download(*, by: Actor, archive: AuditArchive, is_later_part: bool = False) -> None:
    """A later part is the rest of a download only for whoever began one."""
    if is_later_part and _has_begun(by, archive):
        return
    with transaction.atomic():
        record(
            by=by,
            action="audit.archive_fetched",
            target=_target(archive),
            after={"sha256": archive.sha256},
            tenant=Tenant.objects.filter(pk=archive.tenant_id).first(),
        )


def _has_begun(by: Actor, archive: AuditArchive) -> bool:
    with all_tenants("an archive of the platform is told in no tenant's chain"):
        told = AuditEvent.objects.filter(action="audit.archive_fetched", target_type="audit_archive")
        return told.filter(target_id=archive.pk, actor_type=by.type, actor_id=by.id).exists()


def _target(archive: AuditArchive) -> Target:
    return Target("audit_archive", archive.pk, str(archive))
