"""How tests speak with the API: as a person in a session, or with a key."""

from __future__ import annotations

import json
from typing import Any

from django.http import HttpResponse
from django.test import Client

from tenants.actions.keys import create_key
from tests.console.conftest import World

API = "/api/v1"


def ask(client: Client, method: str, path: str, body: Any = None, **headers: str) -> HttpResponse:
    """`path` behind `/api/v1`; header names with underscores."""
    raw = "" if body is None else json.dumps(body)
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    address = path if path.startswith(API) else API + path
    return client.generic(method, address, raw, content_type="application/json", headers=named)


def token_of(world: World, *scopes: str, who: str = "owner", name: str = "robot") -> str:
    """A key of the first tenant, made by `who`."""
    _, token = create_key(by=world.cast.actor(who), tenant=world.cast.tenant, name=name, scopes=scopes)
    return token


def with_key(token: str) -> Client:
    return Client(headers={"authorization": f"Bearer {token}"})


def pointers(answer: HttpResponse) -> list[str]:
    return [error["pointer"] for error in answer.json()["errors"]]
