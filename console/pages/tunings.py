"""Variant tuning: ask for a sweep, watch the table grow, make a version of the candidate one wants."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

from django import forms
from django.http import HttpResponse
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from console.pages.answers import FORM, Crumbs, FormPage, attempt, go, page, show, try_action
from console.pages.forms import ActionForm, FigureField
from console.requests import ConsoleRequest
from console.words import label_of, shortfall_of
from serving.contract import Agreement, TuningRow
from serving.control.catalog.access import access_version_number
from serving.control.catalog.models import Engine, Model, Version
from serving.control.fleet.hosts import live_hosts
from serving.control.tuning.access import access_tuning, visible_tunings
from serving.control.tuning.actions import apply_tuning, cancel_tuning, request_tuning
from serving.control.tuning.models import TuningCandidate, TuningRun
from serving.control.tuning.recommend import Goal, Recommendation, Tolerance, speed
from serving.control.tuning.samples import tensors_of, texts_of
from tenants.actors import Actor
from tenants.roles import Right

BATCHES = (1, 8, 32)
RUNS_SHOWN = 5


class TuneForm(ActionForm):
    goal = forms.ChoiceField(
        label=gettext_lazy("What counts"),
        widget=forms.RadioSelect,
        initial="throughput",
        choices=[
            ("throughput", gettext_lazy("Throughput: rows per second of large batches, by thread")),
            ("latency", gettext_lazy("Latency: how soon a single row is answered")),
        ],
    )
    min_cosine = FigureField(
        label=gettext_lazy("Least cosine"),
        required=False,
        initial=0.999,
        min_value=0,
        max_value=1,
        help_text=gettext_lazy(
            "Of the worst sample's vectors with those of full precision. Empty does not ask."
        ),
    )
    max_error = FigureField(
        label=gettext_lazy("Largest error"),
        required=False,
        min_value=0,
        help_text=gettext_lazy("Of any single number of an answer. Empty does not ask."),
    )
    min_label_agreement = FigureField(
        label=gettext_lazy("Least share of equal labels"),
        required=False,
        min_value=0,
        max_value=1,
        help_text=gettext_lazy("For models that answer with labels, from 0 to 1. Empty does not ask."),
    )
    device = forms.ChoiceField(label=gettext_lazy("Device"), initial="cpu", required=False)
    samples = forms.CharField(
        label=gettext_lazy("Samples"),
        required=False,
        strip=False,
        widget=forms.Textarea(attrs={"rows": 5, "class": "font-monospace", "spellcheck": "false"}),
    )

    def __init__(self, version: Version, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._version = version
        names = _devices()
        self.fields["device"].choices = [(name, name) for name in names]  # type: ignore[attr-defined]
        if len(names) == 1:
            self.fields["device"].widget = forms.HiddenInput()
        self.fields["samples"].help_text = _samples_help(version)

    def values(self) -> dict[str, Any]:
        """Raises `Invalid` for samples that cannot be read."""
        typed = self.cleaned_data
        tolerance = Tolerance(typed["min_cosine"], typed["max_error"], typed["min_label_agreement"])
        return {
            "goal": typed["goal"],
            "device": typed["device"] or "cpu",
            "tolerance": tolerance,
            **_samples(typed["samples"], self._version),
        }


@page("models", FORM)
def tune(request: ConsoleRequest, name: str, number: int) -> HttpResponse:
    version = access_version_number(request.actor, name, number, Right.MANAGE_MODELS)
    form = TuneForm(version, request.POST or None)
    run = attempt(form, request_tuning, by=request.actor, version=version)
    if run is not None:
        return go(request, reverse("tuning", args=[run.pk]))
    frame = FormPage(
        title=_("Tune %(version)s") % {"version": version},
        submit=_("Measure"),
        back=_model_address(version),
        intro=_(
            "The version is measured under other options, each in a process of its own beside what serves. Nothing changes until you make a version of one of them."
        ),
        crumbs=_crumbs(version),
    )
    return frame.show(request, form)


@page("models")
def detail(request: ConsoleRequest, tuning_id: str) -> HttpResponse:
    run = access_tuning(request.actor, tuning_id)
    return show(request, "pages/tuning.html", crumbs=_crumbs(run.version), **_context(request, run))


@page("models")
def state(request: ConsoleRequest, tuning_id: str) -> HttpResponse:
    """The part that grows while the run lasts."""
    run = access_tuning(request.actor, tuning_id)
    return show(request, "pages/tuning_state.html", **_context(request, run))


@page("models", ("POST",))
def apply(request: ConsoleRequest, tuning_id: str, index: int) -> HttpResponse:
    run = access_tuning(request.actor, tuning_id, Right.MANAGE_MODELS)
    said = _("The version is registered and being validated.")
    return try_action(request, _model_address(run.version), said, apply_tuning, run=run, index=index)


@page("models", ("POST",))
def cancel(request: ConsoleRequest, tuning_id: str) -> HttpResponse:
    run = access_tuning(request.actor, tuning_id, Right.MANAGE_MODELS)
    address = reverse("tuning", args=[run.pk])
    return try_action(request, address, _("Cancelled. What was measured stays."), cancel_tuning, run=run)


# ---------------------------------------------------------------- what the page shows


@dataclass(frozen=True, slots=True)
class CandidateView:
    """One row of the table. `width` is its speed as percent of the fastest one's."""

    candidate: TuningCandidate
    label: str
    row: TuningRow | None
    agreement: Agreement
    rates: tuple[float | None, ...]
    width: str
    gain: float | None
    """Its speed over the reference's."""
    shortfall: str
    is_recommended: bool
    is_current: bool
    is_next: bool

    @property
    def state(self) -> str:
        if self.row is None:
            if not self.candidate.run.is_active:
                return "not_measured"
            return "measuring" if self.is_next else "waiting"
        return "measured" if self.row.ok else "failed"


