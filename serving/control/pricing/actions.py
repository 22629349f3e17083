"""Prices are set, ended and withdrawn; none changes what was used already."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.db import transaction
from django.utils import timezone

from serving.control import publish
from serving.control.catalog.models import Model
from serving.control.pricing.models import Price
from tenants.access import require
from tenants.actors import Actor
from tenants.audit import Target, record
from tenants.errors import Conflict, Invalid, NotFound
from tenants.roles import Right
from tenants.validation import save_valid

NOTICE = timedelta(seconds=5)
"""Every gateway knows a price this long before it binds; one that is published takes a second."""
FURTHEST = timedelta(days=3660)
_MINUTE = timedelta(minutes=1)


@transaction.atomic
def set_price(
    *,
    by: Actor,
    model: Model | None = None,
    device_class: str = "",
    micro_per_device_hour: int = 0,
    micro_per_million_tokens: int = 0,
    micro_per_thousand_requests: int = 0,
    effective_from: datetime | None = None,
    note: str = "",
) -> Price:
    """A price of a model (absent: all) on a device class (empty: all), from the next minute or a later one.

    Raises `Invalid` by field, also for a moment that is past: what was used keeps the price it had.
    """
    require(by, Right.MANAGE_PRICES)
    price = Price(
        model=model.name if model else "",
        device_class=device_class,
        micro_per_device_hour=micro_per_device_hour,
        micro_per_million_tokens=micro_per_million_tokens,
        micro_per_thousand_requests=micro_per_thousand_requests,
        effective_from=_moment(effective_from),
        note=note,
        created_by=by.name,
    )
    return _save(by, price, "price.set")


@transaction.atomic
def end_price(*, by: Actor, price: Price, effective_from: datetime | None = None) -> Price:
    """From the next minute or a later one the price's scope has none of its own. Raises as `set_price`."""
    require(by, Right.MANAGE_PRICES)
    end = Price(
        model=price.model,
        device_class=price.device_class,
        effective_from=_moment(effective_from),
        is_end=True,
        created_by=by.name,
    )
    return _save(by, end, "price.ended")


@transaction.atomic
def withdraw_price(*, by: Actor, price: Price) -> None:
    """Take back what has not begun. Raises `Conflict` for what has, or is about to."""
    require(by, Right.MANAGE_PRICES)
    fresh = Price.objects.select_for_update().filter(pk=price.pk).first()
    if fresh is None:
        raise NotFound("price")
    if fresh.effective_from < timezone.now() + NOTICE:
        raise Conflict("The price binds already; set another one from a later minute on.")
    target, before = _target(fresh), fresh.facts()
    fresh.delete()
    record(by=by, action="price.withdrawn", target=target, before=before)
    publish.price(target.id)


def earliest(now: datetime) -> datetime:
    """The next minute that every gateway will know of in time."""
    floor = (now + NOTICE).replace(second=0, microsecond=0)
    return floor + _MINUTE


def _moment(asked: datetime | None) -> datetime:
    now = timezone.now()
    if asked is None:
        return earliest(now)
    if asked < now + NOTICE:
        raise Invalid(
            {"effective_from": "A price cannot change what was used already: choose a later moment."}
        )
    if asked.second or asked.microsecond:
        raise Invalid({"effective_from": "Prices begin with a minute."})
    if asked > now + FURTHEST:
        raise Invalid({"effective_from": "This is more than ten years ahead."})
    return asked


def _save(by: Actor, price: Price, action: str) -> Price:
    save_valid(price)
    record(by=by, action=action, target=_target(price), after=price.facts())
    publish.price(price.pk)
    return price


def _target(price: Price) -> Target:
    return Target("price", price.pk, str(price))
