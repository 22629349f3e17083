"""Config entries: what the control plane tells the data plane."""

from __future__ import annotations

import msgspec

from serving.contract.words import (
    EngineName,
    Frozen,
    LatePolicy,
    QuotaResource,
    QuotaWindow,
    SlaClass,
)


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
