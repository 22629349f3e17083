"""A head that comes again is not parsed again, and nothing else changes by that."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.contract import KeyEntry, TenantEntry
from serving.gateway.connections import tick_all
from serving.gateway.hot import Route
from serving.gateway.inference import Inference
from serving.gateway.known_head import MAX_HEAD_BYTES, KnownHead, cut
from serving.gateway.protocols import oip
from serving.gateway.snapshot import Grant
from serving.gateway.visit import Visit
from serving.worker.testing import EchoWorker
from tests.serving.gateway.engines import HeldEngine
from tests.serving.gateway.harness import Harness, echo_body, gateway, until
from tests.serving.gateway.test_http import BODY, Raw, post

HEAD = b"POST /v1/embeddings HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nAuthorization: Bearer k\r\n\r\n"
GRANT = Grant(
    KeyEntry(id="key_a", tenant_id="tnt_a", digest=b""), TenantEntry(id="tnt_a", slug="a", name="a")
)
ROUTE = Route("infer", False, lambda headers, body: (oip.InferCall(headers, body), "m"), "m", None)


def known(head: bytes = HEAD) -> KnownHead:
    parts = cut(head)
    assert parts is not None
    return KnownHead(*parts, {b"content-length": b"5", b"host": b"x"}, ROUTE, GRANT, None)


def test_the_same_head_with_another_body_is_known() -> None:
    assert known().match(HEAD + b"12345") == ({b"content-length": b"5", b"host": b"x"}, b"12345", True)
    again = known().match(HEAD.replace(b": 5", b": 12") + b"123456789012")
    assert again == ({b"content-length": b"12", b"host": b"x"}, b"123456789012", True)
    assert known().match(HEAD) == ({b"content-length": b"5", b"host": b"x"}, b"", False)


@pytest.mark.parametrize(
    "data",
    [
        HEAD[:-1],
        HEAD + b"1234",
        HEAD + b"123456",
        HEAD + b"12345" + HEAD + b"12345",
        HEAD.replace(b"Host: x", b"Host: y") + b"12345",
        HEAD.replace(b"Bearer k", b"Bearer l") + b"12345",
        HEAD.replace(b": 5", b": 5 ") + b"12345",
        HEAD.replace(b": 5", b": +5") + b"12345",
        HEAD.replace(b": 5", b": ") + b"",
        HEAD.replace(b": 5", b": 5555555") + b"12345",
        HEAD.replace(b": 5", b": 70000") + b"x" * 70_000,
        HEAD.replace(b": 5", b": 70000"),
        b"",
    ],
)
def test_anything_else_is_left_to_the_parser(data: bytes) -> None:
    assert known().match(data) is None


@pytest.mark.parametrize(
    "head",
    [
        HEAD[:-2],
        HEAD + b"\r\n\r\n",
        HEAD.replace(b"Host: x\r\n", b"Host: x\n"),
        HEAD.replace(b"Host: x\r\n", b"Host: x\n\n"),
        HEAD.replace(b"Content-Length: 5\r\n", b""),
        HEAD.replace(b": 5", b": 5x"),
        HEAD.replace(b"x", b"x" * MAX_HEAD_BYTES),
    ],
)
def test_a_head_that_is_not_plain_is_not_kept(head: bytes) -> None:
    assert cut(head) is None


@given(before=st.binary(max_size=40), after=st.binary(max_size=40))
def test_what_is_cut_is_what_was_there(before: bytes, after: bytes) -> None:
    head = before + b"\r\nContent-Length: 31\r\n" + after + b"\r\n\r\n"
    parts = cut(head)
    assert parts is None or b"".join(parts) == head


async def heard(harness: Harness, raw: Raw, body: bytes = BODY) -> int:
    raw.writer.write(post(harness, body))
    return (await raw.answer())[0]


async def test_a_key_that_is_revoked_ends_a_known_head(echo: Harness) -> None:
    raw = await Raw.open(echo)
    assert [await heard(echo, raw) for _ in range(3)] == [200, 200, 200]
    echo.seam.delete("key", "key_" + echo.token.split("_")[1])
    await echo.gateway.follower.poll()
    assert await heard(echo, raw) == 401
    raw.close()


async def test_a_key_that_expires_ends_a_known_head(echo: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    echo.token = echo.publish_key(expires_at=time.time() + 3600)
    await echo.gateway.follower.poll()
    raw = await Raw.open(echo)
    assert [await heard(echo, raw) for _ in range(3)] == [200, 200, 200]
    late = time.time() + 3601
    monkeypatch.setattr("serving.gateway.inference.time.time", lambda: late)
    assert await heard(echo, raw) == 401
    raw.close()


async def test_a_known_head_follows_changes_of_tenant_and_route(echo: Harness) -> None:
    raw = await Raw.open(echo)
    assert [await heard(echo, raw) for _ in range(3)] == [200, 200, 200]
    echo.publish_model(version_id="mv_new")
    await echo.gateway.follower.poll()
    assert await heard(echo, raw) == 503  # the new version has no replica yet
    echo.publish_tenant(is_active=False)
    await echo.gateway.follower.poll()
    assert await heard(echo, raw) == 403
    raw.close()


async def test_known_heads_take_bodies_of_any_length_and_refuse_bad_ones(echo: Harness) -> None:
    raw = await Raw.open(echo)
    for count in (1, 2, 200, 3, 2000, 1):
        body = json.dumps(echo_body([0.5] * count)).encode()
        assert await heard(echo, raw, body) == 200
        assert await heard(echo, raw, body[:-1]) == 400
    raw.close()


async def test_known_heads_and_others_take_turns(echo: Harness) -> None:
    raw = await Raw.open(echo)
    for _ in range(3):
        assert await heard(echo, raw) == 200
        raw.writer.write(b"GET /livez HTTP/1.1\r\nhost: test\r\n\r\n")
        assert (await raw.answer())[0] == 200
        raw.writer.write(post(echo, BODY) + post(echo, BODY))
        assert [(await raw.answer())[0] for _ in range(2)] == [200, 200]
        raw.writer.write(post(echo, b'{"inputs"', length=len(BODY)))
        raw.writer.write(BODY[9:])
        assert (await raw.answer())[0] == 200
    raw.close()


async def test_a_known_head_may_come_before_its_body(echo: Harness) -> None:
    raw = await Raw.open(echo)
    assert await heard(echo, raw) == 200
    whole = post(echo, BODY)
    head = whole[: -len(BODY)]
    for rest in ((BODY,), (BODY[:5], BODY[5:]), (BODY + whole[:30], whole[30:])):
        await sent_alone(echo, raw, head)
        for part in rest:
            raw.writer.write(part)
        assert [(await raw.answer())[0] for _ in range(1 + (len(rest[0]) > len(BODY)))][-1] == 200
    raw.close()


async def test_a_known_head_whose_body_does_not_come_is_served_by_asgi(echo: Harness) -> None:
    raw = await Raw.open(echo)
    assert await heard(echo, raw) == 200
    whole = post(echo, BODY)
    await sent_alone(echo, raw, whole[: -len(BODY)])
    tick_all(echo.server.server_state.connections)
    raw.writer.write(BODY)
    assert (await raw.answer())[0] == 200
    raw.close()


async def test_a_client_that_leaves_between_head_and_body_is_counted(echo: Harness) -> None:
    raw = await Raw.open(echo)
    assert await heard(echo, raw) == 200
    await sent_alone(echo, raw, post(echo, BODY)[: -len(BODY)])
    raw.close()

    def failed() -> list[dict[str, int]]:
        totals = echo.gateway._metrics.totals()
        return [counts.failed for recorder, counts in totals if recorder.labels.model == "echo"]

    await until(lambda: failed() == [{"cancelled": 1}])


async def test_a_gateway_that_stops_waits_for_the_body_of_a_known_head(echo: Harness) -> None:
    raw = await Raw.open(echo)
    assert await heard(echo, raw) == 200
    await sent_alone(echo, raw, post(echo, BODY)[: -len(BODY)])
    for connection in list(echo.server.server_state.connections):
        connection.shutdown()
    raw.writer.write(BODY)
    status, headers, _ = await raw.answer()
    assert (status, headers["connection"]) == (200, "close")
    assert await raw.is_closed()


async def sent_alone(harness: Harness, raw: Raw, head: bytes) -> None:
    """Send a head, and wait until the gateway has read it."""
    raw.writer.write(head)
    await until(lambda: any(is_reading_body(c) for c in harness.server.server_state.connections))


def is_reading_body(connection: Any) -> bool:
    cycle = connection.cycle
    return cycle is not None and not cycle.response_complete and bool(cycle.more_body)


async def test_a_known_head_behind_a_refusal_and_an_open_request_waits_for_its_turn() -> None:
    engine = HeldEngine()
    async with gateway() as harness:
        harness.publish_model()
        harness.publish_replicas(harness.address())
        async with EchoWorker(harness.address(), engine, replica_id="rep_0"):
            await harness.until_ready()
            raw = await Raw.open(harness)
            engine.release.set()
            assert await heard(harness, raw) == 200
            engine.release.clear()
            engine.started.clear()
            raw.writer.write(post(harness, b"{") + post(harness, BODY))
            assert (await raw.answer())[0] == 400
            await until(engine.started.is_set)
            raw.writer.write(post(harness, b"{"))  # its head is known, and it is refused at once
            await harness.client.get("/livez")
            engine.release.set()
            assert [(await raw.answer())[0] for _ in range(2)] == [200, 400]
            raw.close()


async def test_a_known_head_is_known_again_after_a_change_of_configuration(
    echo: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    raw = await Raw.open(echo)
    assert [await heard(echo, raw) for _ in range(2)] == [200, 200]
    echo.publish_tenant("tnt_new")
    await echo.gateway.follower.poll()
    asked: list[str] = []
    authenticate = Inference.authenticate

    def noted(self: Inference, visit: Visit, endpoint: str) -> Grant:
        asked.append(endpoint)
        return authenticate(self, visit, endpoint)

    monkeypatch.setattr(Inference, "authenticate", noted)
    assert [await heard(echo, raw) for _ in range(3)] == [200, 200, 200]
    assert len(asked) == (1 if echo.settings.has_hot_routes else 3)
    raw.close()
