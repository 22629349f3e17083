"""What crosses the seam: config entries go down, reports come up.

Every struct here is frozen, versioned by its table row, and free of behaviour. Both planes import this
module and nothing of each other. Fields are only ever added, with a default, so that a data-plane
process one release behind still reads what a newer control plane publishes.

Units are in the names. Money is in micro-units of the platform currency (1 000 000 = 1.00). Times are
Unix seconds (float) unless a name says otherwise.
"""

from __future__ import annotations

from typing import Literal

import msgspec

SlaClass = Literal["interactive", "standard", "batch"]
LatePolicy = Literal["refuse", "degrade", "run"]
ReplicaState = Literal["pending", "starting", "loading", "warming", "ready", "draining", "stopped", "failed"]
VersionState = Literal["registered", "validating", "ready", "failed", "archived"]
EngineName = Literal["encoder", "tensor", "onnx", "python", "echo"]
CloseReason = Literal["full", "due", "window", "idle", "drain"]
QuotaResource = Literal["requests", "tokens", "device_us", "cost_micro", "concurrency", "queue"]
QuotaWindow = Literal["", "second", "minute", "hour", "day", "month"]
AddressClass = Literal["loopback", "private", "public", "unknown"]


class Frozen(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Base of everything that crosses the seam: immutable, keyword-only, unknown fields ignored."""


# ---------------------------------------------------------------- config entries (down)


class TenantEntry(Frozen, frozen=True, tag="tenant"):
    """Key: tenant id. A suspended tenant's requests are refused with `tenant_suspended`."""

    id: str
    slug: str
    name: str
    is_active: bool = True
    max_concurrency: int = 1024
    requests_per_s: float | None = None
    burst: int | None = None
    time_zone: str = "UTC"
    """IANA name: where the tenant's days and months begin."""


class KeyEntry(Frozen, frozen=True, tag="key"):
    """Key: the key's public id (`key_…`). Revoking a key deletes its entry."""

    id: str
    tenant_id: str
    digest: bytes
    """32 bytes: `tenants.keys.digest_secret` of the secret part."""
    scopes: tuple[str, ...] = ("infer",)
    models: tuple[str, ...] | None = None
    """Names of the models this key may use; None allows every model granted to the tenant."""
    expires_at: float | None = None
    networks: tuple[str, ...] | None = None
    """Where it may be used from (`192.0.2.0/24`, `2001:db8::/32`); None allows every address."""
    first_id: str | None = None
    """Of a key that another was rolled to: the first of them. What limits that one limits them all together."""


class TensorSpec(Frozen, frozen=True):
    """One named tensor; `shape` uses -1 for the batch dimension (always first) and for free sizes."""

    name: str
    datatype: str
    shape: tuple[int, ...]


class CostCurve(Frozen, frozen=True):
    """Measured by validation: `L(rows, tokens) = a + b·rows + c·tokens` in milliseconds."""

    a_ms: float
    b_ms_per_row: float
    c_ms_per_token: float
    residual_p95_ms: float = 0.0


class VersionEntry(Frozen, frozen=True, tag="version"):
    """Key: version id (`mv_…`). Everything a gateway, agent or worker needs to serve one version."""

    id: str
    model: str
    number: int
    engine: EngineName
    artifact_sha256: str
    artifact_path: str
    """Absolute path of the unpacked artifact (a directory, or one `.pt2` / `.onnx` file)."""
    options: dict[str, str | int | float | bool] = {}
    """Engine options: dtype, compile, task, pooling, normalize, max_tokens, truncate, max_batch_rows …"""
    inputs: tuple[TensorSpec, ...] = ()
    outputs: tuple[TensorSpec, ...] = ()
    cost: CostCurve | None = None
    memory_bytes: int | None = None
    price_micro_per_device_hour: int = 0
    fallback_version_id: str | None = None
    """Answers instead when this version cannot and the profile says `degrade`, or its breaker is open."""
    fallback_model: str | None = None
    """The same by model name: whatever version its route chooses. `fallback_version_id` wins."""


class WeightedVersion(Frozen, frozen=True):
    version_id: str
    weight: int


class ModelEntry(Frozen, frozen=True, tag="model"):
    """Key: model name. `routes` share unpinned traffic by weight; `versions` may be pinned by number."""

    id: str
    name: str
    platform: str = "tidegate"
    tenant_ids: tuple[str, ...] | None = None
    """Tenants granted this model; None grants it to every tenant."""
    routes: tuple[WeightedVersion, ...] = ()
    versions: dict[str, str] = {}
    """Version number (as text) → version id, for those that are deployed."""
    created_at: float = 0.0
    pool_requests_per_s: int | None = None
    """What all tenants together may ask of it; each has what is guaranteed to it, and borrows the rest."""
    pool_concurrency: int | None = None


class ProfileEntry(Frozen, frozen=True, tag="profile"):
    """Key: profile id. The scheduling promise of one SLA profile."""

    id: str
    name: str
    sla_class: SlaClass = "standard"
    target_p95_ms: float = 200.0
    deadline_ms: float = 2000.0
    max_batch_size: int = 32
    max_wait_ms: float = 0.0
    weight: float = 1.0
    max_queue: int = 1024
    late_policy: LatePolicy = "refuse"


class BindingEntry(Frozen, frozen=True, tag="binding"):
    """Key: binding id. Which profile a tenant × model × endpoint gets; None is a wildcard.

    Resolution: tenant+model+endpoint → tenant+model → tenant → model → platform default (all None).
    """

    id: str
    profile_id: str
    tenant_id: str | None = None
    model: str | None = None
    endpoint: str | None = None


class ReplicaSpec(Frozen, frozen=True):
    """One worker process the agent on `host` must keep running, and the address gateways reach it at."""

    id: str
    version_id: str
    host: str
    address: str
    """`unix:/path` or `tcp:host:port`."""
    device: str = "cpu"
    threads: int = 1
    cpu_core: int | None = None


class DeploymentEntry(Frozen, frozen=True, tag="deployment"):
    """Key: deployment id. The replicas of one model that should exist now."""

    id: str
    model: str
    replicas: tuple[ReplicaSpec, ...] = ()
    device_classes: dict[str, str] = {}
    """Replica id → what is charged for its device (`cpu`, `nvidia-h200`); no reason to start a worker anew."""


class PriceEntry(Frozen, frozen=True, tag="price"):
    """Key: price id. What using the platform costs from a moment on; `serving.prices` says which one binds."""

    id: str
    model: str = ""
    """Name of the one model it is for; empty for all."""
    device_class: str = ""
    """The one class it is for; empty for all."""
    effective_from: float = 0.0
    """Start of a minute."""
    micro_per_device_hour: int = 0
    micro_per_million_tokens: int = 0
    micro_per_thousand_requests: int = 0
    is_end: bool = False
    """From then on this scope has no price of its own."""


class ValidationEntry(Frozen, frozen=True, tag="validation"):
    """Key: version id. Asks the agent on `host` to load, warm and measure a version once."""

    version_id: str
    host: str
    attempt: int = 1


OptionValue = str | int | float | bool


class SampleTensor(Frozen, frozen=True):
    """One named input of a tuning run: `data` flat and row-major, the batch dimension first."""

    name: str
    datatype: str
    shape: tuple[int, ...]
    data: tuple[OptionValue, ...]


class TuningEntry(Frozen, frozen=True, tag="tuning"):
    """Key: tuning id (`tun_…`). Asks the agent on `host` to measure a version under each of `candidates`.

    They run in order, each in a process of its own; the first one is what the others are compared with.
    """

    id: str
    version_id: str
    host: str
    candidates: tuple[dict[str, OptionValue], ...]
    """Complete engine options of each candidate."""
    device: str = "cpu"
    texts: tuple[str, ...] = ()
    tensors: tuple[SampleTensor, ...] = ()
    """Samples for text engines and for others; the worker has its own when there are none."""


class QuotaEntry(Frozen, frozen=True, tag="quota"):
    """Key: quota id (`quo_…`). A limit on a tenant, on one of its keys, or on its use of a model.

    Per second and minute it is a rate that allows `burst` at once; per hour, day and month a budget of the
    calendar in the tenant's time zone; of concurrency, with no window, what may be inside at once; of the queue,
    with no window, what may wait at one replica.
    """

    id: str
    tenant_id: str
    resource: QuotaResource
    limit: int
    """In the resource's unit: requests, tokens, device microseconds, micro-units of money."""
    window: QuotaWindow = ""
    burst: int | None = None
    key_id: str | None = None
    model: str | None = None
    observe_only: bool = False
    """Counted and shown, never refused."""
    guaranteed: int | None = None
    """Of `limit`: so much of the model's pool is always there for the tenant."""


ConfigBody = (
    TenantEntry
    | KeyEntry
    | ModelEntry
    | VersionEntry
    | ProfileEntry
    | BindingEntry
    | DeploymentEntry
    | PriceEntry
    | ValidationEntry
    | TuningEntry
    | QuotaEntry
)


class ConfigChange(msgspec.Struct, frozen=True):
    """One row of the config table. `body` is None when the entry was deleted."""

    kind: str
    key: str
    version: int
    body: ConfigBody | None


# ---------------------------------------------------------------- reports (up)


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


_encode = msgspec.json.Encoder().encode
_decode_config = msgspec.json.Decoder(ConfigBody).decode
_decode_report = msgspec.json.Decoder(ReportBody).decode


def encode_body(body: ConfigBody | ReportBody) -> bytes:
    """JSON with the struct's tag in `type`: readable in psql, and what the last-good file holds."""
    return _encode(body)


def decode_config(raw: bytes | str) -> ConfigBody:
    """Raises `msgspec.ValidationError` when the row is not one of ours."""
    return _decode_config(raw)


def decode_report(raw: bytes | str) -> ReportBody:
    """Raises `msgspec.ValidationError` when the row is not one of ours."""
    return _decode_report(raw)
