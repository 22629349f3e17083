"""Models, versions, deployments, profiles and bindings over the API: what goes right, and what is pointed at."""

from __future__ import annotations

import io
import json
from datetime import timedelta
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.http import HttpResponse
from django.test import Client
from django.utils import timezone

from serving.control.alerts.models import AlertTransition
from serving.control.catalog.models import Version
from serving.control.profiles.models import ProfileBinding
from serving.control.telemetry.replicas import write_replicas
from serving.control.telemetry.store import write as write_slices
from serving.telemetry.replica_tally import ReplicaTally
from serving.telemetry.tally import Tally, encode_tally
from serving.telemetry.windows import SeriesKey, Slice
from tenants.scoping import all_tenants
from tests.console.api.asking import API, ask, pointers
from tests.console.conftest import World
from tests.tenants.conftest import last_event


@pytest.fixture
def operator(world: World) -> Client:
    return world.client("operator")


@pytest.fixture
def versions(world: World) -> str:
    return f"/models/{world.model.pk}/versions"


def upload(client: Client, address: str, content: bytes, **fields: Any) -> HttpResponse:
    file = SimpleUploadedFile("model.bin", content)
    return client.post(API + address, {"engine": "encoder", "file": file, **fields})


# ---------------------------------------------------------------- models


def test_a_model_is_made_for_some_and_opened_to_all(world: World, operator: Client) -> None:
    body = {"name": "poet", "tenants": [world.cast.other.pk]}
    made = ask(operator, "POST", "/models", body)
    assert (made.status_code, made.json()["is_public"]) == (201, False)
    grants = ask(operator, "GET", f"{made['location']}/grants").json()["data"]
    assert [grant["tenant_slug"] for grant in grants] == ["globex"]
    assert ask(world.client("owner"), "GET", made["location"]).status_code == 404
    opened = ask(operator, "PATCH", made["location"], {"is_public": True}, if_match=made["etag"])
    assert opened.json()["is_public"] is True
    assert ask(world.client("owner"), "GET", made["location"]).status_code == 200


def test_a_model_for_an_unknown_tenant_is_pointed_at(operator: Client) -> None:
    answer = ask(operator, "POST", "/models", {"name": "poet", "tenants": ["tnt_none"]})
    assert (answer.status_code, pointers(answer)) == (422, ["/tenants/0"])


def test_a_grant_is_given_once_and_taken(world: World, operator: Client) -> None:
    address = f"/models/{world.model.pk}/grants"
    for _ in range(2):
        assert ask(operator, "POST", address, {"tenant": world.cast.other.pk}).status_code == 201
    assert len(ask(operator, "GET", address).json()["data"]) == 2
    assert ask(operator, "DELETE", f"{address}/{world.cast.other.pk}").status_code == 204
    assert ask(operator, "DELETE", f"{address}/{world.cast.other.pk}").status_code == 404


# ---------------------------------------------------------------- versions


def test_a_version_is_registered_by_path_or_upload(operator: Client, versions: str) -> None:
    body = {"engine": "echo", "options": {"chunks": 3}, "price_micro_per_device_hour": 5}
    made = ask(operator, "POST", versions, body)
    assert (made.status_code, made.json()["options"]["chunks"]) == (201, 3)
    assert made["location"] == f"/api/v1/versions/{made.json()['id']}"
    assert ask(operator, "GET", made["location"]).json() == made.json()


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({"engine": "encoder"}, "/path"),
        ({"engine": "encoder", "path": "/etc/passwd"}, "/path"),
        ({"engine": "echo", "options": {"dtype": "fp32"}}, "/options/dtype"),
        ({"engine": "magic"}, "/engine"),
        ({"engine": "echo", "price_micro_per_device_hour": -1}, "/price_micro_per_device_hour"),
        ({"engine": "echo", "price_micro_per_device_hour": 1.5}, "/price_micro_per_device_hour"),
    ],
)
def test_what_is_wrong_with_a_version(operator: Client, versions: str, body: dict, pointer: str) -> None:
    answer = ask(operator, "POST", versions, body)
    assert (answer.status_code, pointers(answer)) == (422, [pointer])


def test_an_upload_is_scanned_and_refused_by_its_field(operator: Client, versions: str) -> None:
    answer = upload(operator, versions, b"\x80\x04garbage")
    assert (answer.status_code, pointers(answer)) == (422, ["/file"])
    assert "pickle" in answer.json()["errors"][0]["detail"]
    wrong = upload(operator, versions, b"PK", options="[1]")
    assert pointers(wrong) == ["/options"]
    assert pointers(upload(operator, versions, b"PK", colour="red"))[0] == "/colour"


