"""Dangerous settings are refused by name before anything starts."""

from __future__ import annotations

from typing import Any

import pytest
from django.conf import settings
from django.core.checks import run_checks
from drf_spectacular.checks import schema_check

FINE = {"SECRET_KEY": "s" * 50, "KEY_PEPPER": b"p" * 32, "DEBUG": False, "USES_TLS": False}


def _database(**changes: Any) -> dict[str, Any]:
    return {"default": {**settings.DATABASES["default"], **changes}}


def _found(deploy: bool) -> set[str]:
    found = run_checks(tags=["security", "database"], include_deployment_checks=deploy, databases=[])
    return {str(message.id) for message in found if str(message.id).startswith("tidegate.")}


def test_ordinary_settings_pass(settings: Any) -> None:
    for name, value in FINE.items():
        setattr(settings, name, value)
    assert _found(deploy=True) == set()


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"SECRET_KEY": ""}, "tidegate.E001"),
        ({"SECRET_KEY": "short"}, "tidegate.E001"),
        ({"KEY_PEPPER": b"short"}, "tidegate.E002"),
        ({"DEBUG": True, "USES_TLS": True}, "tidegate.E003"),
        ({"DATABASE_URL": ""}, "tidegate.E004"),
        ({"VALKEY_URL": ""}, "tidegate.E004"),
        ({"DATABASES": _database(CONN_MAX_AGE=60)}, "tidegate.E005"),
        ({"DATABASES": _database(OPTIONS={})}, "tidegate.E005"),
        ({"ALLOWED_HOSTS": ["*"]}, "tidegate.E006"),
        ({"CONSOLE_HOST": "0.0.0.0"}, "tidegate.W001"),
    ],
)
def test_a_dangerous_setting_is_named(settings: Any, changes: dict[str, Any], expected: str) -> None:
    for name, value in (FINE | changes).items():
        setattr(settings, name, value)
    assert _found(deploy=True) == {expected}


def test_the_document_of_the_management_api_has_no_gaps() -> None:
    assert [str(message) for message in schema_check([])] == []
