"""The hot way and the ASGI way give the same answers to the same requests, whatever they are."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from serving.worker.testing import EchoWorker
from tests.serving.gateway import harness as harnesses
from tests.serving.gateway.engines import FakeEncoder
from tests.serving.gateway.harness import Harness, echo_body, gateway

_VARYING = re.compile(
    rb"(?m)^(server-timing|x-request-id|traceparent|"
    rb"x-tidegate-(?:batch-size|batch-close|device-ms|cost|predicted-ms)): [^\r]*\r$"
)
_OWN_ID = re.compile(rb"req_[0-9a-f]{26}")


@dataclass(frozen=True)
class Request:
    """One request as bytes, with `TOKEN` where the key belongs."""

    path: bytes = b"/v2/models/echo/infer"
    body: bytes = json.dumps(echo_body()).encode()
    method: bytes = b"POST"
    version: bytes = b"1.1"
    authorization: bytes = b"authorization: Bearer TOKEN"
    headers: tuple[bytes, ...] = ()
    cut: int = 0
    """Bytes at the end that come in a second segment."""
    is_sent_twice: bool = False
    """Again on the same connection: the second time its head is known."""

    def raw(self, token: str) -> bytes:
        lines = [
            b"%b %b HTTP/%b" % (self.method, self.path, self.version),
            b"host: test",
            self.authorization,
            b"content-length: %d" % len(self.body),
            *self.headers,
        ]
        head = b"\r\n".join(line for line in lines if line) + b"\r\n\r\n"
        return head.replace(b"TOKEN", token.encode()) + self.body


def body(**fields: object) -> bytes:
    return json.dumps(fields).encode()


def tensor(
    name: str = "x", shape: object = (1, 2), datatype: str = "FP32", data: object = (1.0, 2.0)
) -> object:
    return {"name": name, "shape": shape, "datatype": datatype, "data": data}


tensors = st.builds(
    tensor,
    name=st.sampled_from(["x", "x", "x", "y", "", "\u00e9"]),
    shape=st.sampled_from([[1, 2], [1, 2], [2, 1], [1, 3], [2], [], [1, -1], [0, 2], "1", [1, 2**40]]),
    datatype=st.sampled_from(["FP32", "FP32", "FP32", "INT64", "BYTES", "NONE"]),
    data=st.sampled_from(
        [[1.0, 2.0], [1.0, 2.0], [[1.0, 2.0]], [], ["a", "b"], None, [1e300, 1], [1, 2, 3], 5]
    ),
)
infer_bodies = st.one_of(
    st.just(json.dumps(echo_body()).encode()),
    st.builds(
        lambda inputs, extra: json.dumps({"inputs": inputs} | extra).encode(),
        st.lists(tensors, max_size=2),
        st.fixed_dictionaries(
            {},
            optional={
                "id": st.sampled_from(["", "a", '"\\', 5]),
                "outputs": st.sampled_from([[], [{"name": "y"}], [{"name": "z"}], [{"name": "y"}] * 2, 7]),
                "parameters": st.sampled_from(
                    [
                        {},
                        {"timeout": -1},
                        {"timeout": 10**7},
                        {"binary_data_output": True},
                        {"sequence_id": 1},
                        {"priority": 3},
                        {"priority": -1},
                        [],
                    ]
                ),
            },
        ),
    ),
    st.sampled_from([b"", b"{", b"[]", b"null", b"\xff\xfe", b'{"inputs":' + b"[" * 5000]),
    st.binary(max_size=60),
)
texts = st.sampled_from(["w1", "w2 w3", "", "w1 " * 700, "w1 " * 3000, "\ud800", "\u00e9"])
inputs = st.one_of(
    texts,
    st.lists(texts, max_size=3),
    st.just(["w1 w2"] * 70),
    st.lists(st.integers(-1, 200), max_size=4),
    st.lists(st.lists(st.integers(0, 102), max_size=4), max_size=3),
    st.sampled_from([None, 5, {}, [1, "a"], [["a"]]]),
)
embedding_bodies = st.one_of(
    st.builds(lambda given: json.dumps({"model": "mini", "input": given}).encode(), inputs),
    st.builds(
        lambda model, form, width: body(model=model, input="w1", encoding_format=form, dimensions=width),
        st.sampled_from(["mini", "echo", "none", 5]),
        st.sampled_from(["float", "base64", "hex"]),
        st.sampled_from([None, 4, 5]),
    ),
    st.sampled_from([b"", b"{}", b"nope"]),
)
headers = st.lists(
    st.sampled_from(
        [
            b"content-type: application/json",
            b"content-type: multipart/form-data",
            b"content-encoding: gzip",
            b"content-encoding: identity",
            b"x-request-id: mine",
            b"x-request-id: bad id",
            b"x-tidegate-deadline-ms: 4000",
            b"x-tidegate-deadline-ms: 0",
            b"x-tidegate-priority: batch",
            b"x-tidegate-priority: high",
            b"traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            b"traceparent: nonsense",
            b"inference-header-content-length: 0",
            b"inference-header-content-length: 9999",
            b"connection: close",
            b"connection: keep-alive",
            b"te: trailers",
            b"accept: */*",
            b"upgrade: h2c\r\nconnection: upgrade",
            b"transfer-encoding: identity",
            b"authorization: Bearer other",
            b"x-api-key: TOKEN",
        ]
    ),
    max_size=3,
)
authorizations = st.sampled_from(
    [b"authorization: Bearer TOKEN"] * 5
    + [b"", b"authorization: Basic TOKEN", b"authorization: Bearer", b"Authorization: bearer TOKEN"]
)
infer_paths = st.sampled_from(
    [b"/v2/models/echo/infer"] * 4
    + [
        b"/v2/models/echo/versions/1/infer",
        b"/v2/models/echo/versions/9/infer",
        b"/v2/models/none/infer",
        b"/v2/models/mini/infer",
        b"/v2/models/echo/infer/",
        b"/v2/models/echo/infer?a=b",
        b"/v2/models/ech%6f/infer",
    ]
)
frames = {
    "method": st.sampled_from([b"POST"] * 9 + [b"GET", b"PUT", b"OPTIONS"]),
    "version": st.sampled_from([b"1.1"] * 9 + [b"1.0"]),
    "authorization": authorizations,
    "headers": headers.map(tuple),
    "cut": st.sampled_from([0, 0, 0, 1, 10, 70]),
    "is_sent_twice": st.booleans(),
}
requests = st.one_of(
    st.builds(Request, path=infer_paths, body=infer_bodies, **frames),
    st.builds(
        Request,
        path=st.sampled_from([b"/v1/embeddings"] * 4 + [b"/v1/embeddings/"]),
        body=embedding_bodies,
        **frames,
    ),
)


@contextlib.asynccontextmanager
async def serving(*, is_hot: bool) -> AsyncIterator[Harness]:
    """Both models on one gateway."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(harnesses, "has_hot_routes", is_hot)
        whole = gateway()
        harness = await whole.__aenter__()
    try:
        harness.publish_model()
        harness.publish_replicas(harness.address(1), first=1)
        harness.publish_encoder()
        async with (
            EchoWorker(harness.address(1), replica_id="rep_1"),
            EchoWorker(harness.address(), FakeEncoder(), replica_id="rep_0", version_id="mv_mini"),
        ):
            await harness.until_ready()
            await harness.until_ready("mv_mini")
            yield harness
    finally:
        await whole.__aexit__(None, None, None)


