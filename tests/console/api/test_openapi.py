"""The OpenAPI document is true: schemathesis sends what it allows, and what it forbids, to every operation."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from django.core.handlers.wsgi import WSGIHandler
from django.core.signals import request_finished, request_started
from django.db import close_old_connections, transaction
from django.test import Client
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from console.api.schema import openapi
from serving.control.pricing.actions import set_price
from serving.control.quotas.actions import create_quota
from tenants.trail.exports import request_export
from tenants.trail.search import Asked
from tests.console.api import test_access as access
from tests.console.conftest import World
from tests.console.tuned import build_encoder, build_run
from tests.tenants.conftest import SYSTEM, last_event

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    negative_data_rejection,
]
EXAMPLES = max(2, settings.default.max_examples // 16)
"""Of each kind, for each operation: they are dear, so between two edits fewer do."""
TOKEN = "a" * 32


class Undo(Exception):
    """Takes back what one request did."""


def operations() -> list[str]:
    return [
        f"{method.upper()} {path}" for path, found in sorted(openapi()["paths"].items()) for method in found
    ]


@pytest.fixture(autouse=True)
def one_connection() -> Iterator[None]:
    """Requests share the test's connection and its transaction, as those of Django's test client do."""
    for signal in (request_started, request_finished):
        signal.disconnect(close_old_connections)
    yield
    for signal in (request_started, request_finished):
        signal.connect(close_old_connections)


@pytest.fixture(scope="module")
def described() -> Any:
    return schemathesis.openapi.from_dict(openapi())


@pytest.mark.parametrize("label", operations())
def test_every_operation_answers_as_described(
    world: World, described: Any, label: str, settings: Any
) -> None:
    settings.API_REQUESTS_PER_MINUTE = 0
    method, _, path = label.partition(" ")
    operation = described[path][method]
    operation.app = WSGIHandler()
    ids = _ids(world)
    for mode in GenerationMode:
        named = _named(world) if mode is GenerationMode.POSITIVE else {}
        _probe(operation.as_strategy(generation_mode=mode), _session(world), ids, named)


def _probe(cases: Any, session: dict[str, str], ids: dict[str, str], named: dict[str, Any]) -> None:
    @settings(
        max_examples=EXAMPLES,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=cases)
    def answers(case: Any) -> None:
        for name in case.path_parameters:
            case.path_parameters[name] = ids[name]
        case.headers.pop("Authorization", None)
        if isinstance(case.body, dict):
            case.body.update({name: named[name] for name in case.body if name in named})
        try:
            with transaction.atomic():
                answer = case.call(headers={"X-CSRFToken": TOKEN}, cookies=session)
                assert answer.status_code not in (401, 403), answer.content
                case.validate_response(answer, checks=CHECKS)
                raise Undo
        except Undo:
            pass

    answers()


def _session(world: World) -> dict[str, str]:
    client: Client = world.client("operator")
    return {"sessionid": client.cookies["sessionid"].value, "csrftoken": TOKEN}


def _named(world: World) -> dict[str, Any]:
    """What a body names is there: an invented id would only ever be refused."""
    return {
        "tenant": world.cast.other.pk,
        "tenants": [world.cast.other.pk],
        "model": world.model.pk,
        "version": world.version.pk,
        "profile": world.profile.pk,
        "login": "nobody",
        "name": "new",
        "username": "new",
        "email": "new@example.org",
        "device": "cpu",
        "time_zone": "UTC",
        "key": world.key.pk,
        "device_class": "cpu",
        "condition": access.SLOW,
    }


def _ids(world: World) -> dict[str, str]:
    return {
        "tenant_id": world.cast.tenant.pk,
        "member_id": world.cast.members["developer"].pk,
        "key_id": world.key.pk,
        "invitation_id": str(access.invitation(world)[0]),
        "session_id": str(access.session(world)[0]),
        "archive_id": str(access.archive(world)[0]),
        "webhook_id": str(access.webhook(world)[0]),
        "verification_id": str(access.verification(world)[0]),
        "organisation_id": str(access.organisation(world)[0]),
        "account_id": str(world.cast.users["nobody"].pk),
        "model_id": world.model.pk,
        "alias": "champion",
        "version_id": world.version.pk,
        "deployment_id": world.deployment.pk,
        "profile_id": world.profile.pk,
        "binding_id": world.binding.pk,
        **_money(world),
        "rule_id": str(access.alert_rule(world)[0]),
        "alert_id": str(access.alert(world)[0]),
        "channel_id": str(access.channel(world)[0]),
        "silence_id": str(access.silence(world)[0]),
        "export_id": request_export(by=SYSTEM, tenant=world.cast.tenant, format="csv", asked=Asked()).pk,
        "event_id": last_event().event_id,
        "tuning_id": build_run(build_encoder(world.model)).pk,
    }


def _money(world: World) -> dict[str, str]:
    quota = create_quota(by=SYSTEM, tenant=world.cast.tenant, resource="requests", window="hour", limit=10)
    return {"quota_id": quota.pk, "price_id": set_price(by=SYSTEM, model=world.model).pk}


def test_what_a_change_needs_and_what_may_not_be_blank_is_said() -> None:
    shapes = openapi()["components"]["schemas"]
    assert shapes["RoleBody"]["required"] == ["role"]
    assert shapes["TenantBody"]["properties"]["name"]["pattern"] == r"\S"
    assert not [name for name in shapes if name.startswith("Patched")]


def test_no_word_of_the_generator_is_left() -> None:
    said = json.dumps(openapi())
    assert "x-spec-enum-id" not in said
    assert "`owner` - owner" not in said
