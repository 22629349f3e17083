"""Model name (and pinned number) → the version that answers, with everything constant about that path.

A *lane* is one tenant × model × version × endpoint: its profile, its series, its part of the headers.
Lanes are built once and looked up on the hot path; a change of configuration drops them all.
"""

from __future__ import annotations

import random
from bisect import bisect
from collections.abc import Callable
from itertools import accumulate

import msgspec

from serving.contract import ModelEntry, ProfileEntry, SlaClass, VersionEntry
from serving.errors import Misuse, ModelNotFound, ModelNotReady
from serving.gateway import priority
from serving.gateway.metrics import Metrics, SeriesRecorder
from serving.gateway.shedding import RANK
from serving.gateway.snapshot import Grant, Snapshot
from serving.wire import Infer, terms_of

UNMEASURED_US_PER_ROW = 1000


class Lane:
    """Constant facts of one tenant × model × version × endpoint."""

    __slots__ = (
        "_base_us",
        "_row_us",
        "_token_us",
        "asked_model",
        "deadline_s",
        "has_fallback",
        "is_limited",
        "is_lowered",
        "max_wait_us",
        "model",
        "model_json",
        "number_header",
        "profile",
        "rank",
        "refuses_late",
        "series",
        "target_us",
        "tenant_id",
        "terms",
        "version",
    )

    def __init__(
        self, tenant_id: str, version: VersionEntry, profile: ProfileEntry, series: SeriesRecorder
    ) -> None:
        self.tenant_id = tenant_id
        self.model = version.model
        self.model_json = msgspec.json.encode(version.model)
        self.version = version
        self.number_header = b"%d" % version.number
        self.profile = profile
        self.has_fallback = bool(version.fallback_version_id or version.fallback_model)
        self.asked_model = version.model
        """Whose profile binds: another model's where this lane answers instead of it."""
        self.is_limited = True
        """Quotas may bind its requests: they have to be asked."""
        self.is_lowered = False
        """The request wished for a lower class than its profile gives."""
        self.rank = RANK[profile.sla_class]
        self.series = series
        self.deadline_s = profile.deadline_ms / 1000
        self.target_us = round(profile.target_p95_ms * 1000)
        self.max_wait_us = round(profile.max_wait_ms * 1000)
        self.refuses_late = profile.late_policy == "refuse"
        self.terms = terms_of(self.infer())
        """Of its requests as most are: none died with a worker, was traced or is streamed."""
        cost = version.cost
        self._base_us = 0.0 if cost is None else cost.a_ms * 1000
        self._row_us = UNMEASURED_US_PER_ROW if cost is None else cost.b_ms_per_row * 1000
        self._token_us = 0.0 if cost is None else cost.c_ms_per_token * 1000

    def infer(self) -> Infer:
        """What the worker is told of each of its requests, before anything is known of one."""
        profile = self.profile
        return Infer(
            tenant_id=self.tenant_id,
            sla_class=profile.sla_class,
            budget_us=0,
            rows=0,
            row_tokens=(),
            tensors=(),
            weight=profile.weight,
            max_batch_size=profile.max_batch_size,
            max_wait_us=self.max_wait_us,
            max_queue=profile.max_queue,
            late_policy=profile.late_policy,
            target_us=self.target_us,
        )

    def predict_us(self, rows: int, tokens: int) -> int:
        """Device time of this request alone: what it adds to a replica's outstanding work."""
        us = int(self._base_us + self._row_us * rows + self._token_us * tokens)
        return us if us > 0 else 1