def test_an_upload_that_is_repeated_registers_once(
    operator: Client, versions: str, monkeypatch: pytest.MonkeyPatch, world: World
) -> None:
    seen: list[bytes] = []

    def register(*, source: io.BytesIO, **values: Any) -> Version:
        seen.append(source.read())
        return world.version

    monkeypatch.setattr("console.api.versions.register_version", register)
    answers = []
    for content in (b"one", b"one", b"two"):
        file = SimpleUploadedFile("model.bin", content)
        data = {"engine": "encoder", "file": file}
        answers.append(operator.post(API + versions, data, headers={"idempotency-key": '"up"'}))
    assert [answer.status_code for answer in answers] == [201, 201, 422]
    assert seen == [b"one"]
    assert "idempotency-replayed" in answers[1]


def test_a_fallback_is_named_and_taken_back(world: World, operator: Client, versions: str) -> None:
    other = ask(operator, "POST", versions, {"engine": "echo"}).json()["id"]
    Version.objects.filter(pk=other).update(state="ready")
    address = f"/versions/{world.version.pk}"
    assert ask(operator, "PATCH", address, {"fallback_version": other}).json()["fallback_version"] == other
    both = {"fallback_version": other, "fallback_model": world.model.pk}
    assert ask(operator, "PATCH", address, both).status_code == 422
    assert ask(operator, "PATCH", address, {"fallback_version": None}).json()["fallback_version"] is None


def test_an_alias_moves_unless_somebody_moved_it(world: World, operator: Client) -> None:
    address = f"/models/{world.model.pk}/aliases/champion"
    body = {"version": world.version.pk}
    assert ask(operator, "PUT", address, body, if_match="*").status_code == 412
    first = ask(operator, "PUT", address, body)
    assert (first.status_code, first.json()["number"]) == (200, 1)
    assert ask(operator, "PUT", address, body, if_match=first["etag"]).status_code == 200
    assert ask(operator, "PUT", address, body, if_match='"older"').status_code == 412
    assert pointers(ask(operator, "PUT", address, {"version": "mv_none"})) == ["/version"]


def test_only_an_operator_trusts_code_and_says_why(world: World, operator: Client) -> None:
    answer = ask(operator, "POST", f"/versions/{world.version.pk}/trust", {"reason": " "})
    assert (answer.status_code, pointers(answer)) == (422, ["/reason"])


# ---------------------------------------------------------------- deployments


def test_a_deployment_is_scaled_and_stopped(world: World, operator: Client) -> None:
    address = f"/deployments/{world.deployment.pk}"
    seen = ask(operator, "GET", address)
    assert (seen.json()["replicas"], seen.json()["ready_replicas"]) == (1, 1)
    scaled = ask(operator, "POST", f"{address}/scale", {"replicas": 3}, if_match=seen["etag"])
    assert scaled.json()["replicas"] == 3
    assert (
        ask(operator, "POST", f"{address}/scale", {"replicas": 4}, if_match=seen["etag"]).status_code == 412
    )
    assert ask(operator, "POST", f"{address}/stop").json()["state"] == "stopped"
    assert ask(operator, "POST", f"{address}/scale", {"replicas": 1}).status_code == 409


def test_what_moves_by_itself_is_no_lost_update(world: World, operator: Client) -> None:
    address = f"/deployments/{world.deployment.pk}"
    seen = ask(operator, "GET", address)["etag"]
    world.deployment.replicas.update(state="loading")
    assert ask(operator, "GET", address).json()["ready_replicas"] == 0
    assert ask(operator, "POST", f"{address}/scale", {"replicas": 2}, if_match=seen).status_code == 200


@pytest.mark.parametrize(
    ("change", "pointer"),
    [
        ({"model": "mdl_none"}, "/model"),
        ({"version": "mv_none"}, "/version"),
        ({"replicas": 257}, "/replicas"),
        ({"threads": 0}, "/threads"),
    ],
)
def test_what_is_wrong_with_a_deployment(world: World, operator: Client, change: dict, pointer: str) -> None:
    body = {"model": world.model.pk, "version": world.version.pk} | change
    answer = ask(operator, "POST", "/deployments", body)
    assert (answer.status_code, pointers(answer)) == (422, [pointer])


