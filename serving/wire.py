"""Gateway ↔ worker frames: length-prefixed, a msgpack header, raw tensor bytes behind it.

    u32 length of what follows │ u64 request id │ u8 kind │ u16 header length │ header │ body

Little-endian. The header is a msgspec array (no field names on the wire). Pure bytes ↔ structs: reading
and writing sockets is the caller's business. A frame that breaks these rules raises `FrameError`; the link
it came from is then closed, since nothing after it can be trusted.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from enum import IntEnum
from typing import NamedTuple

import msgspec

from serving.contract import CloseReason, CostCurve, LatePolicy, SlaClass

PREFIX = struct.Struct("<IQBH")
PREFIX_BYTES = PREFIX.size
_AFTER_LENGTH = PREFIX_BYTES - 4
MAX_FRAME_BYTES = 64 << 20
PROTOCOL_VERSION = 2


class FrameError(ValueError):
    """The peer sent bytes that are not a frame of this protocol."""


class Kind(IntEnum):
    HELLO = 1  # worker → gateway, first frame on a link and after every change of state
    INFER = 2  # gateway → worker
    CANCEL = 3  # gateway → worker, no header
    RESULT = 4  # worker → gateway
    ERROR = 5  # worker → gateway
    PING = 6  # either way, answered by PONG with the same id
    PONG = 7
    AMEND = 8  # gateway → worker: the profile of a request in flight changed
    CHUNK = 9  # worker → gateway: a part of a streamed answer; RESULT or ERROR ends it
    CREDIT = 10  # gateway → worker: so many more chunks may be sent


class Hello(msgspec.Struct, array_like=True, frozen=True):
    """Who answers on this link. Frames of an older epoch than the newest seen are ignored."""

    protocol: int
    replica_id: str
    version_id: str
    epoch: int
    is_accepting: bool
    """False while warming or draining: the gateway sends nothing new."""
    max_batch_rows: int
    cost: CostCurve | None = None


class TensorHead(msgspec.Struct, array_like=True, frozen=True):
    """One tensor of a body, in listed order. `datatype` is an Open Inference Protocol name."""

    name: str
    datatype: str
    shape: tuple[int, ...]
    size_bytes: int


class Infer(msgspec.Struct, array_like=True, frozen=True):
    """One request: `rows` items along the batch dimension.

    Text is sent as `row_tokens` (token count of each row) and one INT32 tensor `input_ids` holding all
    rows behind each other; other engines get their named tensors as they came. The SLA fields are the
    profile the gateway resolved at admission. `budget_us` is what is left of the deadline when the frame
    is written: clocks of two hosts are never compared.
    """

    tenant_id: str
    sla_class: SlaClass
    budget_us: int
    rows: int
    row_tokens: tuple[int, ...]
    tensors: tuple[TensorHead, ...]
    weight: float = 1.0
    max_batch_size: int = 32
    max_wait_us: int = 0
    max_queue: int = 1024
    late_policy: LatePolicy = "refuse"
    target_us: int = 0
    is_suspect: bool = False
    """It was in flight when a worker died: it runs alone, so that it takes no neighbours down."""
    stream_credit: int = 0
    """Above 0 the answer is streamed: so many CHUNK frames may be sent before the first CREDIT."""
    traceparent: str = ""
    """W3C trace context of the gateway's span, where there is one."""
    queue_shares: tuple[tuple[str, str, int], ...] = ()
    """Quotas on what may wait at the worker: id, name and how many requests."""


class Amend(msgspec.Struct, array_like=True, frozen=True):
    """New terms for a request that still waits; the fields mean what they mean in `Infer`."""

    sla_class: SlaClass
    budget_us: int
    weight: float
    max_batch_size: int
    max_wait_us: int
    max_queue: int
    late_policy: LatePolicy
    target_us: int


class Chunk(msgspec.Struct, array_like=True, frozen=True):
    """One part of a streamed answer, in order from 0; the body holds `tensors` in order."""

    index: int
    tensors: tuple[TensorHead, ...]


class Credit(msgspec.Struct, array_like=True, frozen=True):
    chunks: int


class Stages(msgspec.Struct, array_like=True, frozen=True):
    """Where the time went inside the worker, and what the batch was. The worker's part of a receipt.

    queue_us: from arrival until the scheduler picked the request; batch_wait_us: picked until the device
    began it (interruptions by urgent batches excluded); execute_us: on the device, interruptions
    excluded; interrupted_us: time the batch stood still for urgent work; post_us: device end until
    the frame was written. These five sum to the request's time in the worker.
    """

    queue_us: int
    batch_wait_us: int
    execute_us: int
    interrupted_us: int
    post_us: int
    predicted_us: int
    device_us: int
    """This request's share of the batch's device time."""
    batch_id: int
    batch_rows: int
    batch_requests: int
    batch_tokens: int
    close: CloseReason
    executed_tokens: int = 0
    """Tokens the device worked on for the whole batch, padding included; 0 when the engine does not say."""
    first_chunk_us: int = 0
    """From arrival until the first chunk of a streamed answer was written; 0 when there was none."""


class Result(msgspec.Struct, array_like=True, frozen=True):
    """Answer to INFER with the same id; the body holds `tensors` in order."""

    stages: Stages
    tensors: tuple[TensorHead, ...]
    queued_rows: int = 0
    """Rows waiting in the worker now: gateways refresh their estimate from it."""


