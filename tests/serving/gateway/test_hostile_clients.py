"""What one client may cost the others: memory and time are bounded before and behind authentication."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket

import pytest

from serving.gateway import connections, server
from serving.gateway.connections import tick_all
from tests.serving.gateway.harness import PATIENCE_S, Harness, echo_body, until
from tests.serving.gateway.test_http import BODY, Raw, post


def chunked(harness: Harness, *chunks: bytes) -> bytes:
    head = post(harness, b"").replace(b"content-length: 0", b"transfer-encoding: chunked")
    return head + b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks)


async def send_until_refused(raw: Raw, blob: bytes, limit_bytes: int = 4 << 20) -> int:
    """Bytes that were taken before the connection was given up."""
    sent = 0
    with contextlib.suppress(ConnectionError, TimeoutError):
        while sent < limit_bytes:
            raw.writer.write(blob)
            await asyncio.wait_for(raw.writer.drain(), PATIENCE_S)
            sent += len(blob)
            if raw.reader.at_eof() or raw.reader._buffer:  # type: ignore[attr-defined]
                break
    return sent


@pytest.mark.parametrize("line", [b"x-a: " + b"b" * 4000 + b"\r\n", b"x" * 4000])
async def test_trailers_without_end_are_refused(echo: Harness, line: bytes) -> None:
    raw = await Raw.open(echo)
    raw.writer.write(chunked(echo, b"{}") + b"0\r\n")
    assert await send_until_refused(raw, line * 16) < 4 << 20
    assert (await raw.answer())[0] == 431
    await until(lambda: echo.gateway.inference.room.held_bytes == 0)


async def test_a_chunk_size_line_without_end_is_refused(echo: Harness) -> None:
    raw = await Raw.open(echo)
    raw.writer.write(chunked(echo) + b"2;")
    assert await send_until_refused(raw, b"x" * 65536) < 4 << 20
    assert (await raw.answer())[0] == 431


async def test_a_head_without_end_is_refused_behind_a_body_nobody_read(echo: Harness) -> None:
    raw = await Raw.open(echo)
    raw.writer.write(b"POST /v1/embeddings HTTP/1.1\r\ncontent-length: 5\r\n\r\n")
    assert (await raw.answer())[0] == 401
    raw.writer.write(b"12345GET /livez HTTP/1.1\r\n")
    assert await send_until_refused(raw, (b"x-a: " + b"b" * 4000 + b"\r\n") * 16) < 4 << 20
    assert (await raw.answer())[0] == 431


async def test_a_body_in_the_smallest_chunks_is_taken(echo: Harness) -> None:
    body = json.dumps(echo_body([float(index) for index in range(5000)])).encode()
    raw = await Raw.open(echo)
    raw.writer.write(chunked(echo, *(body[at : at + 1] for at in range(len(body)))) + b"0\r\n\r\n")
    assert (await raw.answer())[0] == 200
    raw.close()


async def test_trailers_are_no_headers(echo: Harness) -> None:
    raw = await Raw.open(echo)
    request = chunked(echo, BODY) + b"0\r\nx-tidegate-deadline-ms: nonsense\r\nx-request-id: mine\r\n\r\n"
    raw.writer.write(request)
    status, headers, _ = await raw.answer()
    assert (status, headers["x-request-id"] == "mine") == (200, False)
    raw.close()


async def test_a_pipeline_is_parsed_no_further_ahead_than_it_is_served(echo: Harness) -> None:
    raw = await Raw.open(echo)
    count = 8_000
    raw.writer.write(b"GET / HTTP/1.1\r\n\r\n" * count)
    longest = 0
    for _ in range(count):
        assert (await raw.answer())[0] == 404
        longest = max([longest, *(len(c.pipeline) for c in echo.server.server_state.connections)])
    assert longest < connections.FEED_BYTES / 18 + 1
    raw.close()


async def test_a_long_pipeline_with_bodies_is_answered_in_order(echo: Harness) -> None:
    raw = await Raw.open(echo)
    bodies = [json.dumps(echo_body([float(index)], id=str(index))).encode() for index in range(500)]
    raw.writer.write(b"".join(post(echo, body) for body in bodies))
    for index in range(500):
        status, _, body = await raw.answer()
        assert (status, json.loads(body)["id"]) == (200, str(index))
    raw.close()


async def test_an_answer_nobody_reads_counts_as_in_flight_and_is_given_up(
    echo: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "UNREAD_TICKS", 2)
    host, port = echo.url[7:].split(":")
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.setblocking(False)
    await asyncio.get_running_loop().sock_connect(sock, (host, int(port)))
    body = json.dumps(echo_body([1.5] * 1_500_000)).encode()
    await asyncio.get_running_loop().sock_sendall(sock, post(echo, body))
    gates = echo.gateway.inference._gates
    await until(lambda: any(c.flow.write_paused for c in echo.server.server_state.connections), 20)
    assert gates["tnt_a"].in_flight == 1
    for _ in range(200):
        tick_all(echo.server.server_state.connections)
        await asyncio.sleep(0.01)
        if gates["tnt_a"].in_flight == 0:
            break
    assert gates["tnt_a"].in_flight == 0
    assert not echo.server.server_state.connections
    sock.close()


async def test_a_large_answer_that_is_read_drop_by_drop_is_given_up(
    echo: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "UNREAD_TICKS", 3)
    monkeypatch.setattr(connections, "SLOWEST_READ_BYTES", 1 << 30)
    monkeypatch.setattr(server, "tick_all", lambda connections: None)  # only the sweeps below count
    host, port = echo.url[7:].split(":")
    sock, loop = socket.socket(), asyncio.get_running_loop()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.setblocking(False)
    await loop.sock_connect(sock, (host, int(port)))
    await loop.sock_sendall(sock, post(echo, json.dumps(echo_body([1.5] * 2_000_000)).encode()))
    await until(lambda: any(c.flow.write_paused for c in echo.server.server_state.connections))
    [connection] = echo.server.server_state.connections
    for _ in range(4):
        assert not connection.transport.is_closing()
        unread = connection.transport.get_write_buffer_size()
        while connection.transport.get_write_buffer_size() == unread:  # there is progress before each sweep
            await loop.sock_recv(sock, 1 << 16)
        tick_all([connection])
    assert connection.transport.is_closing()
    await until(lambda: echo.gateway.inference._gates["tnt_a"].in_flight == 0)
    sock.close()


@pytest.mark.parametrize("is_chunked", [False, True])
async def test_a_wish_for_another_protocol_is_ignored(echo: Harness, is_chunked: bool) -> None:
    """As Java's client asks for HTTP/2 with every first request, bodies included."""
    wish = (
        b"\r\nconnection: Upgrade, HTTP2-Settings\r\nupgrade: h2c\r\nhttp2-settings: AAEAAEAAAAIAAAABAAMAAABk"
    )
    request = chunked(echo, BODY) + b"0\r\n\r\n" if is_chunked else post(echo, BODY)
    raw = await Raw.open(echo)
    raw.writer.write(request.replace(b"\r\nhost: test", b"\r\nhost: test" + wish))
    assert (await raw.answer())[0] == 200
    raw.writer.write(post(echo, BODY))
    assert (await raw.answer())[0] == 200
    raw.close()