# ---------------------------------------------------------------- profiles and bindings


def test_a_profile_is_made_bound_unbound_and_deleted(world: World, operator: Client) -> None:
    made = ask(operator, "POST", "/profiles", {"name": "nightly", "sla_class": "batch"})
    assert (made.status_code, made.json()["max_batch_size"]) == (201, 32)
    target = {"profile": made.json()["id"], "tenant": world.cast.tenant.pk, "endpoint": "infer"}
    bound = ask(operator, "POST", "/bindings", target)
    assert bound.status_code == 201
    assert ask(operator, "DELETE", made["location"]).status_code == 409
    assert ask(operator, "DELETE", bound["location"]).status_code == 204
    assert ask(operator, "DELETE", made["location"], if_match=made["etag"]).status_code == 204
    assert last_event().action == "profile.deleted"


def test_a_binding_is_rehearsed(world: World, operator: Client) -> None:
    before = _count_bindings()
    body = {"profile": world.profile.pk, "model": world.model.pk}
    answer = ask(operator, "POST", "/bindings?dry_run=true", body)
    assert (answer.status_code, answer.json()["after"]["model"]) == (200, world.model.pk)
    gone = ask(operator, "DELETE", f"/bindings/{world.binding.pk}?dry_run=true")
    assert (gone.status_code, gone.json()["after"]) == (200, None)
    assert _count_bindings() == before


def _count_bindings() -> int:
    with all_tenants("a test"):
        return ProfileBinding.objects.count()


def test_times_that_contradict_each_other_are_pointed_at(world: World, operator: Client) -> None:
    address = f"/profiles/{world.profile.pk}"
    assert pointers(ask(operator, "PATCH", address, {"target_p95_ms": 600})) == ["/target_p95_ms"]
    huge = operator.patch(API + address, '{"weight": 1e999}', content_type="application/json")
    assert huge.status_code in (400, 422)


def test_the_trail_is_filtered_like_its_page(world: World, operator: Client) -> None:
    rows = ask(operator, "GET", "/audit?action=key.created&q=support").json()["data"]
    assert [row["target_name"][:12] for row in rows] == ["support chat"]
    assert ask(operator, "GET", "/audit?since=2999-01-01").json()["data"] == []
    assert pointers(ask(operator, "GET", "/audit?since=yesterday")) == ["/since"]
    found = ask(operator, "GET", f"/audit/{rows[0]['id']}").json()
    assert json.dumps(found["after"]) == json.dumps(rows[0]["after"])


def test_usage_is_told_apart_as_asked(operator: Client) -> None:
    answer = ask(operator, "GET", "/usage?group_by=day,key&since=2026-01-01&until=2026-01-31").json()
    assert (answer["data"], answer["total"]["requests"], answer["is_cut"]) == ([], 0, False)
    assert pointers(ask(operator, "GET", "/usage?group_by=colour")) == ["/group_by"]
    assert pointers(ask(operator, "GET", "/usage?since=2026-02-01&until=2026-01-01")) == ["/since"]
    assert ask(operator, "GET", "/usage?until=0001-01-01").status_code == 200


def test_metrics_are_listed_with_what_they_mean(operator: Client) -> None:
    answer = ask(operator, "GET", "/metrics").json()
    (row,) = [one for one in answer["data"] if one["name"] == "total_p95_ms"]
    assert (row["unit"], row["higher_is"]) == ("ms", "worse")
    assert answer["labels"] == ["tenant", "model", "version", "endpoint", "class"]


def test_metrics_over_time_are_told_with_their_gaps(operator: Client) -> None:
    query = "since=2026-01-01T00:00:00Z&until=2026-01-01T00:01:00Z"
    answer = ask(operator, "GET", f"/metrics/query?metric=requests_s,kept_share&step=30&{query}").json()
    assert (answer["step_s"], answer["covered"], answer["left_out"]) == (30, [0, 0], 0)
    (series,) = answer["series"]
    assert series == {
        "labels": {},
        "names": {},
        "values": {"requests_s": [None, None], "kept_share": [None, None]},
    }
    assert pointers(ask(operator, "GET", "/metrics/query?metric=colour")) == ["/metric"]
    assert pointers(ask(operator, "GET", "/metrics/query?metric=requests_s&by=colour")) == ["/by"]
    assert pointers(ask(operator, "GET", "/metrics/query?metric=requests_s&step=15")) == ["/step"]
    assert list(ask(operator, "GET", "/metrics/query").json()["series"][0]["values"]) == ["requests_s"]
    late = "since=2026-01-02T00:00:00Z&until=2026-01-01T00:00:00Z"
    assert pointers(ask(operator, "GET", f"/metrics/query?metric=requests_s&{late}")) == ["/since"]


