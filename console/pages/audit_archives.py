"""How long events stay in the database, and the signed files that hold older ones."""

from __future__ import annotations

from typing import Any

from django import forms
from django.http import HttpResponse, JsonResponse
from django.http.response import HttpResponseBase
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from console.audit_archives import send_archive
from console.pages.answers import FORM, GET, FormPage, attempt, go, page, show
from console.pages.forms import ActionForm
from console.requests import ConsoleRequest
from tenants.access import require
from tenants.models import AuditArchive
from tenants.roles import Right
from tenants.scoping import all_tenants
from tenants.trail.archives.actions import access_archive, retention_of, set_retention
from tenants.trail.archives.models import MAX_MONTHS, MIN_MONTHS
from tenants.trail.canonical import chain_of

ARCHIVES_SHOWN = 100


class RetentionForm(ActionForm):
    months = forms.IntegerField(
        label=gettext_lazy("Months"),
        required=False,
        min_value=MIN_MONTHS,
        max_value=MAX_MONTHS,
        help_text=gettext_lazy("Empty: every event stays in the database."),
    )


@page("audit")
def index(request: ConsoleRequest) -> HttpResponse:
    tenant_id = request.tenant.pk if request.tenant else None
    require(request.actor, Right.EXPORT_AUDIT, tenant_id)
    with all_tenants("the right is asked for above"):
        archives = list(
            AuditArchive.objects.filter(chain=chain_of(tenant_id)).order_by("-first_position")[
                :ARCHIVES_SHOWN
            ]
        )
    return show(
        request,
        "pages/audit_archives.html",
        archives=archives,
        months=retention_of(request.tenant),
        may_change=request.actor.has(Right.EDIT_TENANT, tenant_id),
        crumbs=[(_("Audit"), reverse("audit"))],
    )


@page("audit", FORM)
def retention(request: ConsoleRequest) -> HttpResponse:
    for right in (Right.EXPORT_AUDIT, Right.EDIT_TENANT):
        require(request.actor, right, request.tenant.pk if request.tenant else None)
    typed: Any = request.POST if request.method == "POST" else None
    form = RetentionForm(typed, initial={"months": retention_of(request.tenant)})

    def save(**values: Any) -> bool:
        set_retention(by=request.actor, tenant=request.tenant, **values)
        return True

    if attempt(form, save):
        return go(request, reverse("audit_archives"), _("Saved."))
    frame = FormPage(
        title=_("Retention of the audit trail"),
        submit=_("Save"),
        back=reverse("audit_archives"),
        intro=_("Older events move to signed files, which stay and still prove themselves."),
        crumbs=[(_("Audit"), reverse("audit")), (_("Archives"), reverse("audit_archives"))],
    )
    return frame.show(request, form)


@page("audit", GET)
def download(request: ConsoleRequest, archive_id: str) -> HttpResponseBase:
    archive = access_archive(request.actor, archive_id)
    return send_archive(request, by=request.actor, archive=archive)


@page("audit", GET)
def manifest(request: ConsoleRequest, archive_id: str) -> HttpResponse:
    archive = access_archive(request.actor, archive_id)
    name = f"{archive.pk}.manifest.json"
    headers = {"Content-Disposition": f'attachment; filename="{name}"', "Cache-Control": "no-store"}
    return JsonResponse(archive.manifest, headers=headers, json_dumps_params={"indent": 2})
