"""Exports as pages and the API ask for them and fetch them; both call this."""

from __future__ import annotations

from django.db import transaction
from django.http import HttpRequest
from django.http.response import HttpResponseBase

from console.downloads import asked_part, send_file
from serving.control.task_outbox import ask
from tenants.actors import Actor
from tenants.models import AuditExport, Tenant
from tenants.trail.exports import file_name, file_of, record_download, request_export
from tenants.trail.formats import FORMATS
from tenants.trail.search import Asked


@transaction.atomic
def request_file(*, by: Actor, tenant: Tenant | None, format: str, asked: Asked) -> AuditExport:
    """The export and the task that writes it, in one transaction. Raises what `request_export` raises."""
    export = request_export(by=by, tenant=tenant, format=format, asked=asked)
    ask("console.tasks.export_audit_trail", export_id=export.pk)
    return export


def send_export(request: HttpRequest, *, by: Actor, export: AuditExport) -> HttpResponseBase:
    """The file or a range of it; that it was carried away is an event. Raises `NotFound` where there is none."""
    path = file_of(export)
    part = asked_part(request, path.stat().st_size, export.sha256)
    if part is not None:
        record_download(by=by, export=export, is_later_part=part[0] > 0)
    media_type = FORMATS[export.format].media_type
    return send_file(request, path, name=file_name(export), media_type=media_type, digest=export.sha256)