def test_replicas_are_told_over_time_to_who_sees_the_platform(operator: Client, world: World) -> None:
    start = 1_764_547_200
    write_replicas(10, start, [ReplicaTally("rep_a", "minilm", "mv_1", 10_000_000, 5_000_000, frames=10)])
    query = "since=2025-12-01T00:00:00Z&until=2025-12-01T00:00:20Z&step=10"
    answer = ask(operator, "GET", f"/metrics/replicas?{query}").json()
    assert answer["starts"] == [start, start + 10]
    assert answer["series"][0]["values"] == {"replica_busy_share": [0.5, None]}
    assert ask(operator, "GET", f"/metrics/replicas?model=another&{query}").json()["series"] == []
    assert pointers(ask(operator, "GET", "/metrics/replicas?metric=requests_s")) == ["/metric"]
    assert ask(world.client("owner"), "GET", "/metrics/replicas").status_code == 403


def test_marks_are_the_events_that_move_charts_for_whoever_reads_the_trail(
    operator: Client, world: World
) -> None:
    rows = ask(operator, "GET", "/metrics/marks").json()["data"]
    assert "version" in {row["kind"] for row in rows}
    assert all(row["action"].split(".")[0] not in ("key", "user", "tenant") for row in rows)
    assert ask(world.client("viewer"), "GET", "/metrics/marks").json()["data"] == []
    of_other = ask(operator, "GET", f"/metrics/marks?tenant={world.cast.other.pk}").json()["data"]
    assert "version" not in {row["kind"] for row in of_other}


def test_promises_are_told_with_what_is_left_of_their_budgets(operator: Client, world: World) -> None:
    start, tenant_id = 1_764_547_200, world.cast.tenant.pk
    series = SeriesKey(tenant_id, "minilm", "mv_1", "infer", "interactive")
    write_slices(10, Slice(start, 10, {series: encode_tally(Tally(answered=200, kept=199))}))
    query = "since=2025-12-01T00:00:00Z&until=2025-12-01T01:00:00Z"
    answer = ask(operator, "GET", f"/promises?{query}").json()
    assert (answer["objective"], answer["covered_s"]) == (0.99, 10)
    (row,) = answer["data"]
    assert (row["tenant"], row["model"], row["requests"]) == (tenant_id, "minilm", 200)
    assert (row["figures"]["kept_share"], row["figures"]["total_p95_ms"]) == (0.995, None)
    assert (round(row["budget_left_share"], 6), row["burn"], row["budget_lasts_s"]) == (0.5, None, None)
    assert ask(operator, "GET", f"/promises?model=another&{query}").json()["data"] == []
    assert len(ask(world.client("viewer"), "GET", f"/promises?{query}").json()["data"]) == 1
    assert ask(world.client("stranger"), "GET", f"/promises?{query}").json()["data"] == []
    assert pointers(ask(operator, "GET", "/promises?since=2025-12-01T00:00:00Z&until=2025-12-01T00:00:00Z"))


def test_alerts_that_fired_or_were_over_are_marks_for_those_whom_they_concern(
    operator: Client, world: World
) -> None:
    now = timezone.now()
    said = {
        "fingerprint": "f" * 16,
        "rule_id": "alr_x",
        "severity": "critical",
        "labels": {},
        "fired_at": now,
    }
    with all_tenants("the controller writes the history of alerts"):
        for state, tenant in (("firing", world.cast.tenant), ("resolved", world.cast.tenant)):
            AlertTransition.objects.create(at=now, state=state, rule_name="slow", tenant=tenant, **said)

    def seen(client: Client) -> list[tuple[str, str, str]]:
        until = (now + timedelta(seconds=1)).isoformat().replace("+00:00", "Z")
        rows = ask(client, "GET", f"/metrics/marks?until={until}").json()["data"]
        return [(row["action"], row["target"], row["actor"]) for row in rows if row["kind"] == "alert"]

    assert sorted(seen(operator)) == [
        ("alert.firing", "slow", "critical"),
        ("alert.resolved", "slow", "critical"),
    ]
    assert len(seen(world.client("owner"))) == 2
    assert seen(world.client("stranger")) == []