async def test_tunnels_are_refused(echo: Harness) -> None:
    raw = await Raw.open(echo)
    raw.writer.write(b"CONNECT test:80 HTTP/1.1\r\nhost: test\r\n\r\nGET / HTTP/1.1\r\n\r\n")
    assert (await raw.answer())[0] == 400
    assert await raw.is_closed()


async def test_connections_beyond_the_limit_are_closed_and_the_others_served(
    echo: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections.Connection, "max_connections", 10)
    assert (await echo.infer()).status_code == 200
    idle = [await Raw.open(echo) for _ in range(9)]
    await until(lambda: len(echo.server.server_state.connections) == 10)
    beyond = await Raw.open(echo)
    with contextlib.suppress(ConnectionError):
        assert await beyond.is_closed()
    assert (await echo.infer()).status_code == 200
    for raw in idle:
        raw.close()
    await until(lambda: len(echo.server.server_state.connections) == 1)


# ---------------------------------------------------------------- bodies


async def infer(harness: Harness, body: bytes, token: str = "") -> tuple[int, dict[str, object]]:
    headers = {"authorization": f"Bearer {token}"} if token else harness.auth
    response = await harness.client.post("/v2/models/echo/infer", content=body, headers=headers)
    return response.status_code, response.json()


async def test_each_output_goes_out_once_however_often_it_is_named(echo: Harness) -> None:
    status, answer = await infer(echo, json.dumps(echo_body(outputs=[{"name": "y"}] * 2)).encode())
    assert (status, answer["code"]) == (400, "invalid_request")


