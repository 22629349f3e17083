"""Verifications as pages and the API ask for them."""

from __future__ import annotations

from django.db import transaction

from serving.control.task_outbox import ask
from tenants.actors import Actor
from tenants.models import AuditVerification, Tenant
from tenants.trail.verifications import request_verification


@transaction.atomic
def verification_asked(*, by: Actor, tenant: Tenant | None) -> AuditVerification:
    """The verification and the task that does it, in one transaction. Raises what `request_verification` raises."""
    asked = request_verification(by=by, tenant=tenant)
    ask("console.tasks.verify_audit_trail", verification_id=asked.pk)
    return asked
