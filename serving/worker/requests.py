"""One request inside the worker: parsed, cut into schedulable parts, put together again, answered."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from serving.errors import DataPlaneError, EngineFailed, InvalidRequest, InvalidTensor
from serving.scheduling.work import QueueShare, Terms, Work
from serving.wire import Amend, Chunk, Failure, FrameError, Infer, Result, Stages, TensorHead
from serving.worker.engines import datatypes
from serving.worker.engines.contract import Engine, EngineInput, EngineOutput, Outcome, Tensor
from serving.worker.engines.slicing import joined, slices
from serving.worker.streams import MAX_CHUNK_BYTES, Stream
from serving.worker.underway import BatchRun

MAX_REQUEST_ROWS = 4096
_work_ids = itertools.count(1)


@dataclass(slots=True, eq=False)
class Part:
    """Payload of a `Work`: which rows of which request."""

    request: Request
    index: int
    input: EngineInput


class Request:
    """A request on its way: answered once, when the last of its parts has an outcome."""

    __slots__ = (
        "arrived",
        "device_us",
        "id",
        "last_run",
        "last_work",
        "link",
        "open_parts",
        "outcomes",
        "size_bytes",
        "stream",
        "traceparent",
        "works",
    )

    def __init__(self, link: Any, request_id: int, arrived: float, size_bytes: int) -> None:
        """`link`: the connection it came from, the intake's own."""
        self.link = link
        self.id = request_id
        self.arrived = arrived
        self.size_bytes = size_bytes
        self.traceparent = ""
        self.works: Sequence[Work] = ()
        self.outcomes: list[Outcome | None] = []
        self.open_parts = 0
        self.device_us = 0
        self.last_work: Work | None = None
        self.last_run: BatchRun | None = None
        self.stream: Stream | None = None

    def ran(self, work: Work, run: BatchRun, share_us: int) -> None:
        """One part ran, well or badly: what it used, and in which batch."""
        self.last_work, self.last_run = work, run
        self.device_us += share_us

    def settle(self, index: int, outcome: Outcome) -> bool:
        """Note one part's outcome; True when it was the last one."""
        self.outcomes[index] = outcome
        self.open_parts -= 1
        return self.open_parts == 0

    def release(self) -> None:
        """It is answered: let go of works and batch, which hold it in turn, so that no collection is needed."""
        self.works = ()
        self.last_work = self.last_run = None

    def failure(self) -> DataPlaneError | None:
        """A request fails as a whole when one of its parts did, or when its reader left."""
        if self.stream is not None and self.stream.ended is not None:
            return self.stream.ended
        for outcome in self.outcomes:
            if isinstance(outcome, DataPlaneError):
                return outcome
        return None


def parse(infer: Infer, body: memoryview, engine: Engine) -> EngineInput:
    """The engine's input. The body is copied: the read buffer belongs to the next frames.

    Raises `InvalidRequest`, `InvalidTensor` or `InputTooLong`.
    """
    if not 0 < infer.rows <= MAX_REQUEST_ROWS:
        raise InvalidRequest(
            f"a request holds 1 to {MAX_REQUEST_ROWS} rows, not {infer.rows}",
            numbers={"rows": infer.rows, "max_rows": MAX_REQUEST_ROWS},
        )
    if infer.max_batch_size < 1 or not infer.weight > 0.0:
        raise InvalidRequest("a profile's batch size and weight are positive")
    item = EngineInput(infer.rows, _decoded(infer.tensors, bytes(body)), infer.row_tokens)
    if not infer.row_tokens:
        _check_rows(item)
    engine.check(item)
    return item


def _decoded(heads: Sequence[TensorHead], raw: bytes) -> dict[str, Tensor]:
    if len(heads) == 1 and heads[0].size_bytes == len(raw):
        return {heads[0].name: datatypes.decode(heads[0], raw)}
    view, offset, tensors = memoryview(raw), 0, {}
    for head in heads:
        tensors[head.name] = datatypes.decode(head, view[offset : offset + head.size_bytes])
        offset += head.size_bytes
    if offset != len(raw) or len(tensors) != len(heads):
        raise InvalidTensor("the tensors do not add up to the body")
    return tensors


def cut(request: Request, infer: Infer, item: EngineInput, max_batch_rows: int) -> Sequence[Work]:
    """Works of at most `max_batch_size` rows each; the request is answered when all are done."""
    limit = _rows_limit(infer, max_batch_rows)
    if item.rows <= limit:
        request.outcomes, request.open_parts = [None], 1
        request.works = (_work(request, infer, 0, item),)
        return request.works
    pieces = list(slices(item, limit))
    request.outcomes = [None] * len(pieces)
    request.open_parts = len(pieces)
    request.works = [_work(request, infer, index, piece) for index, piece in enumerate(pieces)]
    return request.works


def open_stream(
    request: Request, infer: Infer, item: EngineInput, stream: Stream, max_batch_rows: int
) -> None:
    """Let the answer leave in chunks. Raises `InvalidRequest` when it would not come from one batch."""
    limit = _rows_limit(infer, max_batch_rows)
    if item.rows > limit:
        numbers = {"rows": item.rows, "max_rows": limit}
        raise InvalidRequest(f"a streamed request holds at most {limit} rows here", numbers=numbers)
    request.stream = item.stream = stream


