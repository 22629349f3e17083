"""Ask for a tuning run, call it off, take in what it measured, make a version of what it found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, cast

import msgspec
from django.conf import settings
from django.db import transaction
from django.utils import timezone

from serving.contract import EngineName, OptionValue, SampleTensor, TuningReport, TuningRow
from serving.control import publish
from serving.control.catalog import options as catalog_options
from serving.control.catalog.actions import register_variant
from serving.control.catalog.models import Engine, Version
from serving.control.catalog.validation import request_validation
from serving.control.fleet.hosts import any_live_host
from serving.control.fleet.models import Host
from serving.control.tuning import states
from serving.control.tuning.candidates import (
    MAX_CANDIDATES,
    HostFacts,
    Options,
    Plan,
    plan,
    reference_of,
)
from serving.control.tuning.models import TuningCandidate, TuningRun
from serving.control.tuning.recommend import Goal, Tolerance
from serving.control.tuning.samples import checked_texts
from tenants.access import require
from tenants.actors import Actor
from tenants.audit import record
from tenants.errors import Conflict, Invalid
from tenants.roles import Right
from tenants.validation import save_valid

PROGRESS_WITHIN = timedelta(minutes=15)
"""An agent that says nothing for so long has given up; a candidate takes five minutes at most."""
_CONTROLLER = Actor.system("controller")


@transaction.atomic
def request_tuning(
    *,
    by: Actor,
    version: Version,
    tolerance: Tolerance = Tolerance(),
    goal: Goal = "throughput",
    device: str = "cpu",
    texts: Sequence[str] = (),
    tensors: Sequence[SampleTensor] = (),
    candidates: Sequence[Mapping[str, Any]] | None = None,
) -> TuningRun:
    """Measure `version` under other options on a live host.

    `candidates` are changes to the reference (fp32, nothing approximated); None chooses them by engine and
    host. Raises `Conflict` unless the version is ready and not being tuned, `Invalid` by field.
    """
    require(by, Right.MANAGE_MODELS)
    row = (
        Version.objects.select_related("model", "artifact").select_for_update(of=("self",)).get(pk=version.pk)
    )
    _check_version(row)
    _check_tolerance(tolerance)
    host = any_live_host()
    chosen = _plan(row, candidates, _facts(host, device))
    run = TuningRun(
        version=row,
        host=host.name if host is not None else settings.HOST_NAME,
        device=device,
        goal=goal,
        min_cosine=tolerance.min_cosine,
        max_error=tolerance.max_error,
        min_label_agreement=tolerance.min_label_agreement,
        texts=list(checked_texts(texts)),
        tensors=msgspec.to_builtins(tuple(tensors)),
        skipped=[{"options": options, "reason": reason} for options, reason in chosen.skipped],
        created_by=by.name,
    )
    save_valid(run)
    TuningCandidate.objects.bulk_create(
        TuningCandidate(run=run, index=index, options=options)
        for index, options in enumerate(chosen.candidates)
    )
    after = {"version": str(row), "host": run.host, "device": device, "candidates": len(chosen.candidates)}
    record(by=by, action="tuning.requested", target=run, after=after | {"goal": goal})
    _publish(run)
    return run


@transaction.atomic
def cancel_tuning(*, by: Actor, run: TuningRun) -> TuningRun:
    """The agent ends the candidate it is at; what was measured stays. Raises `Conflict` when it is over."""
    require(by, Right.MANAGE_MODELS)
    row = _locked(run.pk)
    before = row.state
    _move(row, "cancelled")
    record(by=by, action="tuning.cancelled", target=row, before={"state": before})
    _publish(row)
    return row


@transaction.atomic
def apply_tuning(*, by: Actor, run: TuningRun, index: int) -> Version:
    """Register a version of the same artifact with a candidate's options, and have it validated.

    Raises `Conflict` when the candidate did not run, or was made a version before.
    """
    require(by, Right.MANAGE_MODELS)
    row = _locked(run.pk)
    candidate = TuningCandidate.objects.select_for_update().filter(run=row, index=index).first()
    if candidate is None:
        raise Invalid({"candidate": "The run has no such candidate."})
    measured = candidate.row()
    if measured is None or not measured.ok:
        raise Conflict("This candidate did not run: there is nothing to make a version of.")
    if candidate.made is not None:
        raise Conflict(f"Version {candidate.made.number} was made of this candidate.")
    version = register_variant(by=by, version=row.version, options=candidate.options)
    candidate.made = version
    candidate.save(update_fields=["made"])
    record(by=by, action="tuning.applied", target=row, after={"candidate": index, "version": str(version)})
    # Code is trusted version by version: an operator says so before it runs.
    return version if version.engine == Engine.PYTHON else request_validation(by=by, version=version)


@transaction.atomic
def record_tuning(report: TuningReport) -> bool:
    """Take in what an agent says of a run; False when the run is over or unknown."""
    row = TuningRun.objects.select_for_update(of=("self",)).filter(pk=report.tuning_id).first()
    if row is None or row.state in ("failed", "cancelled"):
        return False
    if row.state == "requested":
        _move(row, "running")
    if report.row is not None:
        _keep(row, report.row)
    if report.is_done and row.is_active:
        _end(row, report.reason)
    return True


def step(now: datetime) -> int:
    """Fail runs that no agent has said anything of for too long; how many."""
    silent = TuningRun.objects.filter(state__in=states.ACTIVE, progress_at__lt=now - PROGRESS_WITHIN)
    return sum(_expire(run_id, now) for run_id in silent.values_list("pk", flat=True))


# ---------------------------------------------------------------- steps of the above


@transaction.atomic
def _expire(run_id: str, now: datetime) -> bool:
    rows = TuningRun.objects.select_for_update(of=("self",))
    row = rows.filter(pk=run_id, state__in=states.ACTIVE, progress_at__lt=now - PROGRESS_WITHIN).first()
    if row is None:
        return False
    minutes = int(PROGRESS_WITHIN.total_seconds() // 60)
    _end(row, f"Nothing was heard of it for {minutes} minutes from host {row.host}. Is its agent running?")
    return True


def _keep(row: TuningRun, measured: TuningRow) -> None:
    TuningCandidate.objects.filter(run=row, index=measured.index).update(
        measured=msgspec.to_builtins(measured, str_keys=True)
    )
    row.progress_at = timezone.now()
    row.save(update_fields=["progress_at"])


def _end(row: TuningRun, reason: str) -> None:
    _move(row, "failed" if reason else "done", reason)
    action = "tuning.failed" if reason else "tuning.done"
    record(by=_CONTROLLER, action=action, target=row, after={"state": row.state}, reason=reason)
    _publish(row)


def _move(row: TuningRun, state: states.TuningState, reason: str = "") -> None:
    """Raises `Conflict` unless the table of states allows it. The row is locked by the caller."""
    if row.state not in states.sources_of(state):
        raise Conflict(f"A tuning run that is {row.state} cannot become {state}.")
    now = timezone.now()
    row.state, row.state_reason, row.progress_at = state, reason, now
    row.ended_at = None if state in states.ACTIVE else now
    row.save(update_fields=["state", "state_reason", "progress_at", "ended_at"])


def _locked(run_id: str) -> TuningRun:
    rows = TuningRun.objects.select_for_update(of=("self",)).select_related("version__model")
    return rows.get(pk=run_id)


def _publish(run: TuningRun) -> None:
    """The version first: whoever reads the wish must find what to measure."""
    publish.version(run.version_id)
    publish.tuning(run.pk)


def _check_version(row: Version) -> None:
    if not row.is_ready:
        raise Conflict("Only a version that passed validation can be tuned.")
    if row.tunings.filter(state__in=states.ACTIVE).exists():
        raise Conflict("This version is being tuned already. Wait for it, or cancel it.")


def _check_tolerance(asked: Tolerance) -> None:
    errors = {}
    for name in ("min_cosine", "min_label_agreement"):
        value = getattr(asked, name)
        if value is not None and not 0.0 <= value <= 1.0:
            errors[name] = "From 0 to 1."
    if asked.max_error is not None and not asked.max_error >= 0.0:
        errors["max_error"] = "Not negative."
    if errors:
        raise Invalid(errors)


def _facts(host: Host | None, device: str) -> HostFacts:
    """Raises `Invalid` for a device that the host does not have."""
    infos = {info.name: info for info in host.device_infos()} if host is not None else {}
    info = infos.get(device)
    if info is None and (infos or device != "cpu"):
        raise Invalid({"device": f"The host has {', '.join(infos) or 'only its CPU'}."})
    features = frozenset(host.features) if host is not None else frozenset()
    return HostFacts(info.kind if info else "cpu", info.cores if info else 1, features)


def _plan(row: Version, wishes: Sequence[Mapping[str, Any]] | None, facts: HostFacts) -> Plan:
    engine = cast(EngineName, row.engine)
    chosen = plan(engine, row.options, facts) if wishes is None else _explicit(row, wishes)
    if len(chosen.candidates) < 2:
        raise Conflict(f"There is nothing to vary: the {row.engine} engine has one way to run on this host.")
    return chosen


def _explicit(row: Version, wishes: Sequence[Mapping[str, Any]]) -> Plan:
    if not 1 <= len(wishes) < MAX_CANDIDATES:
        raise Invalid({"candidates": f"1 to {MAX_CANDIDATES - 1} sets of options."})
    reference = reference_of(cast(EngineName, row.engine), row.options)
    found: list[Options] = [reference]
    for number, wish in enumerate(wishes):
        options = _complete(row, number, reference | dict(wish))
        if options not in found:
            found.append(options)
    return Plan(tuple(found))


def _complete(row: Version, number: int, options: Mapping[str, Any]) -> dict[str, OptionValue]:
    try:
        return catalog_options.complete(cast(EngineName, row.engine), options)
    except catalog_options.InvalidOptions as error:
        errors = {f"candidates.{number}.{name}": said for name, said in error.errors.items()}
        raise Invalid(errors) from error
