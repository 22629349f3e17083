"""Frames survive any cutting of the byte stream, and nothing else is taken for a frame."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving import wire
from serving.wire import Chunk, Credit, FrameError, FrameReader, Infer, Kind, TensorHead

bodies = st.binary(max_size=2_000)
frames = st.lists(
    st.tuples(st.integers(0, 2**64 - 1), st.sampled_from(list(Kind)), bodies), min_size=1, max_size=8
)


def feed(reader: FrameReader, data: bytes, cut: int) -> list[tuple[int, int, bytes, bytes]]:
    out, position = [], 0
    while position < len(data):
        space = reader.get_buffer()
        piece = data[position : position + min(cut, len(space))]
        space[: len(piece)] = piece
        position += len(piece)
        out += [(f.request_id, f.kind, bytes(f.header), bytes(f.body)) for f in reader.frames(len(piece))]
    return out


@given(frames, st.integers(1, 5_000))
def test_any_cut_of_the_stream_gives_the_same_frames(sent: list[tuple[int, Kind, bytes]], cut: int) -> None:
    stream = b"".join(b"".join(wire.encode(kind, rid, None, body)) for rid, kind, body in sent)
    got = feed(FrameReader(capacity=1_024), stream, cut)
    assert got == [(rid, int(kind), b"", body) for rid, kind, body in sent]


def test_a_header_and_its_tensors_come_back_as_they_were() -> None:
    header = Infer(
        tenant_id="tnt_a",
        sla_class="interactive",
        budget_us=50_000,
        rows=2,
        row_tokens=(3, 4),
        tensors=(TensorHead("input_ids", "INT32", (7,), 28),),
    )
    stream = b"".join(wire.encode(Kind.INFER, 9, header, b"x" * 28))
    [(request_id, kind, head, body)] = feed(FrameReader(), stream, 1 << 20)
    assert (request_id, kind, body) == (9, Kind.INFER, b"x" * 28)
    assert wire.decode_infer(head) == header


@pytest.mark.parametrize(
    ("kind", "header", "decode"),
    [
        (Kind.CHUNK, Chunk(3, (TensorHead("y", "BYTES", (1,), 4),)), wire.decode_chunk),
        (Kind.CREDIT, Credit(8), wire.decode_credit),
    ],
)
def test_streams_have_frames_of_their_own(kind: Kind, header: Chunk | Credit, decode: Any) -> None:
    [(request_id, got, head, body)] = feed(
        FrameReader(), b"".join(wire.encode(kind, 9, header, b"abcd")), 1 << 20
    )
    assert (request_id, got, body, decode(head)) == (9, kind, b"abcd", header)


def test_views_handed_out_stay_untouched_while_the_next_bytes_arrive() -> None:
    reader = FrameReader(capacity=1_024)
    first = b"".join(wire.encode(Kind.RESULT, 1, None, b"a" * 600))
    second = b"".join(wire.encode(Kind.RESULT, 2, None, b"b" * 600))
    stream = first + second
    space = reader.get_buffer()
    space[:1_000] = stream[:1_000]
    [frame] = reader.frames(1_000)
    rest = stream[1_000:]
    reader.get_buffer()[: len(rest)] = rest
    reader.frames(len(rest))
    assert bytes(frame.body) == b"a" * 600


@given(st.binary(min_size=wire.PREFIX_BYTES, max_size=64))
@settings(max_examples=300)
def test_noise_is_refused_or_waits_for_more_but_never_crashes(noise: bytes) -> None:
    with contextlib.suppress(FrameError):
        feed(FrameReader(), noise, 64)


def test_a_frame_over_the_limit_is_refused_on_both_sides() -> None:
    with pytest.raises(FrameError):
        wire.encode(Kind.INFER, 1, None, memoryview(bytearray(wire.MAX_FRAME_BYTES + 1)))
    with pytest.raises(FrameError):
        feed(FrameReader(), wire.PREFIX.pack(wire.MAX_FRAME_BYTES + 1, 1, 2, 0) + b"\0" * 8, 64)


def test_a_header_longer_than_its_frame_is_refused() -> None:
    with pytest.raises(FrameError):
        feed(FrameReader(), wire.PREFIX.pack(20, 1, 2, 500) + b"\0" * 40, 64)


texts = st.text(max_size=40)
few = st.integers(0, 2**31 - 1)
infers = st.builds(
    Infer,
    tenant_id=texts,
    sla_class=st.sampled_from(("interactive", "standard", "batch")),
    budget_us=few,
    rows=few,
    row_tokens=st.lists(few, max_size=20).map(tuple),
    tensors=st.lists(
        st.builds(TensorHead, texts, texts, st.lists(few, max_size=20).map(tuple), few), max_size=20
    ).map(tuple),
    weight=st.floats(0.1, 10),
    max_queue=few,
    late_policy=st.sampled_from(("refuse", "degrade", "run")),
    is_suspect=st.booleans(),
    stream_credit=few,
    traceparent=texts,
    queue_shares=st.lists(st.tuples(texts, texts, few), max_size=3).map(tuple),
)


@given(infers, few, bodies)
@settings(max_examples=40)
def test_terms_encoded_once_make_the_same_frame(infer: Infer, request_id: int, body: bytes) -> None:
    differing = infer.budget_us, infer.rows, infer.row_tokens, infer.tensors
    by_terms = wire.encode_infer(wire.terms_of(infer), request_id, *differing, [body])
    assert by_terms == wire.encode(Kind.INFER, request_id, infer, body)
