"""The audit trail: who did what to which, with a readable diff, and the proof that it is whole."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any
from zoneinfo import ZoneInfo

from django.db.models import QuerySet, Subquery
from django.http import HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.translation import gettext as _

from console.audit_verifications import verification_asked
from console.pages.answers import GET, POST, go, page, show
from console.pages.audit_exports import shown_exports
from console.pages.listing import listing
from console.requests import ConsoleRequest
from tenants.access import require
from tenants.actors import Actor
from tenants.errors import Conflict, NotFound
from tenants.models import AuditArchive, AuditCheckpoint, AuditEvent, AuditLink, AuditVerification, Tenant
from tenants.roles import Right
from tenants.trail import signing
from tenants.trail.archives.finding import archive_of_event
from tenants.trail.canonical import chain_of
from tenants.trail.formats import available_formats
from tenants.trail.search import FILTERS, Asked, matching
from tenants.trail.verifications import of_tenant

RECENT_KINDS = 1_000
"""Newest events whose actions are offered as filters."""
MAX_COUNTED = 10_000
"""Events that are numbered pages; older and newer ones are as many pages again, by the number of an event."""
MAX_FOUND = 1_000
"""The same of a search for words: counting what it finds takes longer than finding it."""
LOOK = ("state", "rows", "checkpoints", "broken", "finished_at")
"""What the page shows of a verification."""


@page("audit")
def index(request: ConsoleRequest) -> HttpResponse:
    readable = _readable(request)
    asked = Asked.of({name: value for name, value in request.GET.items() if isinstance(value, str)})
    rows = matching(readable, asked, _zone(request.tenant))
    newest = _seq(request.GET.get("from", ""))
    if (way := request.GET.get("go")) in ("older", "newer"):
        return _moved(request, rows, newest, way, _reach(asked))
    found = listing(
        request,
        rows if newest is None else rows.filter(seq__lte=newest),
        sorts={"time": "seq", "actor": "actor_name", "action": "action"},
        default="-time",
        filters=dict.fromkeys(FILTERS, ""),
        page_rows=50,
        max_counted=_reach(asked),
    )
    for event in found.page:
        event.changes = changes(event.before, event.after)  # type: ignore[attr-defined]
    return show(
        request,
        "pages/audit.html",
        listing=found,
        newest=newest,
        kinds=_kinds(readable),
        formats=available_formats(),
        **_proof(request),
        **shown_exports(request),
    )


@page("audit")
def detail(request: ConsoleRequest, event_id: str) -> HttpResponse:
    """One event by an address that may be kept. Raises `NotFound` for one of a trail that is not theirs."""
    event = AuditEvent.objects.filter(event_id=event_id).first()
    if event is None and (archive := archive_of_event(request.actor, event_id)):
        return _archived(request, event_id, archive)
    if event is None or not request.actor.has(Right.VIEW_AUDIT, event.tenant_id):
        raise NotFound("event")
    link = AuditLink.objects.filter(pk=event.pk).first()
    return show(
        request,
        "pages/audit_event.html",
        event=event,
        changes=changes(event.before, event.after),
        link=link,
        hash=bytes(link.hash).hex() if link else "",
        crumbs=[(_("Audit"), reverse("audit"))],
        history=_history(request, event),
    )


def _archived(request: ConsoleRequest, event_id: str, archive: AuditArchive) -> HttpResponse:
    """Gone from here, and where to."""
    return show(
        request,
        "pages/audit_event_archived.html",
        status=410,
        event_id=event_id,
        archive=archive,
        may_fetch=request.actor.has(Right.EXPORT_AUDIT, archive.tenant_id),
        crumbs=[(_("Audit"), reverse("audit"))],
    )


def _history(request: ConsoleRequest, event: AuditEvent) -> list[AuditEvent]:
    """What else happened to the same thing, out of trails the person may read; what has no id is no one thing."""
    if not event.target_id:
        return []
    same = _readable(request).filter(target_type=event.target_type, target_id=event.target_id)
    return list(same.exclude(pk=event.pk)[:10])


@page("audit", POST)
def verify(request: ConsoleRequest) -> HttpResponse:
    """Ask for the chain to be followed from its first row."""
    with suppress(Conflict):  # it is being done, which is what was wanted
        verification_asked(by=request.actor, tenant=request.tenant)
    return go(request, reverse("audit") + "#proof")


@page("audit", GET)
def proof(request: ConsoleRequest) -> HttpResponse:
    """The card that says whether the trail is whole; it asks for itself while a verification runs."""
    return show(request, "pages/audit_proof.html", **_proof(request))


def changes(before: dict[str, Any] | None, after: dict[str, Any] | None) -> list[tuple[str, Any, Any]]:
    """Field, old, new; in the order of the names. None stands for "was not there"."""
    old, new = before or {}, after or {}
    names = sorted(old.keys() | new.keys())
    return [
        (name, _plain(old.get(name)), _plain(new.get(name)))
        for name in names
        if old.get(name) != new.get(name)
    ]


def _readable(request: ConsoleRequest) -> QuerySet[AuditEvent]:
    """Events of the chosen tenant, or of all in which the person may read them."""
    actor = request.actor
    if request.tenant is not None:
        require(actor, Right.VIEW_AUDIT, request.tenant.pk)
        return AuditEvent.objects.filter(tenant_id=request.tenant.pk)
    if actor.has(Right.VIEW_AUDIT):
        return AuditEvent.objects.all()
    allowed = _tenants_with(actor, Right.VIEW_AUDIT)
    if not allowed:
        require(actor, Right.VIEW_AUDIT)
    return AuditEvent.objects.filter(tenant_id__in=allowed)


def _kinds(readable: QuerySet[AuditEvent]) -> list[str]:
    newest = readable.order_by("-seq").values_list("action", flat=True)[:RECENT_KINDS]
    return sorted(set(newest))


def _seq(text: str) -> int | None:
    """A number of an event out of an address; what is none is ignored."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else None


