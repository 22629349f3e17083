"""The documents of the API, as types. A test holds them against its OpenAPI document."""

from __future__ import annotations

from typing import Any, TypedDict


class Tenant(TypedDict):
    id: str
    slug: str
    name: str
    organisation: str | None
    is_active: bool
    suspended_reason: str
    max_concurrency: int
    requests_per_s: float | None
    burst: int | None
    time_zone: str
    created_at: str
    updated_at: str


class Key(TypedDict):
    id: str
    tenant: str
    name: str
    display: str
    scopes: list[str]
    allowed_models: list[str] | None
    allowed_networks: list[str] | None
    state: str
    expires_at: str | None
    replaced_by: str | None
    revoked_at: str | None
    last_used_at: str | None
    last_used_class: str
    last_used_network: str
    created_at: str
    created_by: str


class NewKey(Key):
    token: str | None
    """Shown once. None when the answer is a repetition's."""


class Model(TypedDict):
    id: str
    name: str
    description: str
    is_public: bool
    created_at: str
    pool_requests_per_s: int | None
    pool_concurrency: int | None
    idle_policy: str


class Artifact(TypedDict):
    sha256: str
    format: str
    size_bytes: int
    file_count: int


class Version(TypedDict):
    id: str
    model: str
    model_name: str
    number: int
    engine: str
    options: dict[str, Any]
    state: str
    state_reason: str
    artifact: Artifact | None
    inputs: list[dict[str, Any]]
    outputs: list[dict[str, Any]]
    cost: dict[str, Any] | None
    points: list[dict[str, Any]]
    memory_bytes: int | None
    load_s: float | None
    warm_up_s: float | None
    notes: list[str]
    validated_at: str | None
    fallback_version: str | None
    fallback_model: str | None
    price_micro_per_device_hour: int
    trusted_by: str
    created_by: str
    created_at: str


class Deployment(TypedDict):
    id: str
    model: str
    model_name: str
    version: str
    version_number: int
    replicas: int
    ready_replicas: int
    device: str
    threads: int
    state: str
    state_reason: str
    created_by: str
    created_at: str
    updated_at: str


class Counts(TypedDict):
    requests: int
    failed: int
    cancelled: int
    rows: int
    tokens: int
    device_us: int
    cost_micro: int


class UsageRow(Counts, total=False):
    """With the columns of the groups that were asked for."""

    day: str
    tenant_id: str
    tenant_name: str
    key_id: str
    key_name: str
    model: str
    version_id: str
    sla_class: str


class Usage(TypedDict):
    since: str
    until: str
    data: list[UsageRow]
    total: Counts
    is_cut: bool


class Event(TypedDict):
    id: str
    seq: int
    at: str
    tenant_id: str | None
    tenant_name: str
    actor_type: str
    actor_id: str
    actor_name: str
    action: str
    target_type: str
    target_id: str
    target_name: str
    outcome: str
    reason: str
    before: dict[str, Any] | None
    after: dict[str, Any] | None
    request_id: str
    trace_id: str
    ip: str | None
    user_agent: str


class Export(TypedDict):
    id: str
    tenant_id: str | None
    format: str
    filters: dict[str, Any]
    state: str
    error: str
    rows_done: int
    rows_total: int | None
    size_bytes: int | None
    sha256: str
    requested_by_name: str
    created_at: str
    finished_at: str | None
    expires_at: str | None
