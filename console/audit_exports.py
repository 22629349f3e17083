"""Asks for an export and for the task that writes it, in one transaction; pages and the API call this."""

from __future__ import annotations

from django.db import transaction

from serving.control.task_outbox import ask
from tenants.actors import Actor
from tenants.models import AuditExport, Tenant
from tenants.trail.exports import request_export
from tenants.trail.search import Asked


@transaction.atomic
def request_file(*, by: Actor, tenant: Tenant | None, format: str, asked: Asked) -> AuditExport:
    """Raises what `request_export` raises."""
    export = request_export(by=by, tenant=tenant, format=format, asked=asked)
    ask("console.tasks.export_audit_trail", export_id=export.pk)
    return export