async def test_unknown_parameters_cost_nothing_however_large_they_are(echo: Harness) -> None:
    """No object is made of them, so that a megabyte of brackets does not become a hundred of memory."""
    junk = b'{"a":[' + b",".join([b"[]"] * 300_000) + b"]}"
    body = BODY[:-1] + b',"parameters":' + junk + b"}"
    assert (await infer(echo, body))[0] == 200


@pytest.mark.parametrize("timeout", [10**30, 10**300, 10**400, 2**63])
async def test_a_timeout_beyond_all_measure_is_no_defect_of_ours(echo: Harness, timeout: int) -> None:
    body = json.dumps(echo_body(parameters={"timeout": timeout})).encode()
    assert (await infer(echo, body))[0] in (200, 400)


@pytest.mark.parametrize("shape", [[1, 2**31], [1, 2**63, 0], [1, 10**30, 0], [1] * 9, [1] * 100_000])
@pytest.mark.parametrize("is_declared", [False, True])
async def test_a_shape_beyond_all_measure_is_refused(
    echo: Harness, shape: list[int], is_declared: bool
) -> None:
    if not is_declared:
        echo.publish_model(inputs=())
        await until(lambda: not echo.gateway._snapshot.versions["mv_echo"].inputs)
    tensor = {"name": "x", "shape": shape, "datatype": "FP32", "data": []}
    status, answer = await infer(echo, json.dumps({"inputs": [tensor]}).encode())
    assert (status, answer["code"]) == (400, "invalid_tensor")
    assert (await echo.infer()).status_code == 200


async def test_more_tensors_than_any_model_takes_are_refused(echo: Harness) -> None:
    tensor = {"name": "x", "shape": [1, 1], "datatype": "FP32", "data": [1.0]}
    status, answer = await infer(echo, json.dumps({"inputs": [tensor] * 300}).encode())
    assert (status, answer["code"]) == (400, "invalid_request")
    status, answer = await infer(echo, json.dumps(echo_body(outputs=[{"name": "y"}] * 300)).encode())
    assert (status, answer["code"]) == (400, "invalid_request")


async def test_an_error_does_not_send_back_megabytes(echo: Harness) -> None:
    tensor = {"name": "n" * 500_000, "shape": [1, 1], "datatype": "FP32", "data": [1.0]}
    response = await echo.client.post(
        "/v2/models/echo/infer", content=json.dumps({"inputs": [tensor]}), headers=echo.auth
    )
    assert (response.status_code, len(response.content) < 5000) == (400, True)


@pytest.mark.parametrize(
    "text",
    ['["a"' + ',"a"' * 20_000 + "]", "[[1]" + ",[1]" * 20_000 + "]", "[" + "1," * 2_200_000 + "1]"],
)
async def test_long_lists_are_refused_before_they_are_made(encoder: Harness, text: str) -> None:
    content = f'{{"model":"mini","input":{text}}}'
    response = await encoder.client.post("/v1/embeddings", content=content, headers=encoder.auth)
    assert (response.status_code, response.json()["error"]["param"]) == (400, "input")