def _context(request: ConsoleRequest, run: TuningRun) -> dict[str, Any]:
    candidates, found = run.in_order(), run.recommendation()
    rows = [each.row() for each in candidates]
    speeds = [
        speed(row, each.options, cast(Goal, run.goal)) if row else 0.0
        for row, each in zip(rows, candidates, strict=True)
    ]
    waiting = next((at for at, row in enumerate(rows) if row is None), None) if run.is_active else None
    views = [
        _view(run, each, row, found, speeds=(value, speeds[0], max(speeds)), is_next=at == waiting)
        for at, (each, row, value) in enumerate(zip(candidates, rows, speeds, strict=True))
    ]
    return {
        "run": run,
        "views": views,
        "batches": BATCHES,
        "has_labels": any(view.agreement.label_agreement is not None for view in views),
        "best": next((view for view in views if view.is_recommended), None),
        "gain": found.gain,
        "done_count": sum(row is not None for row in rows),
        "skipped": [(label_of(each["options"]), _(each["reason"])) for each in run.skipped],
        "may_manage": request.actor.has(Right.MANAGE_MODELS),
    }


def _view(
    run: TuningRun,
    candidate: TuningCandidate,
    row: TuningRow | None,
    found: Recommendation,
    *,
    speeds: tuple[float, float, float],
    is_next: bool,
) -> CandidateView:
    """`speeds`: its own, the reference's, the fastest one's."""
    own, reference, fastest = speeds
    return CandidateView(
        candidate=candidate,
        label=label_of(candidate.changed()),
        row=row,
        agreement=(row.agreement if row else None) or Agreement(),
        rates=tuple(row.rows_per_s.get(rows) if row else None for rows in BATCHES),
        width=f"{own / (fastest or 1.0) * 100:.1f}",
        gain=own / reference if reference and row else None,
        shortfall=shortfall_of(row, run.tolerance()) if row and row.ok else "",
        is_recommended=candidate.index == found.index,
        is_current=candidate.options == run.version.options,
        is_next=is_next,
    )


def recent_runs(actor: Actor, model: Model) -> list[TuningRun]:
    """The newest runs of a model's versions, for its page."""
    return list(visible_tunings(actor).filter(version__model=model)[:RUNS_SHOWN])


def _devices() -> list[str]:
    """The devices of the live hosts, the CPU first."""
    names = {info.name for host in live_hosts() for info in host.device_infos()}
    return sorted(names | {"cpu"}, key=lambda name: (name != "cpu", name))


def _samples(typed: str, version: Version) -> dict[str, Any]:
    if version.engine == Engine.ENCODER or not typed.strip():
        return {"texts": texts_of(typed)}
    return {"tensors": tensors_of(typed, version.input_specs())}


def _samples_help(version: Version) -> str:
    if version.engine == Engine.ENCODER:
        return _("One text per line, like those that will come. Empty takes our own sentences.")
    return _("A JSON body with inputs, as clients send it. Empty takes made-up values.")


def _model_address(version: Version) -> str:
    return reverse("model", args=[version.model.name])


def _crumbs(version: Version) -> Crumbs:
    return [(_("Models"), reverse("models")), (version.model.name, _model_address(version))]
