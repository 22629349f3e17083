"""One table from domain errors to responses: pages for people, RFC 9457 for the API."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from django.conf import settings
from django.db import OperationalError, connection
from django.test import AsyncClient, Client
from pytest_django import Settings

pytestmark = [pytest.mark.urls("tests.console.request_urls"), pytest.mark.django_db]

CASES = [
    ("not-found", 404, "not_found", "No such API key."),
    ("not-allowed", 403, "not_allowed", "This needs the right “manage keys”."),
    ("conflict", 409, "conflict", "The key is revoked already."),
    ("http404", 404, "not_found", "There is nothing here."),
]


@pytest.mark.parametrize(("kind", "status", "code", "detail"), CASES)
def test_the_api_gets_problem_details(kind: str, status: int, code: str, detail: str) -> None:
    answer = Client().get(f"/api/v1/fail/{kind}")
    body = answer.json()
    assert (answer.status_code, answer["content-type"]) == (status, "application/problem+json")
    assert (body["status"], body["code"], body["detail"]) == (status, code, detail)
    assert body["request_id"] == answer["x-request-id"]
    assert body["instance"] == f"/api/v1/fail/{kind}"
    assert body["type"] == "about:blank" and body["title"]


def test_invalid_values_are_pointed_at(db: None) -> None:
    answer = Client().get("/api/v1/fail/invalid")
    assert answer.status_code == 422
    assert answer.json()["errors"] == [
        {"pointer": "/slug", "detail": "Reserved."},
        {"pointer": "", "detail": "Odd as a whole."},
        {"pointer": "/a~1b~0c", "detail": "No."},
    ]


@pytest.mark.parametrize(("kind", "status", "code", "detail"), CASES)
def test_people_get_a_page(kind: str, status: int, code: str, detail: str) -> None:
    answer = Client().get(f"/fail/{kind}")
    assert answer.status_code == status
    assert answer["content-type"].startswith("text/html")


async def test_async_views_are_answered_alike() -> None:
    answer = await AsyncClient().get("/fail-async/conflict")
    assert answer.status_code == 409


@pytest.mark.parametrize("path", ["/nowhere", "/api/v1/nowhere"])
def test_an_unknown_path_is_not_found(path: str) -> None:
    assert Client().get(path).status_code == 404


@pytest.mark.parametrize("path", ["/fail/bug", "/api/v1/fail/bug"])
def test_a_bug_shows_nothing_of_itself(path: str) -> None:
    answer = Client(raise_request_exception=False).get(path)
    assert answer.status_code == 500
    assert "inner detail" not in answer.content.decode()
    assert answer["x-request-id"].startswith("req_")


def test_a_form_without_its_token_is_refused_politely() -> None:
    answer = Client(enforce_csrf_checks=True).post("/fail/conflict")
    assert answer.status_code == 403
    assert "sent no cookie" in answer.content.decode()


def test_a_form_from_another_address_is_not_called_old() -> None:
    client = Client(enforce_csrf_checks=True, headers={"origin": "https://proxy.example"})
    text = client.post("/fail/conflict").content.decode()
    assert "another address than this one" in text and "too old" not in text


def test_a_form_of_another_session_is_called_so() -> None:
    client = Client(enforce_csrf_checks=True)
    client.cookies[settings.CSRF_COOKIE_NAME] = "a" * 32
    assert "of another session" in client.post("/fail/conflict").content.decode()


@pytest.mark.parametrize("path", ["/fail/database-away", "/fail/valkey-away", "/api/v1/fail/database-away"])
def test_a_service_that_is_away_is_said_to_be_with_a_time_to_retry(path: str) -> None:
    answer = Client().get(path)
    assert (answer.status_code, answer["retry-after"]) == (503, "5")
    assert "inner detail" not in answer.content.decode()


def test_a_database_lost_before_the_view_is_said_to_be_away(monkeypatch: pytest.MonkeyPatch) -> None:
    def lost(request: object) -> None:
        raise OperationalError("inner detail")

    monkeypatch.setattr("console.requests._identify", lost)
    answer = Client(raise_request_exception=False).get("/hello")
    assert (answer.status_code, answer["retry-after"]) == (503, "5")


def test_sign_in_without_its_rate_limits_is_refused_for_now(settings: Settings) -> None:
    settings.CACHES = {"default": {**settings.CACHES["default"], "LOCATION": "redis://127.0.0.1:9"}}
    answer = Client().post("/account/login/", {"login": "ada", "password": "x"})
    assert answer.status_code == 503


@pytest.mark.urls("console.urls")
@pytest.mark.django_db(transaction=True)
def test_connections_that_died_in_the_pool_fail_no_page(django_user_model: Any) -> None:
    """A database that was restarted would otherwise cost an error for every connection that idled meanwhile."""
    client = Client()
    client.force_login(django_user_model.objects.create_user("ada"))
    connection.close()
    _end_every_connection()
    assert client.get("/").status_code == 200


def _end_every_connection() -> None:
    with psycopg.connect(**connection.get_connection_params() | {"autocommit": True}) as other:
        other.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
