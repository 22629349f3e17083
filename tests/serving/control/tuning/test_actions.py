"""Tuning runs: asked for once, taken in row by row, never waited for without end, made a version of."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest
from django.utils import timezone

from serving.contract import Agreement, TuningReport, TuningRow
from serving.control.catalog.models import Artifact, Version
from serving.control.fleet.models import Host
from serving.control.seam_tables import ConfigEntry
from serving.control.tuning import actions, states
from serving.control.tuning.access import access_tuning, visible_tunings
from serving.control.tuning.models import TuningRun
from serving.control.tuning.recommend import Tolerance
from tenants.actors import Actor
from tenants.errors import Conflict, Invalid, NotAllowed, NotFound
from tenants.models import AuditEvent
from tenants.scoping import all_tenants

EXACT = Agreement(cosine_min=1.0, cosine_mean=1.0, max_abs_error=0.0)
WISHES = [{"dtype": "bf16"}, {"execution": "padded"}]


def entry(kind: str, key: str) -> dict | None:
    row = ConfigEntry.objects.filter(kind=kind, key=key, deleted=False).first()
    return None if row is None else row.body  # type: ignore[return-value]


def events() -> list[str]:
    with all_tenants("a test reads the trail"):
        return list(AuditEvent.objects.order_by("seq").values_list("action", flat=True))


def measured(index: int, rate: float, **changed: object) -> TuningRow:
    values = {"rows_per_s": {1: rate / 2, 32: rate}, "p50_ms": 2.0, "memory_bytes": 1 << 20, "load_s": 1.0}
    return TuningRow(index=index, ok=True, agreement=EXACT, **(values | changed))  # type: ignore[arg-type]


def report(run: TuningRun, row: TuningRow | None = None, **changed: object) -> bool:
    return actions.record_tuning(TuningReport(tuning_id=run.pk, row=row, **changed))  # type: ignore[arg-type]


@pytest.fixture
def encoder(make_version: Callable[..., Version]) -> Version:
    artifact = Artifact.objects.create(
        sha256="a" * 64, format="encoder", size_bytes=1, file_count=1, created_by="test"
    )
    version = make_version()
    options = {"dtype": "fp32", "quantize": "none", "execution": "auto", "compile": False, "threads": 1}
    Version.objects.filter(pk=version.pk).update(engine="encoder", artifact=artifact, options=options)
    return Version.objects.select_related("model", "artifact").get(pk=version.pk)


@pytest.fixture
def run(encoder: Version, make_host: Callable[..., Host], operator: Actor) -> TuningRun:
    make_host("alpha")
    return actions.request_tuning(by=operator, version=encoder, candidates=WISHES)


def test_the_wish_is_published_with_its_version(run: TuningRun, encoder: Version) -> None:
    assert run.state == "requested"
    wish = entry("tuning", run.pk)
    assert wish is not None
    assert (wish["host"], wish["version_id"]) == ("alpha", encoder.pk)
    assert [each["dtype"] for each in wish["candidates"]] == ["fp32", "bf16", "fp32"]
    assert entry("version", encoder.pk) is not None
    assert events()[-1] == "tuning.requested"


def test_candidates_follow_from_the_host_when_nobody_names_them(
    encoder: Version, make_host: Callable[..., Host], operator: Actor
) -> None:
    Host.objects.filter(pk=make_host("alpha").pk).update(features=["bf16"])
    run = actions.request_tuning(by=operator, version=encoder)
    changed = [each.changed() for each in run.in_order()]
    assert changed[0] == {} and {"dtype": "bf16"} in changed
    assert {"options": {"compile": True}, "reason": "the host has no C++ compiler"} in run.skipped


def test_rows_come_in_one_by_one_until_the_end(run: TuningRun) -> None:
    assert report(run)
    run.refresh_from_db()
    assert run.state == "running"
    report(run, measured(0, 100.0))
    report(run, measured(1, 170.0))
    report(run, TuningRow(index=2, ok=False, reason="no room"))
    report(run, is_done=True)
    run = TuningRun.objects.get(pk=run.pk)
    assert (run.state, run.recommendation().index) == ("done", 1)
    assert run.recommendation().gain == pytest.approx(1.7)
    assert [each.why_not() for each in run.in_order()] == ["", "", "no room"]
    assert entry("tuning", run.pk) is None and entry("version", run.version_id) is None
    assert events()[-1] == "tuning.done"


def test_a_report_twice_or_late_changes_nothing(run: TuningRun) -> None:
    for _ in range(2):
        assert report(run, measured(0, 100.0))
    report(run, is_done=True)
    assert report(run, measured(1, 50.0)), "a row that was overtaken by the end still counts"
    assert report(run, is_done=True)
    assert TuningRun.objects.get(pk=run.pk).state == "done"
    assert not actions.record_tuning(TuningReport(tuning_id="tun_unknown"))


def test_an_early_end_says_why(run: TuningRun) -> None:
    report(run, is_done=True, reason="the reference could not be measured: no weights")
    run.refresh_from_db()
    assert run.state == "failed" and "no weights" in run.state_reason
    assert run.ended_at is not None


def test_a_run_without_news_fails(run: TuningRun) -> None:
    now = timezone.now()
    assert actions.step(now + actions.PROGRESS_WITHIN - timedelta(seconds=5)) == 0
    assert actions.step(now + actions.PROGRESS_WITHIN + timedelta(seconds=5)) == 1
    run.refresh_from_db()
    assert run.state == "failed" and "alpha" in run.state_reason
    assert entry("tuning", run.pk) is None


def test_cancelling_withdraws_the_wish_and_keeps_the_rows(run: TuningRun, operator: Actor) -> None:
    report(run, measured(0, 100.0))
    assert actions.cancel_tuning(by=operator, run=run).state == "cancelled"
    assert entry("tuning", run.pk) is None
    assert not report(run, measured(1, 100.0))
    assert run.in_order()[0].row() is not None
    with pytest.raises(Conflict):
        actions.cancel_tuning(by=operator, run=run)


def test_one_run_per_version_at_a_time(run: TuningRun, encoder: Version, operator: Actor) -> None:
    with pytest.raises(Conflict, match="being tuned already"):
        actions.request_tuning(by=operator, version=encoder, candidates=WISHES)


def test_only_ready_versions_are_tuned(encoder: Version, operator: Actor) -> None:
    Version.objects.filter(pk=encoder.pk).update(state="failed")
    with pytest.raises(Conflict, match="passed validation"):
        actions.request_tuning(by=operator, version=encoder)


def test_an_engine_with_one_way_to_run_is_refused(
    make_version: Callable[..., Version], operator: Actor
) -> None:
    with pytest.raises(Conflict, match="nothing to vary"):
        actions.request_tuning(by=operator, version=make_version())


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"candidates": [{"dtype": "fp8"}]}, "candidates.0.dtype"),
        ({"candidates": [{"typo": 1}]}, "candidates.0.typo"),
        ({"candidates": []}, "candidates"),
        ({"candidates": WISHES * 6}, "candidates"),
        ({"device": "cuda:7"}, "device"),
        ({"tolerance": Tolerance(min_cosine=1.5)}, "min_cosine"),
        ({"tolerance": Tolerance(max_error=-1.0)}, "max_error"),
        ({"tolerance": Tolerance(max_error=float("nan"))}, "max_error"),
        ({"texts": [""]}, "samples"),
    ],
)
def test_wrong_wishes_are_named(
    encoder: Version, make_host: Callable[..., Host], operator: Actor, given: dict, field: str
) -> None:
    make_host()
    with pytest.raises(Invalid) as caught:
        actions.request_tuning(by=operator, version=encoder, **given)
    assert field in caught.value.errors


def test_applying_makes_a_version_of_the_same_artifact(
    run: TuningRun, encoder: Version, operator: Actor
) -> None:
    report(run, measured(0, 100.0))
    report(run, measured(1, 170.0))
    version = actions.apply_tuning(by=operator, run=run, index=1)
    assert (version.number, version.state) == (encoder.number + 1, "validating")
    assert (version.artifact_id, version.options["dtype"]) == (encoder.artifact_id, "bf16")
    assert {"version.registered", "tuning.applied", "version.validation_requested"} <= set(events())
    with pytest.raises(Conflict, match=f"Version {version.number}"):
        actions.apply_tuning(by=operator, run=run, index=1)


def test_only_what_ran_can_be_applied(run: TuningRun, operator: Actor) -> None:
    report(run, TuningRow(index=1, ok=False, reason="no room"))
    for index in (0, 1):
        with pytest.raises(Conflict, match="did not run"):
            actions.apply_tuning(by=operator, run=run, index=index)
    with pytest.raises(Invalid):
        actions.apply_tuning(by=operator, run=run, index=9)
    assert Version.objects.count() == 1


def test_nobody_else_may_ask_apply_or_look(run: TuningRun, encoder: Version) -> None:
    stranger = Actor.anonymous()
    for action, given in (
        (actions.request_tuning, {"version": encoder}),
        (actions.cancel_tuning, {"run": run}),
        (actions.apply_tuning, {"run": run, "index": 0}),
    ):
        with pytest.raises(NotAllowed):
            action(by=stranger, **given)  # type: ignore[operator]
    assert not visible_tunings(stranger).exists()
    with pytest.raises(NotFound):
        access_tuning(stranger, run.pk)


@pytest.mark.parametrize("old", states.STATES)
@pytest.mark.parametrize("new", states.STATES)
def test_only_the_tables_moves_are_made(
    run: TuningRun, old: states.TuningState, new: states.TuningState
) -> None:
    TuningRun.objects.filter(pk=run.pk).update(state=old)
    run.refresh_from_db()
    if new in states.NEXT[old]:
        actions._move(run, new)
        assert TuningRun.objects.get(pk=run.pk).state == new
    else:
        with pytest.raises(Conflict):
            actions._move(run, new)
