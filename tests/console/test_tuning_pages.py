"""The pages of tuning runs: asked for in a form, told as it goes, applied with one click."""

from __future__ import annotations

import pytest
from django.test import Client
from django.urls import reverse

from serving.contract import TuningReport, TuningRow
from serving.control.catalog.models import Version
from serving.control.tuning.actions import record_tuning
from serving.control.tuning.models import TuningRun
from tests.console.conftest import World
from tests.console.tuned import build_encoder, build_run


@pytest.fixture
def version(world: World) -> Version:
    return build_encoder(world.model)


@pytest.fixture
def client(world: World) -> Client:
    return world.client("operator")


def ask(client: Client, version: Version, **typed: str):
    values = {"goal": "throughput", "min_cosine": "0.999", "samples": ""} | typed
    return client.post(reverse("version_tune", args=[version.model.name, version.number]), values)


def text(client: Client, name: str, run: TuningRun) -> str:
    return client.get(reverse(name, args=[run.pk])).content.decode()


def test_the_form_starts_a_run_and_leads_to_it(client: Client, version: Version) -> None:
    answer = ask(client, version, samples="one\n\ntwo", min_cosine="", max_error="0.01", goal="latency")
    run = TuningRun.objects.get()
    assert answer.url == reverse("tuning", args=[run.pk])
    assert (run.goal, run.min_cosine, run.max_error, run.texts) == ("latency", None, 0.01, ["one", "two"])


@pytest.mark.parametrize(
    ("typed", "word"),
    [
        ({"min_cosine": "2"}, "less than or equal to 1"),
        ({"max_error": "-1"}, "greater than or equal to 0"),
        ({"samples": "x" * 9000}, "longer than 8000"),
        ({"goal": "fame"}, "valid choice"),
    ],
)
def test_what_is_wrong_is_said_at_its_field(client: Client, version: Version, typed: dict, word: str) -> None:
    answer = ask(client, version, **typed)
    assert answer.status_code == 422 and word in answer.content.decode()
    assert not TuningRun.objects.exists()


def test_the_page_follows_a_run_and_stops_when_it_is_over(client: Client, version: Version) -> None:
    run = build_run(version)
    page = text(client, "tuning", run)
    assert "Ahead so far: bf16" in page and 'hx-trigger="every 2s"' in page
    assert "cosine 0.875, at least 0.999 was asked" in page
    assert "it needed more than 6400 MiB of memory" in page
    assert 'data-state="measuring"' in page
    record_tuning(TuningReport(tuning_id=run.pk, is_done=True))
    over = text(client, "tuning_state", run)
    assert "Recommended: bf16" in over and "1.70" in over
    assert "hx-trigger" not in over and 'data-state="not_measured"' in over


def test_a_run_without_a_result_says_why(client: Client, version: Version) -> None:
    run = build_run(version, rows=[TuningRow(index=0, ok=False, reason="no weights")])
    record_tuning(TuningReport(tuning_id=run.pk, is_done=True, reason="the reference could not be measured"))
    page = text(client, "tuning", run)
    assert "Nothing to recommend" in page and "the reference could not be measured" in page


def test_one_click_makes_a_version(client: Client, version: Version) -> None:
    run = build_run(version, is_done=True)
    answer = client.post(reverse("tuning_apply", args=[run.pk, 1]), follow=True)
    assert "registered and being validated" in answer.content.decode()
    assert f"version {version.number + 1}" in text(client, "tuning", run)
    again = client.post(reverse("tuning_apply", args=[run.pk, 1]), follow=True)
    assert f"Version {version.number + 1} was made of this candidate" in again.content.decode()


def test_a_run_can_be_cancelled(client: Client, version: Version) -> None:
    run = build_run(version)
    answer = client.post(reverse("tuning_cancel", args=[run.pk]), follow=True)
    assert "Cancelled" in answer.content.decode()
    assert TuningRun.objects.get().state == "cancelled"


def test_the_models_page_lists_its_runs_for_who_sees_the_platform(world: World, version: Version) -> None:
    build_run(version)
    address = reverse("model", args=[world.model.name])
    assert f"of version {version.number}" in world.client("operator").get(address).content.decode()
    assert f"of version {version.number}" not in world.client("viewer").get(address).content.decode()


def test_samples_of_another_engine_are_tensors(client: Client, version: Version) -> None:
    Version.objects.filter(pk=version.pk).update(
        engine="tensor",
        options={"compile": False, "threads": 1, "dtype": "fp32", "max_batch_rows": 8},
        inputs=[{"name": "x", "datatype": "FP32", "shape": [-1, 2]}],
    )
    assert "Not a request body" in ask(client, version, samples="one").content.decode()
    body = '{"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 2], "data": [1, 2]}]}'
    assert ask(client, version, samples=body).status_code == 302
    assert TuningRun.objects.get().tensors[0]["data"] == [1, 2]
