"""A body is refused before it reaches a disk: small limits everywhere, the upload's for operators only."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.conf import settings
from django.test import AsyncClient

from console.bodies import BoundedBodies
from tenants.actions.users import create_user
from tests.tenants.conftest import SYSTEM

UPLOAD = "/models/m/versions/new"
pytestmark = pytest.mark.django_db(transaction=True)


async def ask(path: str, chunks: list[bytes], headers: dict[bytes, bytes]) -> tuple[int, int]:
    """Status and how many bytes the application was given."""
    seen = 0

    async def app(scope: Any, receive: Callable[[], Any], send: Callable[[Any], Any]) -> None:
        nonlocal seen
        is_more = True
        while is_more:
            message = await receive()
            seen += len(message["body"])
            is_more = message["more_body"]
        await send({"type": "http.response.start", "status": 200, "headers": []})

    queue = [{"type": "http.request", "body": body, "more_body": True} for body in chunks]
    queue[-1]["more_body"] = False
    statuses = []

    async def receive() -> dict[str, Any]:
        return queue.pop(0)

    async def send(message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            statuses.append(message["status"])

    scope = {"type": "http", "path": path, "headers": list(headers.items())}
    await BoundedBodies(app)(scope, receive, send)
    return statuses[0], seen


def chunked() -> dict[bytes, bytes]:
    return {b"transfer-encoding": b"chunked"}


async def signed_in(platform_role: str) -> dict[bytes, bytes]:
    user = await sync_to_async(create_user)(by=SYSTEM, username="ada", platform_role=platform_role)
    client = AsyncClient()
    await client.aforce_login(user)
    return {
        b"cookie": f"{settings.SESSION_COOKIE_NAME}={client.cookies[settings.SESSION_COOKIE_NAME].value}".encode()
    }


async def test_a_form_of_ordinary_size_passes() -> None:
    assert await ask("/tenants/new", [b"a=1"], {b"content-length": b"3"}) == (200, 3)


@pytest.mark.parametrize("path", ["/tenants/new", UPLOAD])
async def test_an_announced_giant_is_refused_unread(path: str) -> None:
    assert await ask(path, [b"x"], {b"content-length": b"99999999"}) == (413, 0)


async def test_an_unannounced_giant_is_cut_off_at_the_limit() -> None:
    status, seen = await ask("/tenants/new", [b"x" * (1 << 20)] * 8, chunked())
    assert (status, seen) == (413, settings.DATA_UPLOAD_MAX_MEMORY_SIZE)


async def test_who_registers_versions_may_upload_more() -> None:
    body = [b"x" * (1 << 20)] * 4
    assert await ask(UPLOAD, body, chunked() | await signed_in("operator")) == (200, 4 << 20)


async def test_who_may_not_register_versions_fills_no_disk() -> None:
    body = [b"x" * (1 << 20)] * 4
    assert (await ask(UPLOAD, body, chunked() | await signed_in("")))[0] == 413


async def test_an_invented_session_cookie_may_not() -> None:
    headers = {b"cookie": f"{settings.SESSION_COOKIE_NAME}=aaaa".encode()}
    assert (await ask(UPLOAD, [b"x" * (1 << 20)] * 4, chunked() | headers))[0] == 413
