"""No bytes crash, hang or bloat the reader of frames; what it takes for a frame decodes or is refused."""

from __future__ import annotations

import contextlib
import struct

import msgspec
from hypothesis import strategies as st

from serving import wire
from serving.contract import CostCurve
from serving.wire import FrameError, FrameReader, Kind
from tests.fuzz.hunt import hunt
from tests.fuzz.mutations import cuts, mutated

DECODERS = {
    Kind.HELLO: wire.decode_hello,
    Kind.INFER: wire.decode_infer,
    Kind.RESULT: wire.decode_result,
    Kind.ERROR: wire.decode_failure,
    Kind.AMEND: wire.decode_amend,
    Kind.CHUNK: wire.decode_chunk,
    Kind.CREDIT: wire.decode_credit,
}
STAGES = wire.Stages(1, 2, 3, 0, 4, 5, 6, 7, 8, 9, 10, "idle")
HEAD = wire.TensorHead("x", "FP32", (1, 2), 8)
GOOD: dict[Kind, wire.Header] = {
    Kind.HELLO: wire.Hello(
        wire.PROTOCOL_VERSION, "rep", "mv", 1, True, 32, CostCurve(a_ms=1, b_ms_per_row=2, c_ms_per_token=3)
    ),
    Kind.INFER: wire.Infer("tnt", "standard", 1000, 1, (3,), (HEAD,)),
    Kind.RESULT: wire.Result(STAGES, (HEAD,), 3),
    Kind.ERROR: wire.Failure("queue_full", "no", {"a": 1, "b": "c"}, 5, STAGES),
    Kind.AMEND: wire.Amend("batch", 1000, 1.0, 32, 0, 10, "run", 5),
    Kind.CHUNK: wire.Chunk(0, (HEAD,)),
    Kind.CREDIT: wire.Credit(3),
}
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.text(max_size=8)
    | st.binary(max_size=8),
    lambda inner: st.lists(inner, max_size=16) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=24,
)


@st.composite
def headers(draw: st.DrawFn) -> bytes:
    """A good header of some kind, of which up to two fields are replaced, or there are more or fewer."""
    fields = msgspec.to_builtins(GOOD[draw(st.sampled_from(list(GOOD)))])
    for _ in range(draw(st.sampled_from([0, 0, 1, 2]))):
        where = fields
        while True:
            at = draw(st.integers(0, max(0, len(where) - 1)))
            if not (where and isinstance(where[at], list) and draw(st.booleans())):
                break
            where = where[at]
        where[at : at + 1] = draw(st.lists(values, max_size=2))
    return msgspec.msgpack.encode(fields)


@st.composite
def frames(draw: st.DrawFn) -> bytes:
    """A frame whose kind and header need not fit each other."""
    kind = draw(st.sampled_from(list(Kind)) | st.integers(0, 255))
    good = GOOD.get(kind)  # type: ignore[call-overload]
    header = draw(headers() | st.binary(max_size=40))
    if good is not None and draw(st.booleans()):
        header = msgspec.msgpack.encode(good)
    body = draw(st.binary(max_size=200))
    size = 11 + len(header) + len(body)
    return struct.pack("<IQBH", size, draw(st.integers(0, 2**64 - 1)), kind, len(header)) + header + body


streams = mutated(st.lists(frames(), min_size=1, max_size=4).map(b"".join))


def read(data: bytes, sizes: list[int]) -> list[tuple[int, int, bytes, bytes]]:
    reader, out = FrameReader(capacity=256), []
    for piece in cuts(data, sizes):
        at = 0
        while at < len(piece):
            space = reader.get_buffer()
            assert len(space) > 0, "a reader without room reads nothing ever again"
            part = piece[at : at + len(space)]
            space[: len(part)] = part
            at += len(part)
            out += [(f.request_id, f.kind, bytes(f.header), bytes(f.body)) for f in reader.frames(len(part))]
    return out


@hunt(streams, st.lists(st.integers(1, 300), max_size=6), examples=150)
def test_any_stream_reads_alike_however_it_is_cut(data: bytes, sizes: list[int]) -> None:
    try:
        whole = read(data, [])
    except FrameError:
        whole = None
    try:
        pieces = read(data, sizes)
    except FrameError:
        pieces = None
    assert pieces == whole


@hunt(streams, examples=150)
def test_headers_decode_or_are_refused(data: bytes) -> None:
    """By what `FramedConnection` catches: anything else would leave a link open that nobody can trust."""
    try:
        found = read(data, [])
    except FrameError:
        return
    for _, kind, header, _ in found:
        decode = DECODERS.get(kind)  # type: ignore[call-overload]
        if decode is None:
            continue
        try:
            decoded = decode(memoryview(header))
        except msgspec.MsgspecError:
            continue
        assert decode(msgspec.msgpack.encode(decoded)) is not None


@hunt(
    values.map(msgspec.msgpack.encode) | st.binary(max_size=200),
    st.sampled_from(list(DECODERS)),
    examples=400,
)
def test_any_header_of_any_kind_decodes_or_is_refused(header: bytes, kind: Kind) -> None:
    with contextlib.suppress(msgspec.MsgspecError):
        DECODERS[kind](header)


@hunt(st.integers(0, 2000), examples=50)
def test_deep_headers_are_refused(depth: int) -> None:
    for decode in DECODERS.values():
        try:
            decode(b"\x91" * depth + b"\xc0")
        except (msgspec.MsgspecError, RecursionError) as error:
            assert not isinstance(error, RecursionError), "the link's owner would not catch it"