async def test_long_texts_full_of_quotes_and_commas_are_taken(encoder: Harness) -> None:
    texts = ['w1 "quoted", [and] \\ w2' * 100] * 64
    body = {"model": "mini", "input": texts}
    assert len(json.dumps(body)) > 100_000
    response = await encoder.client.post("/v1/embeddings", json=body, headers=encoder.auth)
    assert (response.status_code, len(response.json()["data"])) == (200, 64)


async def test_one_tenants_large_bodies_leave_room_for_the_others(
    echo: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(echo.gateway.inference.room, "_limit_bytes", 1_000_000)
    echo.publish_tenant("tnt_b")
    other = echo.publish_key("tnt_b")
    await until(lambda: len(echo.gateway._snapshot.keys) == 2)
    slow = [await Raw.open(echo) for _ in range(12)]
    for raw in slow:
        raw.writer.write(post(echo, b"{", length=100_000))
    large = json.dumps(echo_body(parameters={"junk": "x" * 100_000})).encode()
    await until(lambda: echo.gateway.inference.room.held_bytes == 500_000)
    assert (await infer(echo, large))[0] == 429
    assert (await infer(echo, large, other))[0] == 200
    for raw in slow:
        raw.close()
    await until(lambda: echo.gateway.inference.room.held_bytes == 0)


@pytest.mark.parametrize("count", [connections.MAX_HEADERS - 3, connections.MAX_HEADERS - 2, 5000])
async def test_a_head_holds_so_many_headers_and_no_more(echo: Harness, count: int) -> None:
    raw = await Raw.open(echo)
    raw.writer.write(post(echo, BODY, *(f"x{index}: 1" for index in range(count))))
    assert (await raw.answer())[0] == (200 if count + 3 <= connections.MAX_HEADERS else 431)
    raw.close()


async def test_headers_of_the_same_name_count_each(echo: Harness) -> None:
    raw = await Raw.open(echo)
    raw.writer.write(post(echo, BODY, *["x: 1"] * connections.MAX_HEADERS))
    assert (await raw.answer())[0] == 431
    assert await raw.is_closed()


async def test_a_trailer_holds_no_more_headers_than_a_head(echo: Harness) -> None:
    raw = await Raw.open(echo)
    raw.writer.write(chunked(echo, b"{}") + b"0\r\n")
    for _ in range(4):
        raw.writer.write(b"x: 1\r\n" * connections.MAX_HEADERS)
    assert (await raw.answer())[0] == 431
    await until(lambda: echo.gateway.inference.room.held_bytes == 0)


async def test_what_came_before_a_malformed_request_is_answered_first(echo: Harness) -> None:
    raw = await Raw.open(echo)
    raw.writer.write(post(echo, BODY) + b"nonsense\r\n\r\n")
    status, headers, _ = await raw.answer()
    assert (status, headers["content-type"]) == (200, "application/json")
    assert (await raw.answer())[0] == 400
    assert await raw.is_closed()


@pytest.mark.parametrize("first", [b"\r", b"\n", b"\r\n\r\n"])
async def test_empty_lines_before_a_request_are_ignored(echo: Harness, first: bytes) -> None:
    raw = await Raw.open(echo)
    raw.writer.write(first)
    await raw.writer.drain()
    await until(lambda: echo.server.server_state.connections)
    raw.writer.write(b"\n" + post(echo, BODY))
    assert (await raw.answer())[0] == 200
    raw.close()


async def test_what_came_before_a_head_without_end_is_answered_first(echo: Harness) -> None:
    raw = await Raw.open(echo)
    raw.writer.write(post(echo, BODY) + b"GET / HTTP/1.1\r\n" + b"x: 1\r\n" * 300)
    assert (await raw.answer())[0] == 200
    assert (await raw.answer())[0] == 431
    assert await raw.is_closed()