def _reach(asked: Asked) -> int:
    return min(MAX_FOUND, MAX_COUNTED) if asked.q else MAX_COUNTED


def _moved(
    request: ConsoleRequest, rows: QuerySet[AuditEvent], newest: int | None, way: str, reach: int
) -> HttpResponse:
    """To as many events as can be paged through before or after these, which begin with `newest`."""
    query = request.GET.copy()
    for name in ("go", "page", "from"):
        query.pop(name, None)
    seqs = rows.values_list("seq", flat=True)
    if way == "older":
        reached = seqs if newest is None else seqs.filter(seq__lte=newest)
        start = reached.order_by("-seq")[reach : reach + 1].first()
    else:
        # The last one of the stretch before, unless that is the newest of all: no number says so.
        newer = list(seqs.filter(seq__gt=newest or 0).order_by("seq")[reach - 1 : reach + 1])
        start = newer[0] if len(newer) == 2 else None
    if start is not None:
        query["from"] = str(start)
    return redirect(f"{reverse('audit')}?{query.urlencode()}")


def _tenants_with(actor: Actor, right: Right) -> list[str]:
    return [tenant_id for tenant_id in actor.memberships if actor.has(right, tenant_id)]


def _proof(request: ConsoleRequest) -> dict[str, Any]:
    """Whether the chosen chain is whole: how long it is, what was signed, what the last look found."""
    _readable(request)
    tenant = request.tenant
    is_everything = tenant is None and request.actor.has(Right.VIEW_AUDIT)
    if tenant is None and not is_everything:
        return {"has_proof": False}
    end, verification = _end_and_verification(tenant)
    return {
        "has_proof": True,
        "may_verify": request.actor.has(Right.EXPORT_AUDIT, tenant.pk if tenant else None),
        "public_key": signing.public_key() if signing.can_sign() else "",
        "end": end,
        "verification": verification,
    }


def _end_and_verification(tenant: Tenant | None) -> tuple[AuditLink | None, AuditVerification | None]:
    """The chain's last link, with `signed_position` and `signed_at` of its newest checkpoint; the last look at it.

    One statement: the page asks enough others.
    """
    chain = chain_of(tenant.pk if tenant else None)
    signed = AuditCheckpoint.objects.filter(chain=chain).order_by("-position")
    looks = of_tenant(tenant)
    end = (
        AuditLink.objects.filter(chain=chain)
        .order_by("-position")
        .annotate(signed_position=Subquery(signed.values("position")[:1]))
        .annotate(signed_at=Subquery(signed.values("at")[:1]))
        .annotate(**{f"look_{name}": Subquery(looks.values(name)[:1]) for name in LOOK})
        .first()
    )
    if end is None:  # all of a chain may be gone, and a look that found so is what matters then
        return None, looks.first()
    found = {name: getattr(end, f"look_{name}") for name in LOOK}
    return end, AuditVerification(**found) if found["state"] else None


def _zone(tenant: Tenant | None) -> ZoneInfo:
    return ZoneInfo(tenant.time_zone if tenant else "UTC")


def _plain(value: Any) -> Any:
    if isinstance(value, dict | list):
        return json.dumps(value, ensure_ascii=False, sort_keys=True)
    return value
