"""The gates to SLA profiles and bindings.

Profiles belong to the platform. A tenant's people see those that can apply to them: bound to their
tenant, or to no tenant in particular.
"""

from __future__ import annotations

from django.db.models import QuerySet

from serving.control.profiles.models import ProfileBinding, SlaProfile
from tenants.access import require, scope_of
from tenants.actors import Actor
from tenants.errors import NotFound
from tenants.roles import Right


def visible_bindings(actor: Actor, **wanted: str) -> QuerySet[ProfileBinding]:
    """To be evaluated inside `scope_of(actor)`, which may be wider than what the person looks at now."""
    with scope_of(actor):
        rows = ProfileBinding.objects.select_related("profile", "tenant", "model").filter(**wanted)
    return rows.none() if actor.is_anonymous else rows


def visible_profiles(actor: Actor) -> QuerySet[SlaProfile]:
    if actor.sees_platform:
        return SlaProfile.objects.all()
    with scope_of(actor):
        bound = set(visible_bindings(actor).order_by().values_list("profile_id", flat=True))
    return SlaProfile.objects.filter(pk__in=bound)


def access_profile(actor: Actor, profile_id: str, right: Right = Right.VIEW) -> SlaProfile:
    """`Right.VIEW` needs no more than to see it; every other right is asked on the platform."""
    profile = visible_profiles(actor).filter(pk=profile_id).first()
    if profile is None:
        raise NotFound("profile")
    _require(actor, right)
    return profile


def access_binding(actor: Actor, binding_id: str, right: Right = Right.VIEW) -> ProfileBinding:
    with scope_of(actor):
        binding = visible_bindings(actor, pk=binding_id).first()
    if binding is None:
        raise NotFound("binding")
    _require(actor, right)
    return binding


def _require(actor: Actor, right: Right) -> None:
    if right is not Right.VIEW:
        require(actor, right)
