"""The overview: are promises kept right now, and what changed in the last day."""

from __future__ import annotations

from datetime import timedelta

from django.conf import settings
from django.http import HttpResponse
from django.utils import timezone
from django.utils.translation import gettext as _

from console.live.topics import ALL
from console.pages.answers import POST, back, go, page, show
from console.pages.snippets import curl_embeddings
from console.requests import ConsoleRequest, choose_tenant
from serving.control.catalog.access import visible_models
from tenants.access import visible_tenants
from tenants.ending import ending_keys
from tenants.models import AuditEvent, Tenant
from tenants.roles import Right

RECENT = timedelta(days=1)
RECENT_ROWS = 8
ENDING_ROWS = 5
NO_CHANGE = (
    "user.signed_in",
    "user.signed_out",
    "user.sign_in_failed",
    "audit.exported",
    "alert_rule.installed",
)
"""Events that changed nothing, or came with the installation; the audit page has them."""


@page("overview")
def overview(request: ConsoleRequest) -> HttpResponse:
    tenant, model = live_tenant(request), _any_model(request)
    ending = list(ending_keys().select_related("tenant")[: ENDING_ROWS + 1])
    return show(
        request,
        "pages/overview.html",
        live_scope=tenant.pk if tenant else ALL,
        live_tenant=tenant,
        has_scope=tenant is not None or request.actor.sees_platform,
        words=live_words(),
        objective=settings.SLA_OBJECTIVE,
        changes=recent_changes(request),
        ending=ending[:ENDING_ROWS],
        has_more_ending=len(ending) > ENDING_ROWS,
        sees_audit=_sees_audit(request),
        curl=curl_embeddings(model) if model else "",
    )


@page("overview", POST)
def switch_tenant(request: ConsoleRequest) -> HttpResponse:
    """Look at one tenant, or at all of one's own."""
    choose_tenant(request, request.POST.get("tenant") or None)
    return go(request, back(request, "/"))


def live_tenant(request: ConsoleRequest) -> Tenant | None:
    """Whose live figures to stream: the chosen tenant's; for members, failing that, their first one's."""
    if request.tenant is not None or request.actor.sees_platform:
        return request.tenant
    return visible_tenants(request.actor).first()


def recent_changes(request: ConsoleRequest) -> list[AuditEvent]:
    if not _sees_audit(request):
        return []
    recent = AuditEvent.objects.filter(at__gte=timezone.now() - RECENT)
    return list(recent.exclude(action__in=NO_CHANGE)[:RECENT_ROWS])


def live_words() -> dict[str, str | float]:
    """Words of the live tables and charts, translated, and the objective; the scripts know none of their own."""
    return {
        "objective": settings.SLA_OBJECTIVE,
        "kept": _("kept"),
        "risk": _("at risk"),
        "broken": _("broken"),
        "unknown": _("no answers"),
        "no_model": _("unknown model"),
        "interactive": _("interactive"),
        "standard": _("standard"),
        "batch": _("batch"),
        "rows": _("rows"),
        "target": _("target"),
        "device": _("device use"),
        "gateway": _("gateway"),
        "queue": _("queue"),
        "batch_wait": _("batch wait"),
        "execute": _("execute"),
        "post": _("post"),
        "close_full": _("full"),
        "close_due": _("due"),
        "close_window": _("window"),
        "close_idle": _("device idle"),
        "close_drain": _("drain"),
        "why_full": _("no further row would have fitted"),
        "why_due": _("its promise left no time to wait"),
        "why_window": _("the wait for companions was over"),
        "why_idle": _("the device was free and nothing else waited"),
        "why_drain": _("the replica is being stopped"),
    }


def _sees_audit(request: ConsoleRequest) -> bool:
    """In the chosen tenant; without a choice, only those who see every row of the scope."""
    if request.tenant is not None:
        return request.actor.has(Right.VIEW_AUDIT, request.tenant.pk)
    if request.actor.sees_platform:
        return True
    own = request.actor.tenant_ids
    return bool(own) and all(request.actor.has(Right.VIEW_AUDIT, tenant_id) for tenant_id in own)


def _any_model(request: ConsoleRequest) -> str:
    """A model the person's command line would work with; empty when there is none."""
    models = visible_models(request.actor, request.tenant.pk if request.tenant else None)
    names = models.order_by("name").values_list("name", flat=True)
    return names.filter(deployments__state="active").first() or names.first() or ""
