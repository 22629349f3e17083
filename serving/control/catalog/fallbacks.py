"""Which version or model answers when a version cannot: who may declare it, and what fits.

A gateway uses a fallback once and never the fallback's own, so a circle would do no harm on the data path; it
is refused all the same, because whoever draws one expects more of it than it gives.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from django.db import transaction

from serving.contract import TensorSpec
from serving.control import publish
from serving.control.catalog.models import Model, Version
from tenants.access import require
from tenants.actors import Actor
from tenants.audit import record
from tenants.errors import Conflict, Invalid
from tenants.roles import Right
from tenants.validation import save_valid

Target = Version | Model
FIELD = "fallback"


@transaction.atomic
def set_fallback(*, by: Actor, version: Version, fallback: Target | None) -> Version:
    """Name what answers instead of `version`: a ready version, or whatever a model's route gives.

    Raises `Conflict` for an archived version, `Invalid` when the fallback leads back to the version, is not
    ready, or takes or gives something else.
    """
    require(by, Right.MANAGE_MODELS)
    row = _locked(version)
    if row.state == "archived":
        raise Conflict("An archived version needs no fallback.")
    if fallback is not None:
        # Not the caller's copy: it may have been read before another fallback was set.
        fallback = type(fallback).objects.get(pk=fallback.pk)
        _check(row, fallback)
    before = said(row)
    row.fallback_version = fallback if isinstance(fallback, Version) else None
    row.fallback_model = fallback if isinstance(fallback, Model) else None
    if said(row) == before:
        return row
    save_valid(row)
    record(
        by=by,
        action="version.fallback_set",
        target=row,
        before={FIELD: before},
        after={FIELD: said(row)},
    )
    publish.version(row)
    return row


def said(version: Version) -> str | None:
    """`model/number` or the model's name; None without a fallback."""
    if version.fallback_version is not None:
        return str(version.fallback_version)
    return version.fallback_model.name if version.fallback_model is not None else None


def inherited(model: Model) -> dict[str, Any]:
    """What a new version of the model starts with: the fallback of its newest one."""
    newest = model.versions.exclude(state="archived").order_by("-number").first()
    if newest is None:
        return {}
    return {"fallback_version": newest.fallback_version, "fallback_model": newest.fallback_model}


def candidates(version: Version) -> tuple[list[Model], list[Version]]:
    """Models and versions that would be accepted, by name."""
    ready = Version.objects.filter(state="ready").exclude(pk=version.pk).select_related("model")
    fitting = [
        other for other in ready.order_by("model__name", "-number") if _why_not(version, other) is None
    ]
    fitting = [other for other in fitting if not _leads_back(version, other)]
    models = {other.model.name: other.model for other in fitting if other.model_id != version.model_id}
    models = {name: model for name, model in models.items() if not _leads_back(version, model)}
    return list(models.values()), fitting


# ---------------------------------------------------------------- checks


def _check(version: Version, fallback: Target) -> None:
    """Raises `Invalid`."""
    if _leads_back(version, fallback):
        raise Invalid({FIELD: f"{fallback} leads back to {version}."})
    ready = _ready(fallback)
    if not ready:
        raise Invalid({FIELD: f"{fallback} has nothing that is ready."})
    reasons = [_why_not(version, other) for other in ready]
    if None not in reasons:
        raise Invalid({FIELD: f"{fallback} {reasons[0]}."})


def _ready(target: Target) -> list[Version]:
    if isinstance(target, Version):
        return [target] if target.is_ready else []
    return list(target.versions.filter(state="ready").order_by("-number"))


def _leads_back(version: Version, target: Target) -> bool:
    """Whether following fallbacks from `target` comes to `version`, or to its model as a whole."""
    seen: set[str] = set()
    waiting: list[Target] = [target]
    while waiting:
        one = waiting.pop()
        if one.pk in (version.pk, version.model_id):
            return True
        if one.pk not in seen:
            seen.add(one.pk)
            waiting += _next(one)
    return False


def _next(target: Target) -> Iterable[Target]:
    rows = [target] if isinstance(target, Version) else target.versions.exclude(state="archived")
    for row in rows:
        onward = row.fallback_version or row.fallback_model
        if onward is not None:
            yield onward


def _why_not(version: Version, other: Version) -> str | None:
    """Why requests for `version` would not fit `other`, where validation has seen both; None when they do."""
    if (version.engine == "encoder") != (other.engine == "encoder"):
        return "takes text, not tensors" if other.engine == "encoder" else "takes tensors, not text"
    mine, theirs = version.input_specs(), other.input_specs()
    if not (_covers(mine, theirs) and _covers(theirs, mine)):
        return "takes other inputs"
    if not _covers(other.output_specs(), version.output_specs()):
        return "gives other outputs"
    return None


def _covers(given: Sequence[TensorSpec], wanted: Sequence[TensorSpec]) -> bool:
    """Whether everything that is wanted is given, in the same type and shape."""
    by_name = {spec.name: spec for spec in given}
    if not given or not wanted:
        return True
    return all(spec.name in by_name and _fits(by_name[spec.name], spec) for spec in wanted)


def _fits(one: TensorSpec, other: TensorSpec) -> bool:
    is_alike = one.datatype == other.datatype and len(one.shape) == len(other.shape)
    sizes = zip(one.shape, other.shape, strict=False)
    return is_alike and all(a == b or -1 in (a, b) for a, b in sizes)


def _locked(version: Version) -> Version:
    """The version, behind the lock of every model: whoever looks for a circle sees all fallbacks there are."""
    list(Model.objects.select_for_update().order_by("pk").values_list("pk"))
    rows = Version.objects.select_for_update(of=("self",))
    return rows.select_related("model", "fallback_version__model", "fallback_model").get(pk=version.pk)
