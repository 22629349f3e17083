"""Verifications that people ask for, and the daily one: what was found stays, and a break is an event."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import Q, QuerySet
from django.utils import timezone

from tenants.access import require
from tenants.actors import Actor
from tenants.audit import Target, record
from tenants.errors import Conflict
from tenants.models import Tenant
from tenants.roles import Right
from tenants.scoping import all_tenants
from tenants.trail.models import AuditVerification
from tenants.trail.verify import SENTENCES, Verdict, verify, verify_all

SILENT_FOR = timedelta(minutes=30)
"""A verification not heard of for so long was interrupted: somebody else begins it anew."""
KEPT = timedelta(days=90)
_TASKS = Actor.system("tasks")


@transaction.atomic
def request_verification(*, by: Actor, tenant: Tenant | None) -> AuditVerification:
    """Write down that a chain (of all, without a tenant) is to be verified; the caller asks for the task.

    Raises `Conflict` while it is.
    """
    require(by, Right.EXPORT_AUDIT, tenant.pk if tenant else None)
    tenant_id = tenant.pk if tenant else None
    with all_tenants("a verification is written down by whoever may"):
        if AuditVerification.objects.filter(tenant_id=tenant_id).exclude(state="done").exists():
            raise Conflict("The trail is being verified already.")
        asked = AuditVerification.objects.create(tenant_id=tenant_id, requested_by_name=by.name)
    record(by=by, action="audit.verification_requested", target=_target(asked), tenant=tenant)
    return asked


def of_tenant(tenant: Tenant | None) -> QuerySet[AuditVerification]:
    """Newest first; without a tenant, those of every chain."""
    return AuditVerification.objects.filter(tenant_id=tenant.pk if tenant else None)


def left(now: datetime) -> list[str]:
    """Ids of those whose writer went silent, and of those whose task got lost."""
    with all_tenants("verifications of every tenant are done"):
        return list(_claimable(now).filter(_lost(now)).order_by("created_at").values_list("pk", flat=True))


def run_verification(verification_id: str, now: datetime) -> bool:
    """False when there is nothing to do, or somebody else does it."""
    with all_tenants("the trail is verified, whoever's events they are"):
        claimed = _claimable(now).filter(pk=verification_id)
        if not claimed.update(state="running", progressed_at=now):
            return False
        asked = AuditVerification.objects.get(pk=verification_id)
        for verdict in _verdicts(asked):
            _count(asked, verdict)
            asked.progressed_at = timezone.now()
            asked.save(update_fields=["progressed_at", "rows", "chains", "checkpoints", "broken"])
        _finish(asked, now)
    return True


def verify_daily(now: datetime) -> bool:
    """Everything, once a day; whether anything is broken."""
    with all_tenants("the platform verifies itself"):
        AuditVerification.objects.filter(state="done", finished_at__lt=now - KEPT).delete()
        asked = AuditVerification.objects.create(requested_by_name=_TASKS.name)
    run_verification(asked.pk, now)
    asked.refresh_from_db()
    return asked.broken is not None


def _verdicts(asked: AuditVerification) -> Iterator[Verdict]:
    return verify_all() if asked.tenant_id is None else iter([verify(asked.tenant_id)])


def _count(asked: AuditVerification, verdict: Verdict) -> None:
    asked.rows += verdict.rows
    asked.chains += 1
    asked.checkpoints += verdict.checkpoints
    if verdict.broken is not None and asked.broken is None:
        asked.broken = asdict(verdict.broken)


@transaction.atomic
def _finish(asked: AuditVerification, now: datetime) -> None:
    asked.state, asked.finished_at = "done", timezone.now()
    asked.save(update_fields=["state", "finished_at"])
    if asked.broken is not None:
        record(
            by=_TASKS,
            action="audit.found_broken",
            target=_target(asked),
            after=asked.broken,
            tenant=Tenant.objects.filter(pk=asked.tenant_id).first(),
            outcome="failure",
            reason=SENTENCES[asked.broken["what"]],
        )


def _claimable(now: datetime) -> QuerySet[AuditVerification]:
    silent = Q(state="running", progressed_at__lt=now - SILENT_FOR)
    return AuditVerification.objects.filter(Q(state="pending") | silent)


def _lost(now: datetime) -> Q:
    return ~Q(state="pending") | Q(created_at__lt=now - SILENT_FOR)


def _target(asked: AuditVerification) -> Target:
    return Target("audit_trail", asked.pk, "audit trail")
