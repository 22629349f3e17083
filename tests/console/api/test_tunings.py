"""The API of tuning runs: who may do what, the shapes, and every refusal as a problem that points at its cause."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.http import HttpResponse
from django.test import Client
from django.urls import reverse

from serving.control.catalog.models import Version
from serving.control.tuning.models import TuningRun
from tests.console.conftest import World
from tests.console.tuned import WISHES, build_encoder, build_run

PEOPLE = ("operator", "owner", "viewer", "stranger", "anonymous")
CANDIDATES = [dict(wish) for wish in WISHES]


@pytest.fixture
def version(world: World) -> Version:
    return build_encoder(world.model)


@pytest.fixture
def client(world: World) -> Client:
    return world.client("operator")


def listed(version: Version) -> str:
    return reverse("api_version_tunings", args=[version.pk])


def one(run: TuningRun, verb: str = "") -> str:
    return reverse(f"api_tuning{verb}", args=[run.pk])


def post(client: Client, address: str, body: Any = None) -> HttpResponse:
    raw = body if isinstance(body, str | bytes) else json.dumps({} if body is None else body)
    return client.post(address, raw, content_type="application/json")


def pointers(answer: HttpResponse) -> list[str]:
    return [error["pointer"] for error in answer.json()["errors"]]


def test_a_run_is_made_and_read_back(client: Client, version: Version) -> None:
    body = {
        "candidates": CANDIDATES,
        "texts": ["one", "two"],
        "tolerance": {"min_cosine": 0.99, "max_error": None},
        "goal": "latency",
    }
    answer = post(client, listed(version), body)
    assert answer.status_code == 201, answer.content
    made = answer.json()
    assert answer["location"] == f"/api/v1/tunings/{made['id']}"
    assert (made["state"], made["goal"], made["recommended"]) == ("requested", "latency", None)
    assert made["tolerance"]["min_cosine"] == 0.99
    assert made["version"] == {"id": version.pk, "model": "minilm", "number": version.number}
    assert [each["changes"] for each in made["candidates"]] == [{}, *CANDIDATES]
    assert made["created_at"].endswith("Z")
    assert client.get(answer["location"]).json() == made
    assert TuningRun.objects.get(pk=made["id"]).texts == ["one", "two"]


def test_without_a_body_the_candidates_follow_from_the_host(client: Client, version: Version) -> None:
    answer = post(client, listed(version))
    assert answer.status_code == 201
    assert len(answer.json()["candidates"]) >= 2


def test_figures_and_the_recommendation_are_in_the_document(client: Client, version: Version) -> None:
    run = build_run(version, is_done=True)
    document = client.get(one(run)).json()
    assert (document["state"], document["recommended"], document["gain"]) == ("done", 1, 1.6984)
    reference, bf16, int8, padded, compiled = document["candidates"]
    assert bf16["is_recommended"] and bf16["rows_per_s"] == {"1": 130.0, "8": 371.0, "32": 428.0}
    assert int8["state"] == "measured" and "cosine 0.875" in int8["reason"]
    assert padded["state"] == "failed" and "MiB" in padded["reason"]
    assert (compiled["state"], compiled["agreement"]) == ("waiting", None)
    assert reference["agreement"]["max_abs_error"] == 0.0


def test_applying_answers_with_the_version(client: Client, version: Version) -> None:
    run = build_run(version)
    answer = post(client, one(run, "_apply"), {"candidate": 1})
    assert answer.status_code == 201, answer.content
    made = Version.objects.get(number=version.number + 1)
    assert answer.json()["version"]["id"] == made.pk
    assert (answer.json()["state"], made.options["dtype"]) == ("validating", "bf16")
    again = post(client, one(run, "_apply"), {"candidate": 1})
    assert (again.status_code, again.json()["code"]) == (409, "conflict")
    assert client.get(one(run)).json()["candidates"][1]["version"]["number"] == made.number


def test_cancelling_twice_is_a_conflict(client: Client, version: Version) -> None:
    run = build_run(version)
    assert post(client, one(run, "_cancel")).json()["state"] == "cancelled"
    assert post(client, one(run, "_cancel")).status_code == 409


def test_lists_are_cursor_pages(client: Client, version: Version) -> None:
    runs = [build_run(version, is_done=True).pk for _ in range(3)]
    first = client.get(listed(version), {"limit": 2}).json()
    assert ([each["id"] for each in first["data"]], first["has_more"]) == (runs[:0:-1], True)
    last = client.get(listed(version), {"limit": 2, "after": first["next_cursor"]}).json()
    assert ([each["id"] for each in last["data"]], last["has_more"]) == (runs[:1], False)
    assert last["next_cursor"] is None


@pytest.mark.parametrize("query", [{"limit": "0"}, {"limit": "201"}, {"limit": "²"}, {"after": "tun_x"}])
def test_wrong_pages_are_refused(client: Client, version: Version, query: dict) -> None:
    assert client.get(listed(version), query).status_code == 422


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({"goal": "fame"}, "/goal"),
        ({"nonsense": 1}, "/nonsense"),
        ({"tolerance": {"min_cosine": "much"}}, "/tolerance/min_cosine"),
        ({"tolerance": {"min_cosine": 2}}, "/min_cosine"),
        ({"candidates": [{"dtype": "fp8"}]}, "/candidates/0/dtype"),
        ({"candidates": [1]}, "/candidates/0"),
        ({"candidates": CANDIDATES, "texts": ["a\u0000b"]}, "/texts/0"),
        ({"candidates": CANDIDATES, "texts": ["x" * 9000]}, "/texts"),
        ({"inputs": [{"name": "x"}]}, "/inputs"),
        ({"device": "cuda:9"}, "/device"),
        ([], ""),
        ("null", ""),
    ],
)
def test_what_is_wrong_is_pointed_at(client: Client, version: Version, body: Any, pointer: str) -> None:
    answer = post(client, listed(version), body)
    assert (answer.status_code, answer["content-type"]) == (422, "application/problem+json")
    assert pointer in pointers(answer)
    assert not TuningRun.objects.exists()


@pytest.mark.parametrize(
    ("body", "content_type", "status", "code"),
    [
        ("{", "application/json", 400, "bad_request"),
        ("[" * 100_000, "application/json", 400, "bad_request"),
        ('{"goal": NaN}', "application/json", 400, "bad_request"),
        ("a=1", "application/x-www-form-urlencoded", 415, "unsupported_media_type"),
    ],
)
def test_bodies_that_cannot_be_read(
    client: Client, version: Version, body: str, content_type: str, status: int, code: str
) -> None:
    answer = client.post(listed(version), body, content_type=content_type)
    assert (answer.status_code, answer.json()["code"]) == (status, code)
    assert answer.json()["request_id"] == answer["x-request-id"]


def test_other_methods_are_named(client: Client, version: Version) -> None:
    answer = client.delete(listed(version))
    assert (answer.status_code, answer["allow"]) == (405, "GET, POST, HEAD, OPTIONS")
    assert answer.json()["code"] == "method_not_allowed"


@pytest.mark.parametrize("who", PEOPLE)
def test_only_who_sees_the_platform_finds_anything(world: World, version: Version, who: str) -> None:
    run = build_run(version)
    client = world.client(who)
    found = [
        client.get(listed(version)).status_code,
        client.get(one(run)).status_code,
        post(client, one(run, "_apply"), {"candidate": 0}).status_code,
        post(client, one(run, "_cancel")).status_code,
        post(client, listed(version)).status_code,
    ]
    expected = {"operator": [200, 200, 201, 200, 201], "anonymous": [401] * 5}
    assert found == expected.get(who, [404] * 5)


def test_not_yours_looks_like_not_there(world: World, version: Version) -> None:
    run, client = build_run(version), world.client("owner")
    yours, none = client.get(one(run)).json(), client.get("/api/v1/tunings/tun_none").json()
    assert {**yours, "request_id": "", "instance": ""} == {**none, "request_id": "", "instance": ""}
    assert world.client("operator").get("/api/v1/tunings/a%00b").status_code == 400


def test_writing_needs_the_csrf_token(world: World, version: Version) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(world.cast.users["operator"])
    answer = post(client, listed(version))
    assert (answer.status_code, answer["content-type"]) == (403, "application/problem+json")
    assert client.get(listed(version)).status_code == 200


def test_whoever_is_not_signed_in_is_told_how(world: World, version: Version) -> None:
    answer = world.client("anonymous").get(listed(version))
    assert (answer.status_code, answer.json()["code"]) == (401, "not_signed_in")
    assert answer["www-authenticate"] == "Bearer"