def chunk(index: int, output: EngineOutput) -> tuple[Chunk, list[bytes | memoryview]]:
    """Header and body of one CHUNK frame. Raises `EngineFailed` for a chunk that is too large."""
    heads, bodies = _encoded(output.tensors)
    size_bytes = sum(head.size_bytes for head in heads)
    if size_bytes > MAX_CHUNK_BYTES:
        raise EngineFailed(f"the model streamed a chunk of {size_bytes} bytes, more than {MAX_CHUNK_BYTES}")
    return Chunk(index, heads), bodies


def terms(amend: Amend, now: float) -> Terms:
    """What a work's `Terms` are by a frame that was read at `now`.

    Raises `FrameError`: there is nobody to answer, and a gateway that sends such terms is not one of ours.
    """
    if amend.max_batch_size < 1 or not amend.weight > 0.0:
        raise FrameError("a profile's batch size and weight are positive")
    return Terms(
        sla_class=amend.sla_class,
        deadline=now + amend.budget_us / 1e6,
        weight=amend.weight,
        max_batch_size=amend.max_batch_size,
        max_wait_s=amend.max_wait_us / 1e6,
        max_queue=amend.max_queue,
        late_policy=amend.late_policy,
        target_s=amend.target_us / 1e6,
    )


def stages(request: Request, now: float) -> Stages | None:
    """Where the time went, from the part that finished last; None when nothing ran.

    Boundaries are rounded before differences are taken, so that the five parts sum to the whole. What
    earlier parts of a cut request took counts as queueing of the last one.
    """
    work, run = request.last_work, request.last_run
    if work is None or run is None:
        return None
    batch, start = run.batch, request.arrived
    picked = round(((work.picked or batch.picked or run.started) - start) * 1e6)
    began = round((run.started - start) * 1e6)
    ended = round((run.ended - start) * 1e6)
    executed = round(run.execute_s * 1e6)
    # A boundary never lies before the one ahead of it.
    if picked < 0:
        picked = 0
    if began < picked:
        began = picked
    if ended < began:
        ended = began
    if executed >= ended - began - 1:  # a microsecond of rounding is no interruption
        executed = ended - began
    # By position, in the order of the struct, for the same reason as in `_work`.
    return Stages(
        picked,
        began - picked,
        executed,
        ended - began - executed,
        max(0, round((now - start) * 1e6) - ended),
        round(batch.predicted_s * 1e6),
        request.device_us,
        batch.id,
        batch.rows,
        len(batch.works),
        batch.tokens,
        batch.close,
        run.executed_tokens,
        _first_chunk_us(request) if request.stream is not None else 0,
    )


def result(request: Request, now: float, queued_rows: int) -> tuple[Result, list[bytes | memoryview]]:
    """Header and body of the answer to a request whose parts all succeeded.

    Raises `EngineFailed` when the parts of a cut request do not fit together.
    """
    outputs = [outcome for outcome in request.outcomes if isinstance(outcome, EngineOutput)]
    heads, bodies = _encoded(joined(outputs))
    measured = stages(request, now)
    assert measured is not None  # an answered request has run
    return Result(measured, heads, queued_rows), bodies


def failure(error: DataPlaneError, stages: Stages | None = None, queued_rows: int = 0) -> Failure:
    retry_after_ms = round((error.retry_after_s or 0.0) * 1000)
    return Failure(error.code, error.message, error.numbers, retry_after_ms, stages, queued_rows)


def _encoded(tensors: dict[str, Tensor]) -> tuple[tuple[TensorHead, ...], list[bytes | memoryview]]:
    encoded = [datatypes.encode(name, tensor) for name, tensor in tensors.items()]
    if len(encoded) == 1:
        head, body = encoded[0]
        return (head,), [body]
    return tuple(head for head, _ in encoded), [body for _, body in encoded]


def _first_chunk_us(request: Request) -> int:
    stream = request.stream
    return round((stream.first_at - request.arrived) * 1e6) if stream is not None and stream.sent else 0


def _rows_limit(infer: Infer, max_batch_rows: int) -> int:
    return min(infer.max_batch_size, max_batch_rows)


def _work(request: Request, infer: Infer, index: int, piece: EngineInput) -> Work:
    # By position: names would cost half as much again, and every request comes by here.
    return Work(
        next(_work_ids),
        infer.tenant_id,
        infer.sla_class,
        piece.rows,
        piece.tokens,
        request.arrived,
        request.arrived + infer.budget_us / 1e6,
        infer.weight,
        infer.max_batch_size,
        infer.max_wait_us / 1e6,
        infer.max_queue,
        infer.late_policy,
        infer.target_us / 1e6,
        infer.is_suspect,
        # One place for a request, however many parts it is cut into.
        tuple([QueueShare(*share) for share in infer.queue_shares])
        if not index and infer.queue_shares
        else (),
        Part(request, index, piece),
    )


def _check_rows(item: EngineInput) -> None:
    for name, tensor in item.tensors.items():
        shape = tensor.array.shape
        if not shape or shape[0] != item.rows:
            raise InvalidTensor(f"{name}: the first dimension must be {item.rows}, shape is {list(shape)}")