class Router:
    def __init__(
        self, snapshot: Snapshot, metrics: Metrics, may_bind: Callable[[str, str], bool] | None = None
    ) -> None:
        """`may_bind` says of a tenant and a model whether quotas may bind a request; without it they always may."""
        self._snapshot = snapshot
        self._metrics = metrics
        self._may_bind = may_bind
        self._lanes: dict[tuple[str, ...], Lane] = {}

    def forget(self) -> None:
        """The configuration changed: build lanes anew from it."""
        self._lanes.clear()

    def model(self, grant: Grant, name: str) -> ModelEntry:
        """Raises `ModelNotFound`, alike for what does not exist and what was not granted."""
        model = self._snapshot.models.get(name)
        if model is not None and grant.may_use(model):
            return model
        error = ModelNotFound(f"the model {name[:200]!r} does not exist", param="model")
        if model is None:  # a name that is wrong is no attempt at what is somebody else's
            raise error
        raise error.of_misuse(Misuse("model", grant.key.id, grant.tenant.id, name))

    def version(self, grant: Grant, name: str, pin: str | None) -> VersionEntry:
        """Raises `ModelNotFound`, or `ModelNotReady` when nothing of the model is deployed."""
        model = self.model(grant, name)
        version_id = _by_weight(model) if pin is None else model.versions.get(pin)
        version = self._snapshot.versions.get(version_id) if version_id is not None else None
        if version is not None:
            return version
        if pin is not None:
            message = f"the model {name!r} has no deployed version {pin[:20]!r}"
            raise ModelNotFound(message, param="model")
        raise ModelNotReady(f"the model {name!r} is not deployed", retry_after_s=5.0)

    def lane(self, grant: Grant, name: str, pin: str | None, endpoint: str) -> Lane:
        """Raises as `version`."""
        version = self.version(grant, name, pin)
        key = (grant.tenant.id, version.id, endpoint)
        lane = self._lanes.get(key)
        if lane is None:
            profile = self._snapshot.profile_table.resolve(grant.tenant.id, version.model, endpoint)
            lane = self._lanes[key] = self._build(grant.tenant.id, version, endpoint, profile)
        return lane

    def is_fixed(self, name: str, pin: str | None) -> bool:
        """Whether all requests for the model go to the same version until the configuration changes."""
        model = self._snapshot.models.get(name)
        return model is not None and (pin is not None or len(model.routes) == 1)

    def lowered(self, lane: Lane, sla_class: SlaClass) -> Lane:
        """The same lane in a lower class: queued, counted and billed as such, everything else as it was."""
        if lane.profile.sla_class == sla_class:
            return lane
        endpoint = lane.series.labels.endpoint
        key = (lane.tenant_id, lane.version.id, endpoint, sla_class)
        lowered = self._lanes.get(key)
        if lowered is None:
            profile = msgspec.structs.replace(lane.profile, sla_class=sla_class)
            lowered = self._lanes[key] = self._build(lane.tenant_id, lane.version, endpoint, profile)
            lowered.is_lowered = True
        return lowered

    def fallback(self, grant: Grant, lane: Lane) -> Lane | None:
        """Where the lane's requests may be answered instead: under the profile they were asked with.

        None when there is no such version, or when this key may not use its model.
        """
        version = self._fallback_version(lane.version)
        model = self._snapshot.models.get(version.model) if version is not None else None
        if version is None or model is None or version.id == lane.version.id or not grant.may_use(model):
            return None
        endpoint, profile = lane.series.labels.endpoint, lane.profile
        key = (lane.tenant_id, version.id, endpoint, profile.sla_class, "instead of", lane.version.id)
        found = self._lanes.get(key)
        if found is None:
            found = self._lanes[key] = self._build(lane.tenant_id, version, endpoint, profile)
            found.asked_model, found.is_lowered = lane.asked_model, lane.is_lowered
            found.is_limited = lane.is_limited
        return found

    def _fallback_version(self, version: VersionEntry) -> VersionEntry | None:
        version_id = version.fallback_version_id
        if version_id is None and version.fallback_model is not None:
            model = self._snapshot.models.get(version.fallback_model)
            version_id = None if model is None else _by_weight(model)
        return None if version_id is None else self._snapshot.versions.get(version_id)

    def renewed(self, lane: Lane) -> Lane:
        """The lane as the configuration of now would build it; its version and a lowered class are kept."""
        endpoint = lane.series.labels.endpoint
        profile = self._snapshot.profile_table.resolve(lane.tenant_id, lane.asked_model, endpoint)
        if lane.is_lowered:
            own = priority.lower(profile.sla_class, lane.profile.sla_class)
            profile = msgspec.structs.replace(profile, sla_class=own)
        renewed = self._build(lane.tenant_id, lane.version, endpoint, profile)
        renewed.asked_model, renewed.is_lowered = lane.asked_model, lane.is_lowered
        renewed.is_limited = lane.is_limited
        return renewed

    def _build(self, tenant_id: str, version: VersionEntry, endpoint: str, profile: ProfileEntry) -> Lane:
        series = self._metrics.series(
            tenant_id,
            version.model,
            version.id,
            endpoint,
            profile.sla_class,
            round(profile.target_p95_ms * 1000),
        )
        lane = Lane(tenant_id, version, profile, series)
        lane.is_limited = self._may_bind is None or self._may_bind(tenant_id, version.model)
        return lane


def _by_weight(model: ModelEntry) -> str | None:
    routes = model.routes
    if len(routes) <= 1:
        return routes[0].version_id if routes else None
    edges = list(accumulate(max(0, route.weight) for route in routes))
    if edges[-1] <= 0:
        return routes[0].version_id
    return routes[bisect(edges, random.random() * edges[-1])].version_id
