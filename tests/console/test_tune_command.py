"""`manage.py tune`: the table as it grows, the verdict, and a version of what is recommended."""

from __future__ import annotations

from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError

from console.management.commands import tune
from serving.contract import TuningReport
from serving.control.catalog.models import Version
from serving.control.fleet.models import Host
from serving.control.tuning.actions import record_tuning
from serving.control.tuning.models import TuningRun
from tests.console.conftest import World
from tests.console.tuned import ROWS, build_encoder


@pytest.fixture
def version(world: World) -> Version:
    Host.objects.update(features=["bf16", "int8"])
    return build_encoder(world.model)


@pytest.fixture
def agent(monkeypatch: pytest.MonkeyPatch) -> list[TuningReport]:
    """What an agent reports each time the command looks again; the run's id is filled in."""
    script: list[TuningReport] = []

    def look_away(seconds: float) -> None:
        run = TuningRun.objects.latest("created_at")
        said = script.pop(0)
        record_tuning(TuningReport(tuning_id=run.pk, row=said.row, is_done=said.is_done, reason=said.reason))

    monkeypatch.setattr(tune, "time", SimpleNamespace(sleep=look_away))
    return script


def said(*arguments: str, **options: Any) -> str:
    out = StringIO()
    call_command("tune", "minilm", *arguments, stdout=out, no_color=True, **options)
    return out.getvalue()


def measured(reason: str = "") -> list[TuningReport]:
    rows = [TuningReport(tuning_id="", row=row) for row in ROWS]
    return [*rows, TuningReport(tuning_id="", is_done=True, reason=reason)]


def test_it_prints_the_table_and_the_verdict(version: Version, agent: list[TuningReport]) -> None:
    agent += measured()
    printed = said()
    assert "full precision" in printed
    assert "0.999870" in printed and "428.0" in printed
    assert "it needed more than 6400 MiB" in printed
    assert "not tried: compiled (the host has no C++ compiler)" in printed
    assert "recommended: bf16, 1.70 × the reference's throughput" in printed
    assert not Version.objects.filter(number=version.number + 1).exists()


def test_apply_makes_the_version(version: Version, agent: list[TuningReport]) -> None:
    agent += measured()
    assert f"Version {version.number + 1} is registered" in said("--apply")
    assert Version.objects.get(number=version.number + 1).options["dtype"] == "bf16"


def test_a_failed_run_fails_the_command(version: Version, agent: list[TuningReport]) -> None:
    agent += measured("the reference could not be measured: no weights")
    with pytest.raises(CommandError, match="no weights"):
        said()


def test_no_candidate_within_the_tolerance_is_said(version: Version, agent: list[TuningReport]) -> None:
    agent += [TuningReport(tuning_id="", is_done=True)]
    with pytest.raises(CommandError, match="Nothing to recommend"):
        said()


def test_samples_come_from_a_file(version: Version, agent: list[TuningReport], tmp_path: Path) -> None:
    agent += measured()
    file = tmp_path / "texts.txt"
    file.write_text("one\n\ntwo\n")
    said("--samples", str(file))
    assert TuningRun.objects.latest("created_at").texts == ["one", "two"]


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["99"], "No version 99"),
        (["--tolerance", "7"], "From 0 to 1"),
        (["--device", "cuda:3"], "The host has"),
        (["--samples", "/no/such/file"], "cannot be read"),
    ],
)
def test_what_is_wrong_is_said(version: Version, arguments: list[str], word: str) -> None:
    with pytest.raises(CommandError, match=word):
        said(*arguments)
