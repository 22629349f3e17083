"""The gates to prices: everybody sees those of models they may use; setting them is the platform's."""

from __future__ import annotations

from django.db.models import Q, QuerySet

from serving.control.catalog.access import visible_models
from serving.control.pricing.models import Price
from tenants.access import require
from tenants.actors import Actor
from tenants.errors import NotFound
from tenants.roles import Right


def visible_prices(actor: Actor, tenant_id: str | None = None) -> QuerySet[Price]:
    """Prices of everything, and of the models the actor (or one of their tenants) may use."""
    if actor.is_anonymous:
        return Price.objects.none()
    if tenant_id is None and actor.sees_platform:
        return Price.objects.all()
    names = visible_models(actor, tenant_id).values("name")
    return Price.objects.filter(Q(model="") | Q(model__in=names))


def access_price(actor: Actor, price_id: str, right: Right = Right.VIEW) -> Price:
    """`Right.VIEW` needs no more than to see it; every other right is asked on the platform."""
    price = visible_prices(actor).filter(pk=price_id).first()
    if price is None:
        raise NotFound("price")
    if right is not Right.VIEW:
        require(actor, right)
    return price
