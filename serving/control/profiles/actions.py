"""SLA profiles are made, changed and bound; every gateway follows within a second."""

from __future__ import annotations

import math
from contextlib import AbstractContextManager
from typing import Any

from django.db import transaction
from django.db.models import ProtectedError

from serving.control import publish
from serving.control.catalog.models import Model
from serving.control.profiles.models import ProfileBinding, SlaProfile
from serving.profiles import ENDPOINTS
from tenants.access import require
from tenants.actors import Actor
from tenants.audit import Target, changed, record
from tenants.errors import Conflict, Invalid, NotFound
from tenants.models import Tenant
from tenants.roles import Right
from tenants.scoping import all_tenants, scope_of_row, tenant_scope
from tenants.staleness import refuse_stale
from tenants.validation import refuse_unknown, save_valid

EDITABLE = (
    "name",
    "description",
    "sla_class",
    "target_p95_ms",
    "deadline_ms",
    "max_batch_size",
    "max_wait_ms",
    "weight",
    "max_queue",
    "late_policy",
)


@transaction.atomic
def create_profile(
    *,
    by: Actor,
    name: str,
    sla_class: str = "standard",
    target_p95_ms: float = 200.0,
    deadline_ms: float = 2000.0,
    max_batch_size: int = 32,
    max_wait_ms: float = 0.0,
    weight: float = 1.0,
    max_queue: int = 1024,
    late_policy: str = "refuse",
    description: str = "",
) -> SlaProfile:
    """Raises `Invalid` by field, also for pairs such as a target beyond the deadline."""
    require(by, Right.MANAGE_PROFILES)
    profile = SlaProfile(
        name=name,
        description=description,
        sla_class=sla_class,
        target_p95_ms=target_p95_ms,
        deadline_ms=deadline_ms,
        max_batch_size=max_batch_size,
        max_wait_ms=max_wait_ms,
        weight=weight,
        max_queue=max_queue,
        late_policy=late_policy,
    )
    _save(profile)
    record(by=by, action="profile.created", target=_target(profile), after=facts_of(profile))
    publish.profile(profile)
    return profile


@transaction.atomic
def update_profile(*, by: Actor, profile: SlaProfile, seen: str = "", **values: Any) -> SlaProfile:
    """Change any of `EDITABLE`; only what differs is written and audited.

    Raises `Conflict` when `seen` (`facts_of` the profile as the person saw it, marked) is out of date.
    """
    require(by, Right.MANAGE_PROFILES)
    refuse_unknown(values, EDITABLE)
    fresh = _locked(profile)
    refuse_stale(seen, facts_of(fresh))
    before, after = changed(facts_of(fresh), values)
    if not after:
        return fresh
    for name, value in after.items():
        setattr(fresh, name, value)
    _save(fresh)
    record(by=by, action="profile.updated", target=_target(fresh), before=before, after=after)
    publish.profile(fresh)
    return fresh


@transaction.atomic
def delete_profile(*, by: Actor, profile: SlaProfile) -> None:
    """Raises `Conflict` while something is bound to it."""
    require(by, Right.MANAGE_PROFILES)
    fresh = _locked(profile)
    target, before = _target(fresh), facts_of(fresh)
    try:
        with all_tenants("bindings of every tenant keep a profile"):
            fresh.delete()
    except ProtectedError as error:
        raise Conflict("The profile is still bound; bind those targets to another profile first.") from error
    record(by=by, action="profile.deleted", target=target, before=before)
    publish.profile(target.id)


@transaction.atomic
def bind_profile(
    *,
    by: Actor,
    profile: SlaProfile,
    tenant: Tenant | None = None,
    model: Model | None = None,
    endpoint: str | None = None,
) -> ProfileBinding:
    """Bind tenant × model × endpoint (absent: all) to the profile; a target bound before moves to it."""
    require(by, Right.MANAGE_PROFILES)
    if endpoint is not None and endpoint not in ENDPOINTS:
        raise Invalid({"endpoint": f"Known endpoints: {', '.join(ENDPOINTS)}."})
    target = {"tenant": tenant, "model": model, "endpoint": endpoint}
    with _scope_of_target(tenant):
        known = ProfileBinding.objects.select_for_update().filter(**_lookup(target)).first()
    if known is not None and known.profile_id == profile.pk:
        return known
    before = {"profile": str(known.profile)} if known else None
    binding = known or ProfileBinding(**target)
    binding.profile = profile
    save_valid(binding)
    record(
        by=by,
        action="profile.bound",
        target=Target("binding", binding.pk, str(binding)),
        before=before,
        after={"profile": str(profile), "target": binding.scope_text},
        tenant=tenant,
    )
    publish.profile(profile)
    publish.binding(binding)
    return binding


@transaction.atomic
def unbind_profile(*, by: Actor, binding: ProfileBinding) -> None:
    """The target falls back to the next wider binding. Raises `Conflict` for the platform default."""
    require(by, Right.MANAGE_PROFILES)
    with scope_of_row(binding):
        fresh = ProfileBinding.objects.select_for_update().filter(pk=binding.pk).first()
    if fresh is None:
        raise NotFound("binding")
    if fresh.is_default:
        raise Conflict("The platform keeps a default profile: bind another profile to it instead.")
    target, tenant = Target("binding", fresh.pk, str(fresh)), fresh.tenant
    before = {"profile": str(fresh.profile), "target": fresh.scope_text}
    with scope_of_row(binding):
        fresh.delete()
    record(by=by, action="profile.unbound", target=target, before=before, tenant=tenant)
    publish.binding(target.id)


def _locked(profile: SlaProfile) -> SlaProfile:
    fresh = SlaProfile.objects.select_for_update().filter(pk=profile.pk).first()
    if fresh is None:
        raise NotFound("profile")
    return fresh


def _save(profile: SlaProfile) -> None:
    _refuse_infinite(profile)
    save_valid(profile)


def _refuse_infinite(profile: SlaProfile) -> None:
    """NaN compares false with every bound, so range validators let it pass."""
    numbers = {
        name: getattr(profile, name) for name in ("target_p95_ms", "deadline_ms", "max_wait_ms", "weight")
    }
    wrong = {
        name: "Give a finite number."
        for name, value in numbers.items()
        if isinstance(value, float) and not math.isfinite(value)
    }
    if wrong:
        raise Invalid(wrong)


def facts_of(profile: SlaProfile) -> dict[str, Any]:
    return {name: getattr(profile, name) for name in EDITABLE}


def _target(profile: SlaProfile) -> Target:
    return Target("profile", profile.pk, profile.name)


def _scope_of_target(tenant: Tenant | None) -> AbstractContextManager[None]:
    return tenant_scope(tenant.pk) if tenant else all_tenants("a binding of no tenant is the platform's")


def _lookup(target: dict[str, Any]) -> dict[str, Any]:
    absent = {f"{name}__isnull": True for name, value in target.items() if value is None}
    return absent | {name: value for name, value in target.items() if value is not None}
