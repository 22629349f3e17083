"""A request between admission and its one outcome."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, Protocol

from serving.contract import LatePolicy
from serving.errors import DataPlaneError
from serving.wire import Chunk, Result, TensorHead

if TYPE_CHECKING:
    from serving.gateway.breaker import Probe
    from serving.gateway.replicas import Replica
    from serving.gateway.routing import Lane
    from serving.quotas.holding import Reservation


class Payload(NamedTuple):
    """What the worker gets: tensors in order, and the token count of each row for text."""

    rows: int
    tokens: int
    """Engines without tokens count one per row."""
    row_tokens: tuple[int, ...]
    heads: tuple[TensorHead, ...]
    parts: list[bytes | memoryview]


class Answer(NamedTuple):
    result: Result
    body: memoryview


OnOutcome = Callable[[Answer | DataPlaneError], None]
"""Called at once, from wherever the outcome became known; it must not raise."""


class ChunkSink(Protocol):
    """Takes the chunks of a streamed answer, all before the outcome."""

    @property
    def credit(self) -> int:
        """How many it takes before it grants more by `Replica.grant`."""
        ...

    @property
    def has_begun(self) -> bool:
        """Whether a chunk came: the request cannot run elsewhere any more."""
        ...

    def on_chunk(self, chunk: Chunk, body: memoryview) -> None:
        """Must not raise; `body` is valid only during the call."""


class Pending:
    """One request in flight. `on_outcome` is called exactly once."""

    __slots__ = (
        "answers_before",
        "arrived",
        "deadline",
        "deaths",
        "expires",
        "id",
        "is_cancelled",
        "is_open",
        "key_id",
        "lane",
        "late_policy",
        "on_outcome",
        "own_deadline",
        "payload",
        "predicted_us",
        "probe",
        "queue_shares",
        "replica",
        "reservation",
        "slot",
        "stream",
        "traceparent",
    )

    def __init__(
        self,
        request_id: int,
        lane: Lane,
        key_id: str,
        payload: Payload,
        deadline: float,
        expires: float,
        on_outcome: OnOutcome,
        stream: ChunkSink | None = None,
    ) -> None:
        self.id = request_id
        self.lane = lane
        self.key_id = key_id
        self.payload: Payload | None = payload
        """Kept for a retry; dropped as soon as there is an outcome."""
        self.deadline = deadline
        """Monotonic seconds."""
        self.expires = expires
        """When the gateway gives up waiting: the deadline, or later where the profile runs late work."""
        self.arrived = 0.0
        """When the request's time began to count."""
        self.own_deadline: float | None = None
        """What it asked for itself, infinite for nothing; None until a changed profile makes that matter."""
        self.on_outcome = on_outcome
        self.stream = stream
        """Set when the answer is wanted in chunks."""
        self.predicted_us = lane.predict_us(payload.rows, payload.tokens)
        self.deaths = 0
        self.is_open = True
        """No outcome yet. Afterwards only what it used still counts."""
        self.is_cancelled = False
        """The client left first: what it used is settled as cancelled."""
        self.late_policy: LatePolicy = lane.profile.late_policy
        """What the worker is told; `refuse` where something else can answer instead of a late answer."""
        self.replica: Replica | None = None
        self.answers_before = 0
        """What the replica had answered when this was sent."""
        self.probe: Probe | None = None
        """Set while its outcome decides about a circuit of its replica."""
        self.slot = 0
        """Where the deadline wheel keeps it."""
        self.traceparent = ""
        self.queue_shares: tuple[tuple[str, str, int], ...] = ()
        """As `wire.Infer` has them."""
        self.reservation: Reservation | None = None
        """What its request holds of quotas: kept beyond its end where what this used is not known yet."""

    @property
    def replica_id(self) -> str:
        """Where it ran last; empty before it was sent."""
        return "" if self.replica is None else self.replica.spec.id

    @property
    def is_plain(self) -> bool:
        """Whether the worker is told nothing of it but what its lane says."""
        return not (
            self.deaths
            or self.traceparent
            or self.stream is not None
            or self.queue_shares
            or self.late_policy != self.lane.profile.late_policy
        )

    @property
    def has_begun(self) -> bool:
        """Whether the client has a part of the answer: another try would begin anew."""
        return self.stream is not None and self.stream.has_begun
