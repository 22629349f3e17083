"""Config entries computed from rows: one function per kind, key in, entry (or None: none should exist) out.

`all_of` computes every entry of a kind for reconciliation; where there can be many, in one query.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from django.db.models import Q, QuerySet
from django.utils import timezone

from serving.contract import (
    BindingEntry,
    ConfigBody,
    DeploymentEntry,
    EngineName,
    KeyEntry,
    LatePolicy,
    ModelEntry,
    PriceEntry,
    ProfileEntry,
    QuotaEntry,
    ReplicaSpec,
    SlaClass,
    TenantEntry,
    TuningEntry,
    ValidationEntry,
    VersionEntry,
    WeightedVersion,
)
from serving.control.catalog.models import Model, Version
from serving.control.fleet.models import Deployment, Replica
from serving.control.pricing.classes import classes_of
from serving.control.pricing.current import needed, price_entry
from serving.control.pricing.models import Price
from serving.control.profiles.models import ProfileBinding, SlaProfile
from serving.control.quotas.models import Quota
from serving.control.tuning import states as tuning_states
from serving.control.tuning.models import TuningRun
from tenants.models import ApiKey, Tenant
from tenants.scoping import all_tenants

_WHY = "configuration of every tenant is published"


def tenant(tenant_id: str) -> TenantEntry | None:
    row = Tenant.objects.filter(pk=tenant_id).first()
    return None if row is None else _tenant_entry(row)


def _tenant_entry(row: Tenant) -> TenantEntry:
    return TenantEntry(
        id=row.pk,
        slug=row.slug,
        name=row.name,
        is_active=row.is_active,
        max_concurrency=row.max_concurrency,
        requests_per_s=row.requests_per_s,
        burst=row.burst,
        time_zone=row.time_zone,
    )


def key(key_id: str) -> KeyEntry | None:
    """None for one that is revoked or has expired."""
    with all_tenants(_WHY):
        row = ApiKey.objects.filter(pk=key_id, revoked_at__isnull=True).first()
    return None if row is None else _key_entry(row)


def _key_entry(row: ApiKey) -> KeyEntry | None:
    if row.expires_at is not None and row.expires_at <= timezone.now():
        return None
    return KeyEntry(
        id=row.pk,
        tenant_id=row.tenant_id,
        digest=bytes(row.digest),
        scopes=tuple(row.scopes),
        models=None if row.allowed_models is None else tuple(row.allowed_models),
        expires_at=row.expires_at.timestamp() if row.expires_at else None,
        networks=None if row.allowed_networks is None else tuple(row.allowed_networks),
        first_id=row.first_id or None,
    )


def profile(profile_id: str) -> ProfileEntry | None:
    row = SlaProfile.objects.filter(pk=profile_id).first()
    return None if row is None else profile_entry(row)


def profile_entry(row: SlaProfile) -> ProfileEntry:
    return ProfileEntry(
        id=row.pk,
        name=row.name,
        sla_class=cast(SlaClass, row.sla_class),
        target_p95_ms=row.target_p95_ms,
        deadline_ms=row.deadline_ms,
        max_batch_size=row.max_batch_size,
        max_wait_ms=row.max_wait_ms,
        weight=row.weight,
        max_queue=row.max_queue,
        late_policy=cast(LatePolicy, row.late_policy),
    )


def binding(binding_id: str) -> BindingEntry | None:
    with all_tenants(_WHY):
        row = ProfileBinding.objects.select_related("model").filter(pk=binding_id).first()
    return None if row is None else binding_entry(row)


def binding_entry(row: ProfileBinding) -> BindingEntry:
    return BindingEntry(
        id=row.pk,
        profile_id=row.profile_id,
        tenant_id=row.tenant_id,
        model=row.model.name if row.model else None,
        endpoint=row.endpoint,
    )


def quota(quota_id: str) -> QuotaEntry | None:
    with all_tenants(_WHY):
        row = Quota.objects.select_related("model", "key").filter(pk=quota_id).first()
    return None if row is None else row.entry()


def price(price_id: str) -> PriceEntry | None:
    """None for one that another has taken the place of."""
    row = Price.objects.filter(pk=price_id).first()
    if row is None:
        return None
    scope = Price.objects.filter(model=row.model, device_class=row.device_class)
    return price_entry(row) if row in needed(scope, timezone.now()) else None


def model(name: str) -> ModelEntry | None:
    row = Model.objects.filter(name=name).first()
    if row is None:
        return None
    grants = None if row.is_public else _granted(row)
    deployed = Deployment.objects.filter(model=row, state="active").select_related("version").first()
    replicas = _wanted(deployed)
    numbers = {str(replica.version.number): replica.version_id for replica in replicas}
    if deployed is not None:
        numbers[str(deployed.version.number)] = deployed.version_id
    return ModelEntry(
        id=row.pk,
        name=row.name,
        tenant_ids=grants,
        routes=_routes(deployed, replicas),
        versions=dict(sorted(numbers.items(), key=lambda item: int(item[0]))),
        created_at=row.created_at.timestamp(),
        pool_requests_per_s=row.pool_requests_per_s,
        pool_concurrency=row.pool_concurrency,
    )


def _granted(row: Model) -> tuple[str, ...]:
    with all_tenants(_WHY):
        return tuple(row.grants.order_by("tenant_id").values_list("tenant_id", flat=True))


def _routes(deployed: Deployment | None, replicas: list[Replica]) -> tuple[WeightedVersion, ...]:
    """All traffic to the wanted version once a replica of it is ready, or when no other one is."""
    if deployed is None:
        return ()
    ready = [replica.version_id for replica in replicas if replica.state == "ready"]
    chosen = deployed.version_id if deployed.version_id in ready or not ready else max(ready, key=ready.count)
    return (WeightedVersion(version_id=chosen, weight=100),)


def version(version_id: str) -> VersionEntry | None:
    """Only what somebody must serve, answer for or validate now is published.

    A deployed version that has no replicas, because none are wanted or no host is there, is answered for by its
    fallback.
    """
    rows = Version.objects.select_related("model", "artifact", "fallback_model")
    row = rows.filter(pk=version_id).first()
    is_deployed = (
        Replica.objects.filter(version_id=version_id, is_wanted=True).exists()
        or Deployment.objects.filter(version_id=version_id, state="active").exists()
    )
    if row is None or not (is_deployed or row.state == "validating" or _active_tunings(row).exists()):
        return None
    return VersionEntry(
        id=row.pk,
        model=row.model.name,
        number=row.number,
        engine=cast(EngineName, row.engine),
        artifact_sha256=row.artifact.sha256 if row.artifact else "",
        artifact_path=str(row.artifact.path) if row.artifact else "",
        options=row.options,
        inputs=row.input_specs(),
        outputs=row.output_specs(),
        cost=row.cost_curve(),
        memory_bytes=row.memory_bytes,
        price_micro_per_device_hour=row.price_micro_per_device_hour,
        fallback_version_id=row.fallback_version_id,
        fallback_model=row.fallback_model.name if row.fallback_model else None,
    )


def validation(version_id: str) -> ValidationEntry | None:
    row = Version.objects.filter(pk=version_id, state="validating").first()
    if row is None:
        return None
    return ValidationEntry(version_id=row.pk, host=row.validation_host, attempt=row.validation_attempt)


def tuning(run_id: str) -> TuningEntry | None:
    row = TuningRun.objects.filter(pk=run_id, state__in=tuning_states.ACTIVE).first()
    if row is None:
        return None
    return TuningEntry(
        id=row.pk,
        version_id=row.version_id,
        host=row.host,
        device=row.device,
        candidates=tuple(candidate.options for candidate in row.in_order()),
        texts=tuple(row.texts),
        tensors=row.sample_tensors(),
    )


def _active_tunings(row: Version) -> QuerySet[TuningRun]:
    return row.tunings.filter(state__in=tuning_states.ACTIVE)


def deployment(deployment_id: str) -> DeploymentEntry | None:
    row = Deployment.objects.select_related("model").filter(pk=deployment_id, state="active").first()
    if row is None:
        return None
    wanted = _wanted(row)
    return DeploymentEntry(
        id=row.pk,
        model=row.model.name,
        replicas=tuple(_replica_spec(replica) for replica in wanted),
        device_classes=classes_of(wanted),
    )


def _replica_spec(row: Replica) -> ReplicaSpec:
    return ReplicaSpec(
        id=row.pk,
        version_id=row.version_id,
        host=row.host.name,
        address=row.address,
        device=row.device,
        threads=row.threads,
        cpu_core=row.cpu_core,
    )


def _wanted(deployed: Deployment | None) -> list[Replica]:
    if deployed is None:
        return []
    rows = Replica.objects.filter(deployment=deployed, is_wanted=True)
    return list(rows.select_related("version", "host").order_by("slot"))


def versions_touching(deployment_id: str) -> set[str]:
    """Versions whose entry depends on the deployment and its replicas, of now or of before."""
    rows = Replica.objects.filter(deployment_id=deployment_id)
    served = set(rows.order_by().values_list("version_id", flat=True).distinct())
    return served | set(Deployment.objects.filter(pk=deployment_id).values_list("version_id", flat=True))


# ---------------------------------------------------------------- every entry of a kind


def all_of(kind: str) -> dict[str, ConfigBody | None]:
    """Key → entry of all there should be now; None for a key that has expired and awaits retraction."""
    with all_tenants(_WHY):
        return _ALL[kind]()


def _all_tenants() -> dict[str, ConfigBody | None]:
    return {row.pk: _tenant_entry(row) for row in Tenant.objects.all()}


def _all_keys() -> dict[str, ConfigBody | None]:
    return {row.pk: _key_entry(row) for row in ApiKey.objects.filter(revoked_at__isnull=True)}


def _all_profiles() -> dict[str, ConfigBody | None]:
    return {row.pk: profile_entry(row) for row in SlaProfile.objects.all()}


def _all_bindings() -> dict[str, ConfigBody | None]:
    return {row.pk: binding_entry(row) for row in ProfileBinding.objects.select_related("model")}


def _all_quotas() -> dict[str, ConfigBody | None]:
    return {row.pk: row.entry() for row in Quota.objects.select_related("model", "key")}


def _all_prices() -> dict[str, ConfigBody | None]:
    return {row.pk: price_entry(row) for row in needed(Price.objects.all(), timezone.now())}


def _all_models() -> dict[str, ConfigBody | None]:
    return {name: model(name) for name in Model.objects.values_list("name", flat=True)}


def _all_versions() -> dict[str, ConfigBody | None]:
    is_served = (
        Q(replicas__is_wanted=True)
        | Q(deployments__state="active")
        | Q(state="validating")
        | Q(tunings__state__in=tuning_states.ACTIVE)
    )
    served = Version.objects.order_by().filter(is_served).values_list("pk", flat=True).distinct()
    return {version_id: version(version_id) for version_id in served}


def _all_deployments() -> dict[str, ConfigBody | None]:
    active = Deployment.objects.filter(state="active").values_list("pk", flat=True)
    return {deployment_id: deployment(deployment_id) for deployment_id in active}


def _all_validations() -> dict[str, ConfigBody | None]:
    validating = Version.objects.filter(state="validating").values_list("pk", flat=True)
    return {version_id: validation(version_id) for version_id in validating}


def _all_tunings() -> dict[str, ConfigBody | None]:
    active = TuningRun.objects.filter(state__in=tuning_states.ACTIVE).values_list("pk", flat=True)
    return {run_id: tuning(run_id) for run_id in active}


_ALL: dict[str, Callable[[], dict[str, ConfigBody | None]]] = {
    "tenant": _all_tenants,
    "key": _all_keys,
    "profile": _all_profiles,
    "binding": _all_bindings,
    "price": _all_prices,
    "model": _all_models,
    "version": _all_versions,
    "deployment": _all_deployments,
    "validation": _all_validations,
    "tuning": _all_tunings,
    "quota": _all_quotas,
}
