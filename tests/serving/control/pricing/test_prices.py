"""The price book: set ahead, published before it binds, never changed backwards."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone

from serving.contract import DeploymentEntry, DeviceInfo, PriceEntry, decode_config
from serving.control import publish
from serving.control.catalog.models import Model, Version
from serving.control.fleet.models import Deployment, Host, Replica
from serving.control.pricing.access import access_price, visible_prices
from serving.control.pricing.actions import earliest, end_price, set_price, withdraw_price
from serving.control.pricing.classes import class_of, known_classes
from serving.control.pricing.current import binding_at, needed
from serving.control.pricing.models import Price
from serving.control.seam_tables import ConfigEntry
from tenants.actors import Actor
from tenants.errors import Conflict, Invalid, NotAllowed, NotFound
from tenants.models import AuditEvent
from tenants.roles import Right, Role
from tenants.scoping import all_tenants

pytestmark = pytest.mark.django_db

OUTSIDER = Actor(type="user", id="7", name="owner", memberships={"tnt_a": Role.OWNER})


def entry(kind: str, key: str) -> Any:
    row = ConfigEntry.objects.filter(kind=kind, key=key).first()
    return None if row is None or row.deleted else decode_config(json.dumps(row.body))


def in_minutes(minutes: int) -> datetime:
    return earliest(timezone.now()) + timedelta(minutes=minutes)


def begin(price: Price, ago: timedelta) -> None:
    Price.objects.filter(pk=price.pk).update(effective_from=timezone.now() - ago)


def test_a_price_is_published_before_it_binds_and_recorded(operator: Actor) -> None:
    price = set_price(by=operator, device_class="cpu", micro_per_device_hour=1_500_000, note="2027")
    assert price.effective_from > timezone.now()
    assert price.effective_from.second == 0
    assert entry("price", price.pk) == PriceEntry(
        id=price.pk,
        device_class="cpu",
        effective_from=price.effective_from.timestamp(),
        micro_per_device_hour=1_500_000,
    )
    with all_tenants("a test"):
        event = AuditEvent.objects.get(action="price.set")
    assert event.after is not None and event.after["micro_per_device_hour"] == 1_500_000


def test_what_was_used_keeps_its_price(operator: Actor) -> None:
    for moment in (timezone.now() - timedelta(days=1), timezone.now()):
        with pytest.raises(Invalid) as caught:
            set_price(by=operator, effective_from=moment)
        assert set(caught.value.errors) == {"effective_from"}


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"micro_per_device_hour": -1}, "micro_per_device_hour"),
        ({"micro_per_million_tokens": 10**16}, "micro_per_million_tokens"),
        ({"device_class": "H 200"}, "device_class"),
        ({"note": "x" * 201}, "note"),
    ],
)
def test_a_wrong_price_is_refused_at_its_field(operator: Actor, values: dict[str, Any], field: str) -> None:
    with pytest.raises(Invalid) as caught:
        set_price(by=operator, **values)
    assert set(caught.value.errors) == {field}


@pytest.mark.parametrize("moment", [timedelta(minutes=5, seconds=7), timedelta(days=4000)])
def test_a_price_begins_with_a_minute_that_somebody_lives_to_see(operator: Actor, moment: timedelta) -> None:
    with pytest.raises(Invalid, match="minute|ten years"):
        set_price(by=operator, effective_from=timezone.now().replace(second=0, microsecond=0) + moment)


def test_a_scope_has_one_price_from_a_moment(operator: Actor) -> None:
    moment = in_minutes(10)
    set_price(by=operator, effective_from=moment)
    with pytest.raises(Invalid) as caught:
        set_price(by=operator, effective_from=moment)
    assert caught.value.errors == {"effective_from": "This scope has a price from that moment already."}


def test_a_price_to_come_is_withdrawn_one_that_binds_is_not(operator: Actor) -> None:
    price = set_price(by=operator, effective_from=in_minutes(10))
    withdraw_price(by=operator, price=price)
    assert entry("price", price.pk) is None
    with pytest.raises(NotFound):
        withdraw_price(by=operator, price=price)
    bound = set_price(by=operator)
    begin(bound, timedelta(minutes=5))
    with pytest.raises(Conflict):
        withdraw_price(by=operator, price=bound)


def test_the_end_of_a_price_is_a_row_of_its_own(operator: Actor) -> None:
    price = set_price(by=operator, device_class="cpu", micro_per_device_hour=5)
    end = end_price(by=operator, price=price, effective_from=in_minutes(60))
    assert (end.device_class, end.is_end, end.micro_per_device_hour) == ("cpu", True, 0)
    published = entry("price", end.pk)
    assert published.is_end and entry("price", price.pk) is not None


def test_who_may_set_prices_is_the_platform_s_business(
    operator: Actor, make_version: Callable[..., Version]
) -> None:
    price = set_price(by=operator)
    make_version("secret")
    Model.objects.filter(name="secret").update(is_public=False)
    hidden = set_price(by=operator, model=Model.objects.get(name="secret"))
    for action in (
        lambda: set_price(by=OUTSIDER),
        lambda: end_price(by=OUTSIDER, price=price),
        lambda: withdraw_price(by=OUTSIDER, price=price),
        lambda: access_price(OUTSIDER, price.pk, Right.MANAGE_PRICES),
    ):
        with pytest.raises(NotAllowed):
            action()
    assert list(visible_prices(OUTSIDER)) == [price]
    with pytest.raises(NotFound):
        access_price(OUTSIDER, hidden.pk)
    assert not visible_prices(Actor.anonymous()).exists()


def test_what_another_price_took_the_place_of_is_retracted_and_a_clock_s_error_later(operator: Actor) -> None:
    old, new = set_price(by=operator, effective_from=in_minutes(1)), set_price(by=operator)
    other = set_price(by=operator, device_class="cpu")
    begin(old, timedelta(hours=9))
    begin(new, timedelta(minutes=30))
    publish.everything()
    assert entry("price", old.pk) is not None, "a clock may be behind"
    begin(new, timedelta(hours=2))
    publish.everything()
    assert entry("price", old.pk) is None
    assert entry("price", new.pk) is not None and entry("price", other.pk) is not None


def test_what_binds_is_the_newest_that_began_in_each_scope() -> None:
    now = timezone.now()
    rows = [
        Price(id=name, device_class=kind, effective_from=now + timedelta(days=day))
        for name, kind, day in (("a", "", -9), ("b", "", -1), ("c", "", 1), ("d", "cpu", -5))
    ]
    assert {price.pk for price in binding_at(rows, now).values()} == {"b", "d"}
    assert {price.pk for price in needed(rows, now)} == {"b", "c", "d"}


# ---------------------------------------------------------------- device classes


def test_a_class_is_what_the_maker_calls_the_device() -> None:
    infos = [
        DeviceInfo(name="cpu", kind="cpu", memory_bytes=1),
        DeviceInfo(name="cuda:0", kind="cuda", memory_bytes=1, product="NVIDIA H200 (80GB)"),
        DeviceInfo(name="cuda:1", kind="cuda", memory_bytes=1),
    ]
    assert [class_of(name, infos) for name in ("cpu", "cuda:0", "cuda:1", "cuda:7")] == [
        "cpu",
        "nvidia-h200-80gb",
        "cuda",
        "cuda",
    ]


def test_gateways_are_told_the_class_of_every_replica(
    make_version: Callable[..., Version], make_host: Callable[..., Host]
) -> None:
    version, host = make_version(), make_host(cuda=1)
    host.devices[1]["product"] = "NVIDIA H200"
    host.save()
    deployment = Deployment.objects.create(model=version.model, version=version, created_by="test")
    for slot, device in enumerate(("cpu", "cuda:0")):
        Replica.objects.create(
            deployment=deployment, version=version, host=host, slot=slot, device=device, address="unix:/r"
        )
    publish.everything()
    published = entry("deployment", deployment.pk)
    assert isinstance(published, DeploymentEntry)
    assert [published.device_classes[spec.id] for spec in published.replicas] == ["cpu", "nvidia-h200"]
    assert known_classes() == ["cpu", "nvidia-h200"]
