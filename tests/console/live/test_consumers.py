"""The live socket: who may watch what, a snapshot to start from, and an end when the right to watch ends."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from channels.layers import get_channel_layer
from django.conf import settings
from django.contrib.sessions.models import Session
from django.test import Client
from django.utils import timezone
from redis.asyncio import Redis

from console.asgi import application
from console.live import consumers, topics
from console.live.topics import Names, Scope, encode_second
from serving.control.alerts.models import Alert, AlertRule
from serving.telemetry.live import LiveSecond
from tenants.actions.members import remove_member
from tenants.actions.sessions import end_sessions
from tenants.scoping import all_tenants
from tests.console.live.sockets import Socket
from tests.tenants.conftest import SYSTEM, Cast, build_cast

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
async def people() -> Cast:
    return await sync_to_async(build_cast)()


@pytest.fixture(autouse=True)
async def fresh_layer() -> AsyncIterator[None]:
    """The channel layer keeps one connection per event loop; each test has a loop of its own."""
    yield
    await get_channel_layer().flush()


async def watch(people: Cast, who: str, scope: str, origin: str = "http://localhost") -> Socket:
    headers = [(b"host", b"localhost"), (b"origin", origin.encode())]
    if who != "anonymous":
        cookie = await sync_to_async(_signed_in)(people, who)
        headers.append((b"cookie", f"{settings.SESSION_COOKIE_NAME}={cookie}".encode()))
    return Socket(application, "/live/", f"scope={scope}", headers)


async def watching(people: Cast, who: str, scope: str) -> Socket:
    """Past its greeting and its first snapshot."""
    socket = await watch(people, who, scope)
    assert await socket.connect()
    assert await _next_but_pings(socket) == {"type": "hello", "scope": scope.partition("&")[0]}
    assert (await _next_but_pings(socket))["type"] == "snapshot"
    return socket


async def _next_but_pings(socket: Socket) -> dict[str, Any]:
    """Some tests have pings come so often that one may be first."""
    while (message := await socket.next()) == {"type": "ping"}:
        pass
    return message


def _signed_in(people: Cast, who: str) -> str:
    client = Client()
    client.force_login(people.users[who])
    return client.cookies[settings.SESSION_COOKIE_NAME].value


async def publish(scope: Scope, message: dict[str, Any]) -> None:
    await get_channel_layer().group_send(scope.group, {"type": "live.frame", "text": json.dumps(message)})


async def test_an_operator_watches_everything_from_a_snapshot_on(people: Cast) -> None:
    socket = await watching(people, "operator", "all")
    await socket.leave()


async def test_a_member_gets_the_frames_of_their_tenant(people: Cast) -> None:
    socket = await watching(people, "viewer", people.tenant.pk)
    await publish(Scope(people.other.pk), {"type": "frame", "seq": 1})
    await publish(Scope(people.tenant.pk), {"type": "frame", "seq": 2})
    assert await socket.next() == {"type": "frame", "seq": 2}
    await socket.leave()


@pytest.mark.parametrize(
    ("who", "scope", "code"),
    [
        ("anonymous", "all", topics.CLOSE_SIGNED_OUT),
        ("viewer", "all", topics.CLOSE_FORBIDDEN),
        ("viewer", "other", topics.CLOSE_FORBIDDEN),
        ("viewer", "tnt_no-such-thing", topics.CLOSE_FORBIDDEN),
        ("nobody", "all", topics.CLOSE_FORBIDDEN),
    ],
)
async def test_what_one_may_not_watch_is_refused_with_a_code(
    people: Cast, who: str, scope: str, code: int
) -> None:
    socket = await watch(people, who, people.other.pk if scope == "other" else scope)
    assert await socket.connect()
    assert await socket.close_code() == code


async def test_another_sites_page_cannot_open_the_socket(people: Cast) -> None:
    socket = await watch(people, "operator", "all", origin="http://evil.example")
    assert not await socket.connect()


async def test_whoever_missed_a_frame_reads_the_history(
    people: Cast, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumers, "MIN_SNAPSHOT_GAP_S", 0.0)
    scope = Scope(people.tenant.pk)
    client = Redis.from_url(settings.VALKEY_URL)
    await client.rpush(scope.history_key, '{"type":"frame","seq":7}', '{"type":"frame","seq":8}')
    socket = await watching(people, "owner", people.tenant.pk)
    await socket.say('{"do":"snapshot"}')
    assert [frame["seq"] for frame in (await socket.next())["frames"]] == [7, 8]
    await client.delete(scope.history_key)
    await client.aclose()
    await socket.leave()


async def test_nonsense_from_a_client_changes_nothing(people: Cast) -> None:
    socket = await watching(people, "owner", people.tenant.pk)
    for nonsense in ("", "[", '{"do": 3}', '{"do":"explode"}', "x" * 10_000):
        await socket.say(nonsense)
    await publish(Scope(people.tenant.pk), {"type": "frame", "seq": 1})
    assert (await socket.next())["seq"] == 1
    await socket.leave()


async def test_a_silent_client_is_pinged_and_in_the_end_let_go(
    people: Cast, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topics, "PING_S", 0.05)
    monkeypatch.setattr(topics, "SILENCE_S", 1.0)
    socket = await watching(people, "owner", people.tenant.pk)
    assert await socket.next() == {"type": "ping"}
    assert await socket.close_code() == 1000


async def test_losing_the_membership_ends_the_stream(people: Cast, monkeypatch: pytest.MonkeyPatch) -> None:
    _ask_again_at_once(monkeypatch)
    socket = await watching(people, "viewer", people.tenant.pk)
    await sync_to_async(remove_member)(by=SYSTEM, membership=people.members["viewer"])
    assert await socket.close_code() == topics.CLOSE_FORBIDDEN


async def test_signing_out_ends_the_stream(people: Cast, monkeypatch: pytest.MonkeyPatch) -> None:
    _ask_again_at_once(monkeypatch)
    socket = await watching(people, "viewer", people.tenant.pk)
    await sync_to_async(Session.objects.all().delete)()
    assert await socket.close_code() == topics.CLOSE_SIGNED_OUT


def _ask_again_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topics, "PING_S", 0.05)
    monkeypatch.setattr(topics, "RECHECK_S", 0.05)


async def test_an_ended_session_ends_its_streams_at_once(people: Cast) -> None:
    """Not at the next time it is asked, which is `topics.RECHECK_S` away."""
    socket = await watching(people, "viewer", people.tenant.pk)
    await sync_to_async(end_sessions)(by=SYSTEM, user_id=people.users["viewer"].pk)
    assert await socket.close_code() == topics.CLOSE_SIGNED_OUT


async def test_a_lost_membership_ends_the_stream_at_once(people: Cast) -> None:
    socket = await watching(people, "viewer", people.tenant.pk)
    await sync_to_async(remove_member)(by=SYSTEM, membership=people.members["viewer"])
    assert await socket.close_code() == topics.CLOSE_FORBIDDEN


async def test_the_streams_of_others_go_on(people: Cast) -> None:
    socket = await watching(people, "owner", people.tenant.pk)
    await sync_to_async(_signed_in)(people, "viewer")
    await sync_to_async(end_sessions)(by=SYSTEM, user_id=people.users["viewer"].pk)
    await publish(Scope(people.tenant.pk), {"type": "frame", "seq": 2})
    assert await socket.next() == {"type": "frame", "seq": 2}
    await socket.leave()


async def test_support_watches_everything(people: Cast) -> None:
    socket = await watching(people, "support", "all")
    await socket.leave()


def test_a_line_that_died_silently_is_known_within_forty_seconds() -> None:
    assert topics.PING_S < topics.SILENCE_S
    assert topics.SILENCE_S + topics.PING_S <= 40


async def test_a_snapshot_holds_what_fires_for_those_whom_it_concerns(people: Cast) -> None:
    await sync_to_async(_fire)(people)
    for who, tenant, names in (("viewer", people.tenant, ["Requests fail"]), ("stranger", people.other, [])):
        socket = await watch(people, who, tenant.pk)
        assert await socket.connect()
        assert (await _next_but_pings(socket))["type"] == "hello"
        snapshot = await _next_but_pings(socket)
        assert [alert["name"] for alert in snapshot["alerts"]] == names
        await socket.leave()


def _fire(people: Cast) -> None:
    with all_tenants("a test"):
        rule = AlertRule.objects.create(
            name="Requests fail", condition={"type": "threshold"}, by=["tenant_id"], created_by="test"
        )
        labels = {"tenant_id": people.tenant.pk}
        Alert.objects.create(
            fingerprint="0123456789abcdef",
            rule=rule,
            tenant=people.tenant,
            labels=labels,
            state="firing",
            state_body={},
            since=timezone.now(),
            fired_at=timezone.now(),
        )


async def test_a_page_without_figures_hears_of_alerts_alone(people: Cast) -> None:
    socket = await watching(people, "operator", "all&only=alerts")
    second = LiveSecond(at=1, covered=True, rows=[], replicas=[])
    frame = encode_second(second, epoch=1, seq=1, scope=Scope(), names=Names())
    await get_channel_layer().group_send(Scope().group, {"type": "live.frame", "text": frame})
    await publish(Scope(), {"type": "alert", "alert": {}})
    assert (await _next_but_pings(socket))["type"] == "alert"
