"""How far promises were kept over a span: attainment and error budget of each tenant × model.

Of the requests that were promised something, the objective's share must be answered within the profile's target;
the rest is the error budget. What is left of it, and how long that lasts at the rate of the span's last part, are
those of burn-rate alerts (`serving.control.alerts.rules.burn_of`), read over the span that is looked at.
"""

from __future__ import annotations

from dataclasses import dataclass

from django.conf import settings

from serving.contract import ProfileEntry
from serving.control.entries import binding_entry, profile_entry
from serving.control.profiles.models import ProfileBinding
from serving.control.telemetry.history import Question, sums
from serving.profiles import ENDPOINTS, ProfileTable
from serving.telemetry import frames
from serving.telemetry.metrics import METRICS
from serving.telemetry.tally import Tally

RECENT_PARTS, MAX_RECENT_S, MIN_RECENT_S = 12, 3600.0, 60.0
STAGES = tuple(stage for stage in frames.STAGES if stage != "total")
FIGURES = (
    "kept_share", "requests_s", "total_p50_ms", "total_p95_ms", "total_p99_ms", "batch_rows_mean", "shared_share",
    "batch_efficiency", "error_share", "refusal_share",
    *(f"{stage}_{figure}_ms" for stage in STAGES for figure in ("mean", "p95")),
)  # fmt: skip
"""What is told of each row, by the catalog's names."""

Pair = tuple[str, str]
"""Tenant id, model."""


@dataclass(frozen=True, slots=True)
class Budget:
    """Shares of the span's error budget; None where nothing was promised."""

    left_share: float | None
    """Below 0 when more was broken than the objective allows."""
    burn: float | None
    """How many times faster than allowed it was spent in the span's last part: 1 spends it exactly."""
    lasts_s: float | None
    """Until nothing is left at that rate; 0 when it is used up, None when it is not spent faster than allowed."""


@dataclass(frozen=True, slots=True)
class Kept:
    """One tenant × model over the span. `profile` is what its first endpoint is promised."""

    tenant_id: str
    model: str
    profile: ProfileEntry
    requests: int
    figures: dict[str, float | None]
    budget: Budget


@dataclass(frozen=True, slots=True)
class Attainment:
    objective: float
    covered_s: float
    """Seconds of the span that gateways reported on."""
    rows: list[Kept]
    """Those that were promised something; the least budget left first."""


def budget_of(whole: Tally, recent: Tally, span_s: float, objective: float) -> Budget:
    """Pure. `recent` is what was counted in the last part of `whole`'s span."""
    burnt, burn = _burn(whole, objective), _burn(recent, objective)
    left = None if burnt is None else 1 - burnt
    return Budget(left, burn, _lasts_s(left, burn, span_s))


def recent_s(span_s: float) -> float:
    """How long the part is whose rate is taken for the present one. Pure."""
    return min(MAX_RECENT_S, max(MIN_RECENT_S, span_s / RECENT_PARTS))


def attainment(since: float, until: float, now: float, only: dict[str, str] | None = None) -> Attainment:
    """Every tenant × model of the caller's scope that was promised something. Raises `Unanswerable`."""
    objective: float = settings.SLA_OBJECTIVE
    by, chosen = ("tenant_id", "model"), only or {}
    tallies, covered_s = sums(Question((), since, until, by=by, only=chosen), now)
    late, _ = sums(Question((), until - recent_s(until - since), until, by=by, only=chosen), now)
    profiles = _profiles()
    rows = []
    for (tenant_id, model), tally in tallies.items():
        if (
            not tenant_id or tally.kept_share is None
        ):  # without a valid key, or nothing that a model answers for
            continue
        budget = budget_of(tally, late.get((tenant_id, model), Tally()), until - since, objective)
        figures = {name: METRICS[name].read(tally, covered_s) for name in FIGURES}
        profile = profiles.resolve(tenant_id, model, ENDPOINTS[0])
        rows.append(Kept(tenant_id, model, profile, tally.ended, figures, budget))
    return Attainment(objective, covered_s, sorted(rows, key=_urgency))


def _burn(tally: Tally, objective: float) -> float | None:
    share = tally.kept_share
    return None if share is None else (1 - share) / (1 - objective)


def _lasts_s(left: float | None, burn: float | None, span_s: float) -> float | None:
    if left is None:
        return None
    if left <= 0:
        return 0.0
    return left * span_s / burn if burn is not None and burn > 1 else None


def _urgency(row: Kept) -> tuple[float, str, str]:
    return (row.budget.left_share or 0.0, row.tenant_id, row.model)


def _profiles() -> ProfileTable:
    bindings = list(ProfileBinding.objects.select_related("profile", "model"))
    return ProfileTable(
        [binding_entry(row) for row in bindings],
        {row.profile_id: profile_entry(row.profile) for row in bindings},
    )