class Failure(msgspec.Struct, array_like=True, frozen=True):
    """An error for one request, by its code in `serving.errors`."""

    code: str
    message: str
    numbers: dict[str, int | float | str]
    retry_after_ms: int = 0
    stages: Stages | None = None
    """Present when device time was spent before the request failed."""
    queued_rows: int = 0


Header = Hello | Infer | Result | Failure | Amend | Chunk | Credit


class Frame(NamedTuple):
    request_id: int
    kind: int
    header: memoryview
    body: memoryview


_pack = PREFIX.pack
_unpack = PREFIX.unpack_from
_INFER = int(Kind.INFER)
_new_frame = tuple.__new__
"""Half the cost of calling the named tuple."""
_encode_header = msgspec.msgpack.Encoder().encode
decode_hello = msgspec.msgpack.Decoder(Hello).decode
decode_infer = msgspec.msgpack.Decoder(Infer).decode
decode_result = msgspec.msgpack.Decoder(Result).decode
decode_failure = msgspec.msgpack.Decoder(Failure).decode
decode_amend = msgspec.msgpack.Decoder(Amend).decode
decode_chunk = msgspec.msgpack.Decoder(Chunk).decode
decode_credit = msgspec.msgpack.Decoder(Credit).decode


def encode(
    kind: Kind, request_id: int, header: Header | None = None, *body: bytes | memoryview
) -> list[bytes | memoryview]:
    """The pieces of one frame, to be joined or written by the caller (bodies are not copied).

    Raises `FrameError` when the frame would exceed `MAX_FRAME_BYTES` or its header 64 KiB.
    """
    return _framed(kind, request_id, b"" if header is None else _encode_header(header), body)


class Terms(NamedTuple):
    """What many `Infer` have in common, encoded once: the fields before and those after what differs."""

    before: bytes
    after: bytes


_DIFFERING = slice(2, 6)
"""The fields of `Infer` that no two requests need share: `budget_us`, `rows`, `row_tokens`, `tensors`."""


def terms_of(infer: Infer) -> Terms:
    """The terms of requests like this one, the four fields apart that `encode_infer` takes."""
    fields = msgspec.structs.astuple(infer)
    before, after = fields[: _DIFFERING.start], fields[_DIFFERING.stop :]
    head = _array_head(len(fields))
    return Terms(head + b"".join(map(_encode_header, before)), b"".join(map(_encode_header, after)))


def encode_infer(
    terms: Terms,
    request_id: int,
    budget_us: int,
    rows: int,
    row_tokens: tuple[int, ...],
    tensors: tuple[TensorHead, ...],
    body: Sequence[bytes | memoryview],
) -> list[bytes | memoryview]:
    """`encode` of an `Infer` with these terms, at half its cost. Raises `FrameError` alike."""
    differing = _encode_header((budget_us, rows, row_tokens, tensors))
    # Behind the one byte that says there are four come the fields as they lie in the whole.
    return _framed(_INFER, request_id, terms.before + differing[1:] + terms.after, body)


def _array_head(count: int) -> bytes:
    """How msgpack begins an array of so many."""
    return bytes((0x90 | count,)) if count < 16 else b"\xdc" + count.to_bytes(2, "big")


def _framed(
    kind: int, request_id: int, head: bytes, body: Sequence[bytes | memoryview]
) -> list[bytes | memoryview]:
    size = _AFTER_LENGTH + len(head)
    for part in body:
        size += len(part) if isinstance(part, bytes) else part.nbytes
    if size > MAX_FRAME_BYTES or len(head) > 0xFFFF:
        raise FrameError(f"frame of {size} bytes with a header of {len(head)} bytes is over the limit")
    return [_pack(size, request_id, kind, len(head)) + head, *body]


class FrameReader:
    """Cuts a byte stream into frames without copying bodies twice.

    Usage with `asyncio.BufferedProtocol`: `get_buffer()` → the socket fills it → `frames(n)` yields every
    complete frame. Header and body views are valid only until the next `get_buffer()`.
    """

    __slots__ = ("_buffer", "_capacity", "_end")

    def __init__(self, capacity: int = 1 << 16) -> None:
        self._capacity = capacity
        self._buffer = bytearray(capacity)
        self._end = 0

    def get_buffer(self) -> memoryview:
        return memoryview(self._buffer)[self._end :]

    def frames(self, received: int) -> list[Frame]:
        """Frames completed by the `received` bytes just written into the buffer."""
        end = self._end + received
        view = memoryview(self._buffer)
        start, need, last = 0, 0, end - PREFIX_BYTES
        out: list[Frame] = []
        while start <= last:
            length, request_id, kind, header_length = _unpack(view, start)
            if length > MAX_FRAME_BYTES or length < _AFTER_LENGTH + header_length:
                raise FrameError(f"frame length {length} with a header of {header_length}")
            stop = start + 4 + length
            if stop > end:
                need = 4 + length
                break
            body = start + PREFIX_BYTES + header_length
            frame = (request_id, kind, view[start + PREFIX_BYTES : body], view[body:stop])
            out.append(_new_frame(Frame, frame))
            start = stop
        self._keep(start, end, need)
        return out

    def _keep(self, start: int, end: int, need: int) -> None:
        """Move the incomplete tail to the front of a buffer that is large enough for its frame.

        A new buffer is used whenever frames were handed out, so that their views stay untouched until
        the caller has dealt with them.
        """
        rest = end - start
        if start == 0 and need <= len(self._buffer) and rest < len(self._buffer):
            self._end = rest
            return
        old = self._buffer
        self._buffer = bytearray(max(need, rest + 1, self._capacity))
        self._buffer[:rest] = old[start:end]
        self._end = rest
