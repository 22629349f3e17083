"""Exports of the audit trail: asked for in two clicks, watched, fetched with their manifest."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import HttpResponse, JsonResponse
from django.http.response import HttpResponseBase
from django.urls import reverse
from django.utils.translation import gettext as _

from console.audit_exports import request_file, send_export
from console.pages.answers import GET, go, page, show
from console.requests import ConsoleRequest
from tenants.access import require
from tenants.errors import Conflict, Invalid
from tenants.roles import Right
from tenants.trail.exports import access_export, file_name, visible_exports
from tenants.trail.search import Asked

EXPORTS_SHOWN = 8


@page("audit", ("GET", "HEAD", "POST"))
def index(request: ConsoleRequest) -> HttpResponse:
    """The list, which asks for itself while a file is being written; POST begins another one."""
    if request.method == "POST":
        return _create(request)
    require(request.actor, Right.EXPORT_AUDIT, request.tenant.pk if request.tenant else None)
    return show(request, "pages/audit_exports.html", **shown_exports(request))


@page("audit", GET)
def download(request: ConsoleRequest, export_id: str) -> HttpResponseBase:
    """The file, whole or a range of it."""
    export = access_export(request.actor, export_id)
    return send_export(request, by=request.actor, export=export)


@page("audit", GET)
def manifest(request: ConsoleRequest, export_id: str) -> HttpResponse:
    export = access_export(request.actor, export_id)
    name = f"{file_name(export)}.manifest.json"
    headers = {"Content-Disposition": f'attachment; filename="{name}"', "Cache-Control": "no-store"}
    return JsonResponse(export.manifest or {}, headers=headers, json_dumps_params={"indent": 2})


def shown_exports(request: ConsoleRequest) -> dict[str, Any]:
    """The newest of the chosen tenant, or of the platform; none for who may not export."""
    tenant = request.tenant
    if not request.actor.has(Right.EXPORT_AUDIT, tenant.pk if tenant else None):
        return {"may_export": False, "exports": []}
    exports = list(visible_exports(request.actor, tenant)[:EXPORTS_SHOWN])
    return {
        "may_export": True,
        "exports": exports,
        "is_writing": any(each.is_active for each in exports),
    }


def _create(request: ConsoleRequest) -> HttpResponse:
    typed = {name: str(value) for name, value in request.POST.items()}
    try:
        request_file(
            by=request.actor,
            tenant=request.tenant,
            format=typed.get("format", ""),
            asked=Asked.of(typed),
        )
    except (Conflict, Invalid) as error:
        messages.error(request, error.message)
        return go(request, reverse("audit"))
    return go(request, reverse("audit") + "#exports", _("The export is being written."))