async def answers(harness: Harness, request: Request) -> list[bytes]:
    """What comes back, with what must differ blotted out; an empty end where the connection was closed."""
    host, port = harness.url[7:].split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    raw, out = request.raw(harness.token), []
    try:
        for _ in range(1 + request.is_sent_twice):
            writer.write(raw[: len(raw) - request.cut])
            await writer.drain()
            await asyncio.sleep(0)
            writer.write(raw[len(raw) - request.cut :])
            out.append(await answer(reader))
            if not out[-1] or b"\r\nconnection: close\r\n" in out[-1]:
                break
    finally:
        writer.close()
    return out


async def answer(reader: asyncio.StreamReader) -> bytes:
    try:
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 10)
    except (asyncio.IncompleteReadError, ConnectionError):
        return b""
    length = re.search(rb"content-length: (\d+)", head)
    content = await reader.readexactly(int(length[1])) if length else b""
    # The length follows from the id in a refusal's body, which is the client's own or always as long.
    return _OWN_ID.sub(b"req_X", _VARYING.sub(rb"\1: X\r", head) + content)


@settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(request=requests)
async def test_both_ways_answer_alike(both: tuple[Harness, Harness], request: Request) -> None:
    hot, plain = both
    assert await answers(hot, request) == await answers(plain, request)


plain_requests = st.one_of(
    st.builds(
        Request,
        path=st.sampled_from([b"/v2/models/echo/infer"] * 3 + [b"/v2/models/none/infer"]),
        body=st.sampled_from(
            [json.dumps(echo_body([0.5] * count, id=str(count))).encode() for count in (1, 2, 20, 400, 3000)]
            + [b"{", b"", b"\r\n" + json.dumps(echo_body()).encode()]
        ),
        authorization=st.sampled_from([b"authorization: Bearer TOKEN"] * 5 + [b"authorization: Bearer tg"]),
        headers=st.sampled_from([(), (), (b"x-request-id: mine",), (b"te: trailers",)]),
    ),
    st.builds(Request, path=st.just(b"/livez"), body=st.just(b""), method=st.just(b"GET")),
    st.builds(
        Request, path=st.just(b"/v1/embeddings"), body=st.just(b'{"model":"mini","input":["w1","w2 w3"]}')
    ),
)


async def stream(harness: Harness, asked: list[Request], cuts: list[int], is_head_alone: bool) -> list[bytes]:
    """All answers to requests sent as one stream of bytes, cut into segments."""
    host, port = harness.url[7:].split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    raws = [request.raw(harness.token) for request in asked]
    ends = list(itertools.accumulate(map(len, raws)))
    raw = b"".join(raws)
    edges = {0, *(cut % len(raw) for cut in cuts), len(raw)}
    if is_head_alone:
        edges |= {end - len(request.body) for end, request in zip(ends, asked, strict=True)}
    try:
        for start, end in itertools.pairwise(sorted(edges)):
            writer.write(raw[start:end])
            await writer.drain()
            for _ in range(start % 3):
                await asyncio.sleep(0)
        return [await answer(reader) for _ in asked]
    finally:
        writer.close()


@settings(
    max_examples=100,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    asked=st.lists(plain_requests, min_size=1, max_size=6),
    cuts=st.lists(st.integers(0, 100_000), max_size=8),
    is_repeated=st.booleans(),
    is_head_alone=st.booleans(),
)
async def test_streams_of_requests_are_answered_alike_however_they_are_cut(
    both: tuple[Harness, Harness],
    asked: list[Request],
    cuts: list[int],
    is_repeated: bool,
    is_head_alone: bool,
) -> None:
    hot, plain = both
    asked = asked * 2 if is_repeated else asked
    assert await stream(hot, asked, cuts, is_head_alone) == await stream(plain, asked, cuts, is_head_alone)


@pytest.fixture
async def both() -> AsyncIterator[tuple[Harness, Harness]]:
    async with serving(is_hot=True) as hot, serving(is_hot=False) as plain:
        yield hot, plain
