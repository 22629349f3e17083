"""HTTP itself: methods, unknown paths, bodies too large or too slow, pipelining, heads without end."""

from __future__ import annotations

import asyncio
import json
import re

import pytest

from serving.gateway import connections, exchange
from serving.gateway.connections import tick_all
from tests.serving.gateway.harness import PATIENCE_S, Harness, echo_body, until


class Raw:
    """A connection on which a test says exactly what it wants."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    @classmethod
    async def open(cls, harness: Harness) -> Raw:
        host, port = harness.url[7:].split(":")
        return cls(*await asyncio.open_connection(host, int(port)))

    async def answer(self) -> tuple[int, dict[str, str], bytes]:
        head = (await asyncio.wait_for(self.reader.readuntil(b"\r\n\r\n"), PATIENCE_S)).decode()
        status = int(head.split(" ")[1])
        headers = {name.lower(): value for name, value in re.findall(r"(?m)^([^:\r\n]+): ?(.*?)\r$", head)}
        body = await self.reader.readexactly(int(headers.get("content-length", "0")))
        return status, headers, body

    async def is_closed(self) -> bool:
        return await asyncio.wait_for(self.reader.read(1), PATIENCE_S) == b""

    def close(self) -> None:
        self.writer.close()


def post(harness: Harness, body: bytes, *extra: str, length: int | None = None) -> bytes:
    lines = [
        "POST /v2/models/echo/infer HTTP/1.1",
        "host: test",
        f"authorization: Bearer {harness.token}",
        f"content-length: {len(body) if length is None else length}",
        *extra,
    ]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


BODY = json.dumps(echo_body()).encode()


@pytest.mark.parametrize(
    ("method", "path", "allow"),
    [
        ("GET", "/v1/embeddings", "POST, OPTIONS"),
        ("DELETE", "/v1/models/echo", "GET, HEAD, OPTIONS"),
        ("PUT", "/v2/models/echo/infer", "POST, OPTIONS"),
        ("POST", "/metrics", "GET, HEAD, OPTIONS"),
    ],
)
async def test_a_wrong_method_says_which_ones_are_right(
    echo: Harness, method: str, path: str, allow: str
) -> None:
    response = await echo.client.request(method, path, headers=echo.auth)
    assert (response.status_code, response.headers["allow"]) == (405, allow)
    options = await echo.client.options(path)
    assert (options.status_code, options.headers["allow"], options.content) == (204, allow, b"")


async def test_head_answers_without_a_body_and_keeps_the_connection(echo: Harness) -> None:
    for _ in range(3):
        response = await echo.client.head("/livez")
        assert (response.status_code, response.content) == (200, b"")
    assert (await echo.client.get("/livez")).json() == {"live": True}


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/nope",
        "/v2/models",
        "/v2/models/",
        "/v2/models/echo/nope",
        "/v2/models/echo/versions",
        "/v2/%ff",
    ],
)
async def test_an_unknown_path_is_not_found_in_the_plain_shape(echo: Harness, path: str) -> None:
    response = await echo.client.get(path, headers=echo.auth)
    assert (response.status_code, response.json()["code"]) == (404, "not_found")
    assert isinstance(response.json()["error"], str)


async def test_an_unknown_path_is_not_found_in_the_openai_shape(echo: Harness) -> None:
    response = await echo.client.get("/v1/nope")
    assert (response.status_code, response.json()["error"]["code"]) == (404, "not_found")


async def test_a_trailing_slash_changes_nothing(echo: Harness) -> None:
    assert (await echo.client.get("/v1/models/", headers=echo.auth)).status_code == 200


@pytest.mark.parametrize("header", [{"content-type": "multipart/form-data"}, {"content-encoding": "gzip"}])
async def test_bodies_that_cannot_be_ours_are_refused(echo: Harness, header: dict[str, str]) -> None:
    response = await echo.client.post("/v2/models/echo/infer", content=BODY, headers=echo.auth | header)
    assert (response.status_code, response.json()["code"]) == (415, "unsupported_media_type")


async def test_content_type_is_not_insisted_upon(echo: Harness) -> None:
    raw = await Raw.open(echo)
    raw.writer.write(post(echo, BODY))
    assert (await raw.answer())[0] == 200
    raw.close()


async def test_a_body_announced_too_large_is_refused_unread(echo: Harness) -> None:
    raw = await Raw.open(echo)
    raw.writer.write(post(echo, b"", length=17 << 20))
    status, headers, body = await raw.answer()
    assert (status, json.loads(body)["code"]) == (413, "body_too_large")
    assert headers["connection"] == "close"
    assert json.loads(body)["numbers"] == {"limit_bytes": 16 << 20}
    assert await raw.is_closed()


async def test_a_client_that_keeps_sending_still_reads_its_refusal(echo: Harness) -> None:
    async def chunks() -> object:
        for _ in range(400):
            yield b"x" * 65536  # 25 MiB without a length

    response = await echo.client.post("/v2/models/echo/infer", content=chunks(), headers=echo.auth)
    assert response.status_code == 413


async def test_expect_continue_is_only_granted_to_a_body_that_may_come(echo: Harness) -> None:
    raw = await Raw.open(echo)
    raw.writer.write(post(echo, b"", "expect: 100-continue", length=len(BODY)))
    assert (await raw.reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 100")
    raw.writer.write(BODY)
    assert (await raw.answer())[0] == 200
    raw.writer.write(post(echo, b"", "expect: 100-continue", length=17 << 20))
    assert (await raw.answer())[0] == 413
    raw.close()


async def test_pipelined_requests_are_answered_in_order(echo: Harness) -> None:
    raw = await Raw.open(echo)
    bodies = [json.dumps(echo_body([float(index)], id=str(index))).encode() for index in range(20)]
    raw.writer.write(b"".join(post(echo, body) for body in bodies))
    for index in range(20):
        status, _, body = await raw.answer()
        assert (status, json.loads(body)["id"]) == (200, str(index))
    raw.close()


async def test_a_body_may_come_in_pieces(echo: Harness) -> None:
    raw = await Raw.open(echo)
    request = post(echo, BODY)
    for start in range(0, len(request), 50):
        raw.writer.write(request[start : start + 50])
        await raw.writer.drain()
        await asyncio.sleep(0.001)
    assert (await raw.answer())[0] == 200
    raw.close()


async def test_a_slow_body_is_refused(echo: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "BODY_TIMEOUT_S", 0.0)
    monkeypatch.setattr(connections, "BODY_TICKS", 2)
    raw = await Raw.open(echo)
    raw.writer.write(post(echo, BODY[:10], length=len(BODY)))
    await until(lambda: any(c.cycle is not None for c in echo.server.server_state.connections))
    for _ in range(4):
        tick_all(echo.server.server_state.connections)
        await asyncio.sleep(0.01)
    status, headers, body = await raw.answer()
    assert (status, json.loads(body)["code"]) == (408, "request_timeout")
    assert headers["connection"] == "close"


@pytest.mark.parametrize("start", [b"", b"POST /v2/models", b"GET /livez HTTP/1.1\r\nhost: x\r\n"])
async def test_a_slow_head_is_refused(echo: Harness, start: bytes) -> None:
    raw = await Raw.open(echo)
    raw.writer.write(start)
    await until(lambda: any(c._head_bytes == len(start) for c in echo.server.server_state.connections))
    for _ in range(connections.HEAD_TICKS + 1):
        tick_all(echo.server.server_state.connections)
    assert (await raw.answer())[0] == 408
    assert await raw.is_closed()


async def test_a_connection_at_rest_is_left_alone(echo: Harness) -> None:
    assert (await echo.infer()).status_code == 200
    for _ in range(connections.HEAD_TICKS + 5):
        tick_all(echo.server.server_state.connections)
    assert len(echo.server.server_state.connections) == 1
    assert (await echo.infer()).status_code == 200


async def test_a_head_without_end_is_refused(echo: Harness) -> None:
    raw = await Raw.open(echo)
    raw.writer.write(b"GET /livez HTTP/1.1\r\n")
    for index in range(40):
        raw.writer.write(b"x-%d: " % index + b"a" * 4000 + b"\r\n")
        try:
            await raw.writer.drain()
        except ConnectionError:
            break
        await asyncio.sleep(0.001)
    assert (await raw.answer())[0] == 431


async def test_bytes_that_are_not_http_are_refused(echo: Harness) -> None:
    raw = await Raw.open(echo)
    raw.writer.write(b"\x16\x03\x01\x02\x00\x01\r\n\r\n")
    assert (await raw.answer())[0] == 400
    assert await raw.is_closed()


async def test_a_crash_in_one_request_is_one_clean_500(
    echo: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(echo.gateway.inference._router, "lane", broken)
    response = await echo.infer()
    assert (response.status_code, response.json()["code"]) == (500, "internal_error")
    assert "bug" not in response.text
    monkeypatch.undo()
    assert (await echo.infer()).status_code == 200


async def test_many_connections_at_once(echo: Harness) -> None:
    raws = await asyncio.gather(*(Raw.open(echo) for _ in range(100)))

    async def thrice(raw: Raw) -> list[tuple[int, str]]:
        answers = []
        for _ in range(3):
            raw.writer.write(post(echo, BODY))
            status, headers, _ = await raw.answer()
            answers.append((status, headers["x-request-id"]))
        raw.close()
        return answers

    answers = [each for some in await asyncio.gather(*map(thrice, raws)) for each in some]
    assert {status for status, _ in answers} == {200}
    assert len({request_id for _, request_id in answers}) == 300


async def test_large_bodies_are_bounded_over_all_tenants(
    echo: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(echo.gateway.inference.room, "_limit_bytes", 170_000)
    slow = await Raw.open(echo)
    slow.writer.write(post(echo, b"{", length=80_000))
    await until(lambda: echo.gateway.inference.room.held_bytes == 80_000)
    response = await echo.client.post("/v2/models/echo/infer", content=b" " * 70_000, headers=echo.auth)
    assert (response.status_code, response.json()["code"]) == (429, "queue_full")
    assert (await echo.infer()).status_code == 200
    slow.close()
    await until(lambda: echo.gateway.inference.room.held_bytes == 0)


async def test_metrics_are_for_this_machine_only(echo: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    assert (await echo.client.get("/metrics")).status_code == 200
    monkeypatch.setattr(exchange.Exchange, "is_local", False)
    assert (await echo.client.get("/metrics")).status_code == 404
