"""What holds for every noun: lost updates, rehearsals, requests sent twice, limits, noise."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest
from django.core.cache import cache
from django.test import Client
from django.utils import timezone

from console.api.once import KEPT, forget_old
from console.api.rehearsal import changes
from console.models import KeptAnswer
from serving.control.seam_tables import ConfigEntry
from tenants.actions.members import add_member, change_role, remove_member
from tenants.models import ApiKey, Tenant
from tenants.scoping import all_tenants
from tests.console.api.asking import ask, pointers
from tests.console.conftest import World
from tests.console.tuned import build_encoder
from tests.tenants.conftest import SYSTEM, count_events

NEW = {"slug": "initech", "name": "Initech"}


@pytest.fixture
def operator(world: World) -> Client:
    return world.client("operator")


@pytest.fixture
def tenant(world: World) -> str:
    return f"/tenants/{world.cast.tenant.pk}"


# ---------------------------------------------------------------- lost updates


def test_who_changes_what_they_did_not_see_is_told(operator: Client, tenant: str) -> None:
    seen = ask(operator, "GET", tenant)["etag"]
    first = ask(operator, "PATCH", tenant, {"name": "First"}, if_match=seen)
    second = ask(operator, "PATCH", tenant, {"name": "Second"}, if_match=seen)
    assert (first.status_code, second.status_code) == (200, 412)
    assert second.json()["code"] == "precondition_failed"
    assert ask(operator, "GET", tenant).json()["name"] == "First"
    assert ask(operator, "GET", tenant)["etag"] == first["etag"] != seen


@pytest.mark.parametrize(("tag", "status"), [("*", 200), ("", 400), ('W/"x"', 412), ("noise", 400)])
def test_other_tags(operator: Client, tenant: str, tag: str, status: int) -> None:
    assert ask(operator, "PATCH", tenant, {"name": "X"}, if_match=tag).status_code == status


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/tenants", NEW),
        ("/accounts", {"username": "sam"}),
        ("/models", {"name": "poet"}),
        ("/profiles", {"name": "nightly"}),
        ("keys", {"name": "nightly"}),
        ("quotas", {"resource": "concurrency", "limit": 3}),
    ],
)
def test_what_was_just_made_has_the_tag_it_is_read_with(
    operator: Client, tenant: str, path: str, body: dict
) -> None:
    made = ask(operator, "POST", path if path.startswith("/") else f"{tenant}/{path}", body)
    assert made["etag"] == ask(operator, "GET", made["location"])["etag"]


def test_a_tag_matches_in_a_list_of_several(operator: Client, tenant: str) -> None:
    tag = ask(operator, "GET", tenant)["etag"]
    assert ask(operator, "PATCH", tenant, {"name": "X"}, if_match=f'"a", {tag}').status_code == 200


# ---------------------------------------------------------------- rehearsals


def test_a_rehearsal_shows_the_difference_and_leaves_nothing(operator: Client, tenant: str) -> None:
    events, entries = count_events(), list(ConfigEntry.objects.values_list("kind", "key", "version"))
    before = ask(operator, "GET", tenant).content
    answer = ask(operator, "PATCH", f"{tenant}?dry_run=true", {"requests_per_s": 7.5})
    assert answer.status_code == 200
    assert answer.json()["changes"] == [{"pointer": "/requests_per_s", "before": None, "after": 7.5}]
    assert ask(operator, "GET", tenant).content == before
    assert count_events() == events
    assert list(ConfigEntry.objects.values_list("kind", "key", "version")) == entries


def test_a_rehearsal_refuses_what_the_real_thing_would(operator: Client, tenant: str) -> None:
    answer = ask(operator, "PATCH", f"{tenant}?dry_run=true", {"burst": 3})
    assert (answer.status_code, pointers(answer)) == (422, ["/burst"])
    assert (
        ask(operator, "PATCH", f"{tenant}?dry_run=true", {"name": "X"}, if_match='"old"').status_code == 412
    )


def test_making_is_rehearsed_too(operator: Client) -> None:
    answer = ask(operator, "POST", "/tenants?dry_run=true", NEW)
    assert (answer.status_code, answer.json()["before"]) == (200, None)
    assert answer.json()["after"]["slug"] == "initech"
    assert not Tenant.objects.filter(slug="initech").exists()


def test_a_mistyped_rehearsal_is_not_the_real_thing(operator: Client, tenant: str) -> None:
    answer = ask(operator, "PATCH", f"{tenant}?dryrun=true", {"name": "X"})
    assert (answer.status_code, pointers(answer)) == (422, ["/dryrun"])


def test_differences_are_told_field_by_field() -> None:
    old = {"id": "a", "limits": {"rate": 1, "burst": 2}, "names": ["x"]}
    new = {"id": "b", "limits": {"rate": 1, "burst": 3}, "names": ["x", "y"]}
    assert [(c["pointer"], c["before"], c["after"]) for c in changes(old, new)] == [
        ("/limits/burst", 2, 3),
        ("/names", ["x"], ["x", "y"]),
    ]


# ---------------------------------------------------------------- asked twice


def test_asked_twice_it_is_done_once(operator: Client) -> None:
    first = ask(operator, "POST", "/tenants", NEW, idempotency_key='"one"')
    again = ask(operator, "POST", "/tenants", dict(reversed(NEW.items())), idempotency_key="one")
    assert (first.status_code, again.status_code) == (201, 201)
    assert again.json() == first.json()
    assert (again["idempotency-replayed"], again["location"]) == ("true", first["location"])
    assert "idempotency-replayed" not in first
    assert Tenant.objects.filter(slug="initech").count() == 1


def test_the_same_key_with_another_request_is_refused(operator: Client) -> None:
    ask(operator, "POST", "/tenants", NEW, idempotency_key='"one"')
    answer = ask(operator, "POST", "/tenants", {**NEW, "name": "Else"}, idempotency_key='"one"')
    assert (answer.status_code, answer.json()["code"]) == (422, "idempotency_key_reused")


def test_a_key_belongs_to_one_account(world: World, operator: Client, tenant: str) -> None:
    for client in (operator, world.client("owner")):
        body = {"name": f"key of {client.session['_auth_user_id']}"}
        answer = ask(client, "POST", f"{tenant}/keys", body, idempotency_key='"one"')
        assert answer.status_code == 201


def test_a_refusal_is_not_kept(operator: Client) -> None:
    wrong = ask(operator, "POST", "/tenants", {"slug": "initech"}, idempotency_key='"one"')
    assert wrong.status_code == 422
    assert ask(operator, "POST", "/tenants", NEW, idempotency_key='"one"').status_code == 201


def test_a_token_is_not_kept_for_a_replay(operator: Client, tenant: str) -> None:
    body = {"name": "once"}
    first = ask(operator, "POST", f"{tenant}/keys", body, idempotency_key='"one"').json()
    again = ask(operator, "POST", f"{tenant}/keys", body, idempotency_key='"one"').json()
    assert again == {**first, "token": None}
    assert first["token"] not in repr(list(KeptAnswer.objects.values()))
    with all_tenants("a test counts"):
        assert ApiKey.objects.filter(name="once").count() == 1


@pytest.mark.parametrize("key", ["", '"with space"', "x" * 256, '"open'])
def test_what_is_no_key(operator: Client, key: str) -> None:
    assert ask(operator, "POST", "/tenants", NEW, idempotency_key=key).status_code == 400


def test_kept_answers_go_after_a_day(operator: Client) -> None:
    ask(operator, "POST", "/tenants", NEW, idempotency_key='"one"')
    now = timezone.now()
    assert forget_old(now) == 0
    assert forget_old(now + KEPT + timedelta(seconds=1)) == 1


# ---------------------------------------------------------------- limits and noise


@pytest.fixture
def few(settings: object) -> Iterator[None]:
    settings.API_REQUESTS_PER_MINUTE = 3  # type: ignore[attr-defined]
    cache.clear()
    yield
    cache.clear()


def test_who_asks_too_often_waits(world: World, few: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("console.api.throttling.time.time", lambda: 1_800_000_010.0)
    operator = world.client("operator")
    answers = [ask(operator, "GET", "/me") for _ in range(4)]
    assert [answer.status_code for answer in answers] == [200, 200, 200, 429]
    assert answers[0]["ratelimit-policy"] == '"requests";q=3;w=60'
    assert answers[2]["ratelimit"] == '"requests";r=0;t=50'
    assert (answers[3]["retry-after"], answers[3].json()["code"]) == ("50", "too_many_requests")
    assert ask(world.client("owner"), "GET", "/me").status_code == 200


def test_a_verb_takes_no_body_it_does_not_know(operator: Client, tenant: str) -> None:
    assert ask(operator, "POST", f"{tenant}/resume", {"why": "x"}).status_code == 422


@pytest.mark.parametrize(
    "body", ['{"inputs": [{"name": "\\ud800"}]}', '{"inputs": [{"\\udfff": 1}]}', '{"device": "\\ud800"}']
)
def test_half_a_character_is_no_error_of_ours(world: World, operator: Client, body: str) -> None:
    version = build_encoder(world.model)
    address = f"/api/v1/versions/{version.pk}/tunings"
    answer = operator.post(address, body, content_type="application/json")
    assert (answer.status_code, answer.json()["code"]) == (400, "bad_request")


def test_nul_in_a_cursor_is_no_error_of_ours(operator: Client) -> None:
    import base64

    cursor = base64.urlsafe_b64encode(b"2026-01-01T00:00:00+00:00|a\0b").decode()
    assert ask(operator, "GET", f"/tenants?after={cursor}").status_code == 422


def test_an_answer_is_not_repeated_to_whoever_lost_the_right_to_it(world: World) -> None:
    team, client = world.cast, world.client("developer")
    path, again = f"/tenants/{team.tenant.pk}/keys", {"idempotency_key": '"mine"'}

    def asked() -> int:
        return ask(client, "POST", path, {"name": "again"}, **again).status_code

    assert (asked(), asked()) == (201, 201)
    change_role(by=SYSTEM, membership=team.members["developer"], role="viewer")
    assert asked() == 403
    remove_member(by=SYSTEM, membership=team.members["developer"])
    assert asked() == 404
    add_member(by=SYSTEM, tenant=team.tenant, user=team.users["developer"], role="owner")
    assert asked() == 201
    with all_tenants("a test"):
        assert ApiKey.objects.filter(name="again").count() == 1


def test_a_comma_within_a_tag_parts_nothing(world: World) -> None:
    client, address = world.client("owner"), f"/tenants/{world.cast.tenant.pk}"
    tag = ask(client, "GET", address)["ETag"]
    assert ask(client, "PATCH", address, {"name": "New"}, If_Match='"a,b"').status_code == 412
    assert ask(client, "PATCH", address, {"name": "New"}, If_Match=f'"a,b", {tag}').status_code == 200
