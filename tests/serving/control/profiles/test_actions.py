"""Profiles are checked, audited and published; the platform always has a default."""

from __future__ import annotations

import json
from typing import Any

import pytest

from serving.contract import BindingEntry, ProfileEntry, decode_config
from serving.control.catalog.models import Model
from serving.control.profiles.access import access_binding, access_profile, visible_profiles
from serving.control.profiles.actions import (
    bind_profile,
    create_profile,
    delete_profile,
    unbind_profile,
    update_profile,
)
from serving.control.profiles.models import ProfileBinding, SlaProfile
from serving.control.seam_tables import ConfigEntry
from tenants.actions.tenants import create_tenant
from tenants.actors import Actor
from tenants.errors import Conflict, DomainError, Invalid, NotAllowed, NotFound
from tenants.models import AuditEvent, Tenant
from tenants.roles import Right, Role
from tenants.scoping import all_tenants

pytestmark = pytest.mark.django_db


def entry(kind: str, key: str) -> Any:
    row = ConfigEntry.objects.filter(kind=kind, key=key).first()
    return None if row is None or row.deleted else decode_config(json.dumps(row.body))


def audited(action: str) -> int:
    with all_tenants("test"):
        return AuditEvent.objects.filter(action=action).count()


@pytest.fixture
def tenant(operator: Actor) -> Tenant:
    return create_tenant(by=operator, slug="acme", name="Acme")


@pytest.fixture
def profile(operator: Actor) -> SlaProfile:
    return create_profile(
        by=operator, name="fast", sla_class="interactive", target_p95_ms=50, deadline_ms=400
    )


def test_a_new_profile_is_published(operator: Actor, profile: SlaProfile) -> None:
    assert entry("profile", profile.pk) == ProfileEntry(
        id=profile.pk, name="fast", sla_class="interactive", target_p95_ms=50, deadline_ms=400
    )
    assert audited("profile.created") == 1


@pytest.mark.parametrize(
    "field, values",
    [
        ("name", {"name": ""}),
        ("sla_class", {"sla_class": "urgent"}),
        ("late_policy", {"late_policy": "shrug"}),
        ("target_p95_ms", {"target_p95_ms": 0}),
        ("target_p95_ms", {"target_p95_ms": float("nan")}),
        ("target_p95_ms", {"target_p95_ms": 300.0, "deadline_ms": 200.0}),
        ("deadline_ms", {"deadline_ms": float("inf")}),
        ("max_batch_size", {"max_batch_size": 0}),
        ("max_wait_ms", {"max_wait_ms": -1}),
        ("max_wait_ms", {"max_wait_ms": 500.0}),
        ("weight", {"weight": 0}),
        ("max_queue", {"max_queue": 0}),
    ],
)
def test_wrong_values_are_named_by_field(operator: Actor, field: str, values: dict[str, Any]) -> None:
    with pytest.raises(Invalid) as caught:
        create_profile(by=operator, **{"name": "p", **values})
    assert list(caught.value.errors) == [field]


def test_names_are_unique(operator: Actor, profile: SlaProfile) -> None:
    with pytest.raises(Invalid) as caught:
        create_profile(by=operator, name="fast")
    assert "name" in caught.value.errors


def test_an_update_writes_audits_and_publishes_only_what_differs(
    operator: Actor, profile: SlaProfile
) -> None:
    update_profile(by=operator, profile=profile, name="fast", weight=1.0)
    assert audited("profile.updated") == 0
    update_profile(by=operator, profile=profile, weight=2.0)
    assert entry("profile", profile.pk).weight == 2.0
    assert audited("profile.updated") == 1
    with pytest.raises(Invalid):
        update_profile(by=operator, profile=profile, deadline_ms=1.0)
    with pytest.raises(Invalid):
        update_profile(by=operator, profile=profile, id="pro_other")


def test_a_target_bound_again_moves_to_the_new_profile(
    operator: Actor, tenant: Tenant, profile: SlaProfile
) -> None:
    other = create_profile(by=operator, name="slow")
    first = bind_profile(by=operator, profile=profile, tenant=tenant)
    again = bind_profile(by=operator, profile=profile, tenant=tenant)
    moved = bind_profile(by=operator, profile=other, tenant=tenant)
    assert first.pk == again.pk == moved.pk
    assert entry("binding", moved.pk) == BindingEntry(id=moved.pk, profile_id=other.pk, tenant_id=tenant.pk)
    assert audited("profile.bound") == 2


def test_a_binding_may_name_tenant_model_and_endpoint(
    operator: Actor, tenant: Tenant, profile: SlaProfile
) -> None:
    model = Model.objects.create(name="minilm")
    binding = bind_profile(by=operator, profile=profile, tenant=tenant, model=model, endpoint="embeddings")
    assert entry("binding", binding.pk) == BindingEntry(
        id=binding.pk, profile_id=profile.pk, tenant_id=tenant.pk, model="minilm", endpoint="embeddings"
    )
    assert binding.scope_text == "acme × minilm × embeddings"
    with pytest.raises(Invalid):
        bind_profile(by=operator, profile=profile, endpoint="nonsense")


def test_unbinding_retracts_but_never_the_default(
    operator: Actor, tenant: Tenant, profile: SlaProfile, default_profile: SlaProfile
) -> None:
    binding = bind_profile(by=operator, profile=profile, tenant=tenant)
    unbind_profile(by=operator, binding=binding)
    assert entry("binding", binding.pk) is None
    with all_tenants("a test"):
        default = ProfileBinding.objects.get(tenant=None, model=None, endpoint=None)
    assert default.is_default and default.profile == default_profile
    with pytest.raises(Conflict):
        unbind_profile(by=operator, binding=default)
    with pytest.raises(NotFound):
        unbind_profile(by=operator, binding=binding)


def test_a_bound_profile_cannot_be_deleted(operator: Actor, tenant: Tenant, profile: SlaProfile) -> None:
    binding = bind_profile(by=operator, profile=profile, tenant=tenant)
    with pytest.raises(Conflict):
        delete_profile(by=operator, profile=profile)
    unbind_profile(by=operator, binding=binding)
    delete_profile(by=operator, profile=profile)
    assert entry("profile", profile.pk) is None


def test_only_operators_change_profiles_and_members_see_those_that_can_apply_to_them(
    operator: Actor, tenant: Tenant, profile: SlaProfile, default_profile: SlaProfile
) -> None:
    foreign = create_profile(by=operator, name="deal-of-another")
    binding = bind_profile(by=operator, profile=profile, tenant=tenant)
    member = Actor(type="user", id="1", name="m", memberships={tenant.pk: Role.OWNER})
    assert set(visible_profiles(member)) == {profile, default_profile}
    assert access_profile(member, profile.pk) == profile
    assert access_binding(member, binding.pk) == binding
    with pytest.raises(NotFound):
        access_profile(member, foreign.pk)
    with pytest.raises(NotAllowed):
        access_profile(member, profile.pk, Right.MANAGE_PROFILES)
    for refused in (
        lambda: create_profile(by=member, name="mine"),
        lambda: update_profile(by=member, profile=profile, weight=9.0),
        lambda: bind_profile(by=member, profile=profile),
        lambda: unbind_profile(by=member, binding=binding),
        lambda: delete_profile(by=member, profile=profile),
    ):
        with pytest.raises(DomainError):
            refused()
    assert not visible_profiles(Actor.anonymous()).exists()
