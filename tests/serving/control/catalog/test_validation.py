"""Validation: asked for, reported once, never waited for without end."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest
from django.utils import timezone

from serving.contract import CostCurve, MeasuredPoint, TensorSpec, ValidationReport
from serving.control.catalog import actions, states, validation
from serving.control.catalog.models import Version
from serving.control.fleet.models import Host
from serving.control.seam_tables import ConfigEntry
from tenants.actors import Actor
from tenants.errors import Conflict
from tests.serving.control.catalog import crafting

Register = Callable[..., Version]


def report(version: Version, **changed: object) -> ValidationReport:
    values: dict[str, object] = {
        "version_id": version.pk,
        "attempt": version.validation_attempt,
        "ok": True,
        "inputs": (TensorSpec(name="text", datatype="BYTES", shape=(-1,)),),
        "outputs": (TensorSpec(name="embedding", datatype="FP32", shape=(-1, 384)),),
        "cost": CostCurve(a_ms=1.0, b_ms_per_row=0.0, c_ms_per_token=0.05),
        "points": (MeasuredPoint(rows=1, tokens=8, execute_ms=1.4),),
        "memory_bytes": 1 << 28,
        "load_s": 0.5,
        "warm_up_s": 1.5,
    }
    return ValidationReport(**(values | changed))  # type: ignore[arg-type]


def entries(kind: str, key: str) -> list[ConfigEntry]:
    return list(ConfigEntry.objects.filter(kind=kind, key=key, deleted=False))


@pytest.fixture
def validating(register: Register, make_host: Callable[..., Host], operator: Actor) -> Version:
    make_host("alpha")
    return actions.request_validation(by=operator, version=register())


def test_the_wish_is_published_to_a_live_host(validating: Version) -> None:
    assert validating.state == "validating"
    assert entries("version", validating.pk)[0].body["engine"] == "encoder"
    wish = entries("validation", validating.pk)[0].body
    assert (wish["host"], wish.get("attempt", 1)) == ("alpha", 1)


def test_without_a_live_host_this_host_is_asked(
    register: Register, operator: Actor, settings: object
) -> None:
    settings.HOST_NAME = "here"  # type: ignore[attr-defined]
    assert actions.request_validation(by=operator, version=register()).validation_host == "here"


def test_a_good_report_makes_it_ready_with_what_was_measured(validating: Version) -> None:
    assert actions.record_validation(report(validating))
    row = Version.objects.get(pk=validating.pk)
    assert row.is_ready and row.memory_bytes == 1 << 28
    assert row.cost_curve() == CostCurve(a_ms=1.0, b_ms_per_row=0.0, c_ms_per_token=0.05)
    assert row.input_specs()[0].name == "text" and row.measured_points()[0].tokens == 8
    assert entries("validation", row.pk) == []


def test_a_bad_report_shows_its_reason_and_may_be_repeated(validating: Version, operator: Actor) -> None:
    actions.record_validation(report(validating, ok=False, reason="unsupported architecture"))
    row = Version.objects.get(pk=validating.pk)
    assert (row.state, row.state_reason) == ("failed", "unsupported architecture")
    again = actions.request_validation(by=operator, version=row)
    assert (again.state, again.state_reason, again.validation_attempt) == ("validating", "", 2)


def test_a_report_counts_once_and_only_for_its_attempt(validating: Version) -> None:
    assert not actions.record_validation(report(validating, attempt=7))
    assert actions.record_validation(report(validating))
    assert not actions.record_validation(report(validating, ok=False, reason="late"))
    assert Version.objects.get(pk=validating.pk).is_ready


def test_an_unknown_versions_report_is_ignored(db: None) -> None:
    assert not actions.record_validation(ValidationReport(version_id="mv_unknown", attempt=1, ok=True))


def test_a_second_wish_while_one_runs_is_refused(validating: Version, operator: Actor) -> None:
    with pytest.raises(Conflict):
        actions.request_validation(by=operator, version=validating)


def test_a_report_that_never_comes_fails_the_version(validating: Version) -> None:
    now = timezone.now()
    assert validation.step(now + validation.REPORT_WITHIN - timedelta(seconds=5)) == 0
    assert validation.step(now + validation.REPORT_WITHIN + timedelta(seconds=5)) == 1
    row = Version.objects.get(pk=validating.pk)
    assert row.state == "failed" and "alpha" in row.state_reason
    assert entries("validation", row.pk) == []


def test_onnx_is_validated_like_every_other_engine(register: Register, operator: Actor) -> None:
    row = actions.request_validation(by=operator, version=register(crafting.onnx(), engine="onnx"))
    assert row.state == "validating"
    assert entries("version", row.pk)[0].body["engine"] == "onnx"


@pytest.mark.parametrize("old", states.STATES)
@pytest.mark.parametrize("new", states.STATES)
def test_only_the_tables_moves_are_made(make_version: Callable[..., Version], old: str, new: str) -> None:
    from serving.control.catalog.transitions import move

    row = make_version(state=old)
    if new in states.NEXT[old]:  # type: ignore[index]
        move(row, new)  # type: ignore[arg-type]
        assert Version.objects.get(pk=row.pk).state == new
    else:
        with pytest.raises(Conflict):
            move(row, new)  # type: ignore[arg-type]


def test_what_the_engine_says_of_its_execution_is_kept(validating: Version) -> None:
    assert actions.record_validation(report(validating, notes=("Packed: rows run behind each other.",)))
    row = Version.objects.get(pk=validating.pk)
    assert row.notes == ["Packed: rows run behind each other."]
