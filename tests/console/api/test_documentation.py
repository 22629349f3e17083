"""The reference page of the API is true: its examples run, and it names every address and every code."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from django.test import Client
from django.urls import URLPattern

from console.api.urls import urlpatterns
from console.api.views import CODES
from console.problems import STATUS_OF
from tests.console.api.asking import token_of
from tests.console.conftest import World

PAGE = (Path(__file__).parents[3] / "docs" / "management-api.md").read_text()
CURLS = [line for block in re.findall(r"```bash\n(.*?)```", PAGE, re.S) for line in block.splitlines()]
UNNAMED = {"openapi.json"}


@pytest.mark.parametrize("line", CURLS)
def test_an_example_runs_as_it_stands(world: World, line: str) -> None:
    token = token_of(world, "manage:read", "manage:write")
    line = line.replace("$CONSOLE", "").replace("$TENANT", world.cast.tenant.pk).replace("$KEY", token)
    words = shlex.split(line)
    assert words[:2] == ["curl", "-s"]
    method, headers, body, address = "GET", {}, "", ""
    rest = iter(words[2:])
    for word in rest:
        if word == "-X":
            method = next(rest)
        elif word == "-H":
            name, _, value = next(rest).partition(": ")
            headers[name] = value
        elif word == "-d":
            body = next(rest)
        else:
            address = word
    answer = Client().generic(method, address, body, content_type="application/json", headers=headers)
    assert answer.status_code in (200, 201), answer.content


def test_there_are_examples() -> None:
    assert len(CURLS) >= 4


def test_every_address_is_named() -> None:
    table = PAGE[PAGE.index("## Addresses") :]
    missing = [path for path in map(_words, urlpatterns) if not all(word in table for word in path)]
    assert missing == []


def test_every_code_is_named() -> None:
    codes = {kind.code for kind in STATUS_OF} | set(CODES.values())
    assert sorted(code for code in codes if f"`{code}`" not in PAGE) == []


def _words(pattern: URLPattern) -> list[str]:
    """`tenants/<str:tenant_id>/keys` → its own words, each with the stroke before it."""
    route = re.sub(r"<[^>]*>", "", str(pattern.pattern))
    return [f"/{word}" for word in route.split("/") if word and word not in UNNAMED]
