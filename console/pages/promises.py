"""Which SLA profile applies where: the gateway's own rule, asked for a page."""

from __future__ import annotations

from dataclasses import dataclass

from serving.contract import ProfileEntry
from serving.control.catalog.access import visible_models
from serving.control.catalog.models import Model
from serving.control.entries import binding_entry, profile_entry
from serving.control.profiles.models import ProfileBinding
from serving.profiles import ENDPOINTS, ProfileTable
from tenants.actors import Actor
from tenants.models import Tenant
from tenants.scoping import tenant_scope


@dataclass(frozen=True, slots=True)
class Promise:
    """What one tenant is promised for one model; `by_endpoint` only where endpoints differ."""

    model: Model
    profile: ProfileEntry
    by_endpoint: dict[str, ProfileEntry]


def promises_of(actor: Actor, tenant: Tenant) -> list[Promise]:
    """One entry per model the tenant may use and the actor may see."""
    with tenant_scope(tenant.pk):
        bindings = list(ProfileBinding.objects.select_related("model", "profile"))
    profiles = {row.profile_id: profile_entry(row.profile) for row in bindings}
    table = ProfileTable([binding_entry(row) for row in bindings], profiles)
    return [_promise(table, tenant, model) for model in visible_models(actor, tenant.pk)]


def _promise(table: ProfileTable, tenant: Tenant, model: Model) -> Promise:
    found = {endpoint: table.resolve(tenant.pk, model.name, endpoint) for endpoint in ENDPOINTS}
    first = found[ENDPOINTS[0]]
    differs = any(profile.id != first.id for profile in found.values())
    return Promise(model, first, found if differs else {})
