"""Promises: what was kept of them over a span, what is left of each error budget, and where the time went."""

from __future__ import annotations

import time
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

from django.http import HttpResponse

from console.pages.answers import page, show
from console.pages.spans import SPAN_WORDS, TimeSpan, span_of
from console.pages.usage_query import readable
from console.requests import ConsoleRequest
from serving.control.catalog.access import visible_models
from serving.control.telemetry.history import Unanswerable
from serving.control.telemetry.promises import STAGES, Attainment, Kept, attainment
from tenants.models import Tenant
from tenants.scoping import tenant_scope

MAX_ROWS = 100
LOW_SHARE = 0.25
"""With less of its budget left a promise is at risk."""


@dataclass(frozen=True, slots=True)
class Stage:
    """One bar of a waterfall: where it begins and how wide it is, in percent of the mean answer."""

    name: str
    mean_ms: float
    p95_ms: float | None
    begins: str
    width: str
    share: float


@dataclass(frozen=True, slots=True)
class Row:
    kept: Kept
    tenant: Tenant | None
    is_known: bool
    """Whether the model has a page for the reader."""
    stages: list[Stage]

    @property
    def key(self) -> str:
        """Finds the row again after the page is refreshed."""
        return f"{self.kept.tenant_id}-{self.kept.model}"

    @property
    def state(self) -> str:
        left = self.kept.budget.left_share
        if left is None:
            return "not_promised"
        if left <= 0:
            return "broken_promise"
        return "at_risk" if left < LOW_SHARE or self.kept.budget.lasts_s is not None else "kept"

    @property
    def left_percent(self) -> int:
        return round(100 * min(1.0, max(0.0, self.kept.budget.left_share or 0.0)))

    @property
    def lasts_ms(self) -> float | None:
        lasts_s = self.kept.budget.lasts_s
        return None if lasts_s is None else lasts_s * 1000

    @property
    def is_late(self) -> bool:
        p95 = self.kept.figures["total_p95_ms"]
        return p95 is not None and p95 > self.kept.profile.target_p95_ms


@page("promises")
def index(request: ConsoleRequest) -> HttpResponse:
    return show(request, "pages/promises.html", **_context(request))


@page("promises")
def state(request: ConsoleRequest) -> HttpResponse:
    """The page's inner part, read anew now and then."""
    return show(request, "pages/promises_state.html", **_context(request))


def _context(request: ConsoleRequest) -> dict[str, Any]:
    span = span_of(request.GET)
    context = {"span": span, "span_words": SPAN_WORDS.items(), "asked": request.GET.urlencode()}
    try:
        found = _read(request, span)
    except Unanswerable as error:
        return context | {"refusal": str(error)}
    rows = _rows(request, found.rows[:MAX_ROWS])
    states = [row.state for row in rows]
    return context | {
        "rows": rows,
        "left_out": len(found.rows) - len(rows),
        "objective": found.objective,
        "covered_share": min(1.0, found.covered_s / span.seconds),
        "kept_count": states.count("kept"),
        "risk_count": states.count("at_risk"),
        "broken_count": states.count("broken_promise"),
    }


def _read(request: ConsoleRequest, span: TimeSpan) -> Attainment:
    ids = readable(request)
    with nullcontext() if ids is None else tenant_scope(ids):
        return attainment(span.since, span.until, time.time())


def _rows(request: ConsoleRequest, found: list[Kept]) -> list[Row]:
    tenants = Tenant.objects.in_bulk({kept.tenant_id for kept in found})
    asked = {kept.model for kept in found}
    known = set(visible_models(request.actor, None).filter(name__in=asked).values_list("name", flat=True))
    return [
        Row(kept, tenants.get(kept.tenant_id), kept.model in known, stages_of(kept.figures)) for kept in found
    ]


def stages_of(figures: dict[str, float | None]) -> list[Stage]:
    """The mean answer as a waterfall, stage after stage. Pure."""
    means = [(stage, figures[f"{stage}_mean_ms"] or 0.0) for stage in STAGES]
    whole = sum(mean for _, mean in means)
    if not whole:
        return []
    out, before = [], 0.0
    for stage, mean in means:
        begins, width = 100 * before / whole, 100 * mean / whole
        out.append(
            Stage(stage, mean, figures[f"{stage}_p95_ms"], f"{begins:.2f}", f"{width:.2f}", mean / whole)
        )
        before += mean
    return out
