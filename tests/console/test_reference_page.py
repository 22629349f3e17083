"""The reference page shows what the OpenAPI document says, without a script from anywhere."""

from __future__ import annotations

import re

import pytest
from django.urls import reverse

from console.api.schema import openapi
from tests.console.conftest import World


@pytest.fixture
def shown(world: World) -> str:
    answer = world.client("viewer").get(reverse("reference"))
    assert answer.status_code == 200
    return answer.content.decode()


def test_every_operation_is_there(shown: str) -> None:
    ids = {said["operationId"] for methods in openapi()["paths"].values() for said in methods.values()}
    assert sorted(each for each in ids if f'id="{each}"' not in shown) == []


def test_fields_are_named_with_their_kind(shown: str) -> None:
    part = shown[shown.index('id="create_quota"') :]
    assert "<code>observe_only</code>" in part[:20_000]
    assert "one of requests, tokens, device_us, cost_micro, concurrency, queue" in part[:20_000]
    assert "whole number or null" in part[:20_000]


def test_nothing_is_fetched_from_elsewhere(shown: str) -> None:
    sources = re.findall(r'(?:src|href)="(https?:)?//', shown)
    assert sources == []
