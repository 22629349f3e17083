"""Reports: what the data plane tells the control plane."""

from __future__ import annotations

from typing import Literal

import msgspec

from serving.contract.entries import (
    CostCurve,
    TensorSpec,
)
from serving.contract.words import (
    AddressClass,
    Frozen,
    ReplicaState,
    SlaClass,
)


class UsageRow(Frozen, frozen=True):
    """Usage of one minute × tenant × key × model × version × class, as counted by one gateway."""

    minute: int
    """Unix seconds of the minute's start."""
    tenant_id: str
    key_id: str
    model: str
    version_id: str
    sla_class: SlaClass
    requests: int = 0
    failed: int = 0
    cancelled: int = 0
    rows: int = 0
    tokens: int = 0
    device_us: int = 0
    cost_micro: int = 0
    cancelled_us: int = 0
    """Part of `device_us`: spent on requests whose client left before the answer."""


class UsageReport(Frozen, frozen=True, tag="usage"):
    rows: tuple[UsageRow, ...]


class ReplicaReport(Frozen, frozen=True, tag="replica"):
    """What the agent observes of one replica. `epoch` grows with every start of the process."""

    replica_id: str
    version_id: str
    host: str
    epoch: int
    state: ReplicaState
    reason: str = ""
    pid: int | None = None
    restarts: int = 0
    memory_bytes: int | None = None
    load_s: float | None = None
    """From the start of the process until it was ready."""
    at: float = 0.0


class EventReport(Frozen, frozen=True, tag="event"):
    """Something happened in a replica that an operator wants to know; it becomes part of the audit trail."""

    replica_id: str
    host: str
    epoch: int
    event: str
    """Dotted past tense, e.g. `batch.out_of_memory`."""
    numbers: dict[str, int | float] = {}
    at: float = 0.0


class DeviceInfo(Frozen, frozen=True):
    name: str
    """`cpu`, `cuda:0`, …"""
    kind: Literal["cpu", "cuda"]
    memory_bytes: int
    cores: int = 0
    product: str = ""
    """What the maker calls it: `NVIDIA H200`."""


class HostReport(Frozen, frozen=True, tag="host"):
    """Heartbeat of an agent, every few seconds."""

    host: str
    epoch: int
    devices: tuple[DeviceInfo, ...]
    replica_dir: str
    """Directory in which this host's replica sockets live."""
    at: float = 0.0
    features: tuple[str, ...] = ()
    """What its workers can use: `bf16` and `int8` (instructions of the CPU), `compiler`, `onnxruntime`, …"""


class MeasuredPoint(Frozen, frozen=True):
    rows: int
    tokens: int
    execute_ms: float


class ValidationReport(Frozen, frozen=True, tag="validation"):
    """Outcome of a validation run: the measured facts, or the reason it failed."""

    version_id: str
    attempt: int
    ok: bool
    reason: str = ""
    inputs: tuple[TensorSpec, ...] = ()
    outputs: tuple[TensorSpec, ...] = ()
    cost: CostCurve | None = None
    points: tuple[MeasuredPoint, ...] = ()
    memory_bytes: int | None = None
    load_s: float | None = None
    warm_up_s: float | None = None
    notes: tuple[str, ...] = ()
    """Sentences for a person on how the engine executes the version there, and why."""


class Agreement(Frozen, frozen=True):
    """How far a candidate's answers are from the reference's on the same samples; None where it means nothing."""

    cosine_min: float | None = None
    """Of the worst row, over outputs that are vectors."""
    cosine_mean: float | None = None
    max_abs_error: float | None = None
    """Over every real number of every output."""
    label_agreement: float | None = None
    """Share of rows whose discrete outputs (texts, whole numbers) are all the same."""


class TuningRow(Frozen, frozen=True):
    """What was measured of one candidate, or the reason it could not be."""

    index: int
    ok: bool
    reason: str = ""
    rows_per_s: dict[int, float] = {}
    """By rows of a batch: 1, 8, 32, as far as the engine takes them."""
    p50_ms: float | None = None
    """Of a batch of one row."""
    memory_bytes: int | None = None
    load_s: float | None = None
    """Load and warm-up."""
    agreement: Agreement | None = None
    notes: tuple[str, ...] = ()


class TuningReport(Frozen, frozen=True, tag="tuning"):
    """Progress of a tuning run: it began (no row), one more candidate, or its end."""

    tuning_id: str
    row: TuningRow | None = None
    is_done: bool = False
    reason: str = ""
    """Why it ended early; empty when every candidate had its turn."""


class KeySeen(Frozen, frozen=True):
    """From where a key was used last, as far as anybody needs to know."""

    key_id: str
    tenant_id: str
    address_class: AddressClass
    network: str = ""
    """The /24 or /48 of the address; empty for loopback, and where no address is known."""


class KeyMisuse(Frozen, frozen=True):
    """A key was used outside its rights `count` times; all else is of the last time."""

    key_id: str
    reason: str
    """`scope`, `network`, `model`, or `credential`: it opened nothing. Whether it is a revoked or expired key, `digest` tells."""
    count: int
    at: float
    tenant_id: str = ""
    """Empty for `credential`."""
    detail: str = ""
    """The model that was asked for, or the scope that was missing."""
    digest: bytes = b""
    address: str = ""
    request_id: str = ""
    trace_id: str = ""


class KeysReport(Frozen, frozen=True, tag="keys"):
    """What keys did at one gateway, apart from using the platform: usage is counted in its own report."""

    at: float
    seen: tuple[KeySeen, ...] = ()
    misused: tuple[KeyMisuse, ...] = ()


ReportBody = (
    UsageReport | ReplicaReport | HostReport | ValidationReport | EventReport | TuningReport | KeysReport
)


class Report(msgspec.Struct, frozen=True):
    """One row of the report table; `(process, sequence)` is unique, so a resend changes nothing."""

    process: str
    sequence: int
    body: ReportBody
