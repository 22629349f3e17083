"""Guarantees fit into the pool of their model. Whoever changes either holds the model's row, so none slips past."""

from __future__ import annotations

from django.db.models import Sum

from serving.control.catalog.models import Model
from serving.control.quotas.models import Quota
from tenants.errors import Invalid
from tenants.scoping import all_tenants

POOLS = {"requests": "pool_requests_per_s", "concurrency": "pool_concurrency"}
"""Resource → the model's field."""


def check_guarantee(quota: Quota) -> None:
    """Within a transaction. Raises `Invalid` for more than the pool has left beside the others' guarantees."""
    field = POOLS.get(quota.resource)
    if quota.guaranteed is None or quota.model_id is None or field is None:
        return  # the table's constraints say what is wrong with it
    model = Model.objects.select_for_update().get(pk=quota.model_id)
    pool = getattr(model, field)
    if pool is None:
        raise Invalid({"guaranteed": "The model has no pool that tenants share; set one at the model first."})
    left = pool - guaranteed(model, quota.resource, without=quota)
    if quota.guaranteed > left:
        raise Invalid(
            {"guaranteed": f"Of the model's pool of {pool} only {left} are not guaranteed to others."}
        )


def check_pools(model: Model) -> None:
    """Of a model whose row is held. Raises `Invalid` for a pool smaller than its guarantees."""
    for resource, field in POOLS.items():
        promised = guaranteed(model, resource)
        if promised > (getattr(model, field) or 0):
            raise Invalid({field: f"Tenants are guaranteed {promised} of it."})


def guaranteed(model: Model, resource: str, without: Quota | None = None) -> int:
    """Of a model, to all tenants."""
    with all_tenants("guarantees of all tenants share one pool"):
        rows = Quota.objects.filter(model=model, resource=resource, guaranteed__isnull=False)
        if without is not None:
            rows = rows.exclude(pk=without.pk)
        return rows.aggregate(sum=Sum("guaranteed"))["sum"] or 0
