"""The price book's page: typed in units of the currency, in force from a minute that comes."""

from __future__ import annotations

from datetime import timedelta

from django.urls import reverse
from django.utils import timezone

from serving.control.pricing.actions import earliest, end_price, set_price
from serving.control.pricing.models import Price
from tests.console.conftest import World
from tests.tenants.conftest import SYSTEM


def typed(**values: object) -> dict[str, object]:
    rates = {
        "micro_per_device_hour": "1.25",
        "micro_per_million_tokens": "0",
        "micro_per_thousand_requests": "0",
    }
    return rates | values


def test_a_price_is_typed_in_units_and_kept_in_micro_units(world: World) -> None:
    response = world.client("operator").post(
        reverse("price_create"), typed(device_class="cpu", micro_per_million_tokens="0.020001", note="autumn")
    )
    assert response.status_code == 302
    price = Price.objects.get()
    assert (price.micro_per_device_hour, price.micro_per_million_tokens) == (1_250_000, 20_001)
    assert (price.device_class, price.model, price.note) == ("cpu", "", "autumn")
    text = world.client("operator").get(reverse("prices")).content.decode()
    assert "To come" in text and "1.25" in text and "No price is in force" in text


def test_a_form_says_at_its_field_what_is_wrong(world: World) -> None:
    client = world.client("operator")
    past = f"{timezone.now() - timedelta(hours=1):%Y-%m-%dT%H:%M}"
    for values, said in (
        ({"effective_from": past}, "A price cannot change what was used already"),
        ({"micro_per_device_hour": "-1"}, "greater than or equal to 0"),
        ({"device_class": "abacus"}, "Select a valid choice"),
    ):
        response = client.post(reverse("price_create"), typed(**values))
        assert response.status_code == 422 and said in response.content.decode()
    assert not Price.objects.exists()


def test_prices_stand_under_in_force_to_come_and_over(world: World) -> None:
    client = world.client("operator")
    for name, ago in (("old", 9), ("new", 1)):
        row = set_price(by=SYSTEM, note=name, effective_from=earliest(timezone.now()) + timedelta(hours=ago))
        Price.objects.filter(pk=row.pk).update(effective_from=timezone.now() - timedelta(days=ago))
    set_price(by=SYSTEM, device_class="cpu", note="soon")
    text = client.get(reverse("prices")).content.decode()
    places = [text.index(word) for word in ("In force", ">new<", "To come", ">soon<", ">Over<", ">old<")]
    assert places == sorted(places)


def test_what_binds_is_ended_and_what_comes_is_withdrawn(world: World) -> None:
    client = world.client("operator")
    row = set_price(by=SYSTEM, model=world.model, micro_per_device_hour=7)
    assert client.post(reverse("price_withdraw", args=[row.pk])).status_code == 302
    row = set_price(by=SYSTEM, model=world.model, micro_per_device_hour=7)
    Price.objects.filter(pk=row.pk).update(effective_from=timezone.now() - timedelta(days=1))
    response = client.post(reverse("price_withdraw", args=[row.pk]))
    assert response.status_code == 422 and "binds already" in response.content.decode()
    assert client.post(reverse("price_end", args=[row.pk])).status_code == 302
    assert Price.objects.filter(is_end=True, model=world.model.name).count() == 1


def test_people_see_prices_of_the_models_they_may_use(world: World) -> None:
    set_price(by=SYSTEM, model=world.model, note="for acme")
    end_price(
        by=SYSTEM,
        price=set_price(by=SYSTEM, note="for all"),
        effective_from=earliest(timezone.now()) + timedelta(hours=1),
    )
    assert "for acme" in world.client("viewer").get(reverse("prices")).content.decode()
    text = world.client("stranger").get(reverse("prices")).content.decode()
    assert "for all" in text and "for acme" not in text
    assert "New price" not in text
