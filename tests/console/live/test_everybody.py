"""Every topic of the live socket × everybody: who is streamed to, and with which code the others are closed."""

from __future__ import annotations

import pytest
from asgiref.sync import sync_to_async
from channels.layers import get_channel_layer
from django.conf import settings
from django.test import Client

from console.asgi import application
from console.live import topics
from console.live.routing import websocket_urlpatterns
from tenants.roles import Right
from tests.console.everybody import EVERYBODY, Asks, in_tenant, invite_everybody, on_platform
from tests.console.live.sockets import Socket
from tests.tenants.conftest import Cast, build_cast

TOPICS: dict[str, Asks] = {
    "all": on_platform(Right.VIEW_PLATFORM),
    "own": in_tenant(Right.VIEW),
    "tnt_nosuchthing": on_platform(Right.VIEW_PLATFORM),
}
"""Everything; the first tenant; one that does not exist, which only those who see every tenant may name."""


def test_there_is_one_socket_and_it_streams_these_topics_alone() -> None:
    assert [str(pattern.pattern) for pattern in websocket_urlpatterns] == ["live/"]
    assert topics.Scope.parse("all").group == "live.all"
    assert topics.Scope.parse("anything").group == "live.tenant.anything"


@pytest.mark.django_db(transaction=True)
async def test_everybody_is_streamed_what_they_may_see_alone() -> None:
    cast, cookies = await sync_to_async(_signed_in)()
    found, expected = {}, {}
    for who in EVERYBODY:
        for topic, asks in TOPICS.items():
            scope = cast.tenant.pk if topic == "own" else topic
            actor = await sync_to_async(cast.actor)(who)
            expected[who, topic] = _code(asks.refusal(actor, cast.tenant.pk))
            found[who, topic] = await _watch(scope, cookies.get(who))
    await get_channel_layer().flush()
    assert found == expected


def _signed_in() -> tuple[Cast, dict[str, str]]:
    cast = build_cast()
    remove, cookies = invite_everybody(cast), {}
    for who in EVERYBODY:
        if who != "anonymous":
            client = Client()
            client.force_login(cast.users[who])
            cookies[who] = client.cookies[settings.SESSION_COOKIE_NAME].value
    remove()
    return cast, cookies


def _code(status: int | None) -> int | None:
    if status is None:
        return None
    return topics.CLOSE_SIGNED_OUT if status == 401 else topics.CLOSE_FORBIDDEN


async def _watch(scope: str, cookie: str | None) -> int | None:
    """The code the socket is closed with; None for whom it greets."""
    headers = [(b"host", b"localhost"), (b"origin", b"http://localhost")]
    if cookie is not None:
        headers.append((b"cookie", f"{settings.SESSION_COOKIE_NAME}={cookie}".encode()))
    socket = Socket(application, "/live/", f"scope={scope}", headers)
    assert await socket.connect()
    output = await socket.receive_output(20)
    if output["type"] == "websocket.close":
        return int(output["code"])
    assert '"hello"' in output["text"]
    await socket.leave()
    return None
