"""Requests that follow each other: what one made is read, changed and removed by the next ones, as described."""

from __future__ import annotations

from typing import Any

import schemathesis
from django.core.handlers.wsgi import WSGIHandler
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from console.api.schema import openapi
from tests.console.api.test_openapi import CHECKS, TOKEN, _session, one_connection
from tests.console.conftest import World

__all__ = ["one_connection"]
JOURNEYS = max(4, settings.default.max_examples // 8)
ENDS_ITSELF = ["end_session", "end_account_sessions", "change_account", "reset_second_factor"]
"""Whoever asks would be signed out by it."""


def test_journeys_are_answered_as_described(world: World, settings: Any) -> None:
    settings.API_REQUESTS_PER_MINUTE = 0
    run_state_machine_as_test(_machine(_session(world)), settings=_bounded())


def _machine(session: dict[str, str]) -> Any:
    described: Any = schemathesis.openapi.from_dict(openapi())
    described.app = WSGIHandler()
    described = described.exclude(operation_id=ENDS_ITSELF)

    class Journey(described.as_state_machine()):  # type: ignore[misc]
        def get_call_kwargs(self, case: Any) -> dict[str, Any]:
            case.headers.pop("Authorization", None)
            return {"headers": {"X-CSRFToken": TOKEN}, "cookies": session}

        def validate_response(self, response: Any, case: Any, **others: Any) -> None:
            assert response.status_code not in (401, 403), response.content
            case.validate_response(response, checks=CHECKS)

    return Journey


def _bounded() -> settings:
    return settings(
        max_examples=JOURNEYS,
        stateful_step_count=8,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
