"""Prices, in micro-units: what using the platform costs, from which minute on. The past keeps its prices."""

from __future__ import annotations

from typing import Any

from django.urls import reverse
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from console.api.fields import Body, Document, Moment, Ref, Text, Whole
from console.api.schema import Page, Rehearsed, gone, listed, made, shown
from console.api.views import ApiView
from serving.control.catalog.access import access_model_by_id
from serving.control.pricing.access import access_price, visible_prices
from serving.control.pricing.actions import end_price, set_price, withdraw_price
from serving.control.pricing.models import MAX_MICRO, Price
from tenants.access import require
from tenants.roles import Right


class PriceDocument(Document):
    id = serializers.CharField()
    model_name = serializers.CharField(source="model", help_text="Empty for every model.")
    device_class = serializers.CharField(help_text="Empty for every device.")
    effective_from = Moment()
    micro_per_device_hour = serializers.IntegerField()
    micro_per_million_tokens = serializers.IntegerField()
    micro_per_thousand_requests = serializers.IntegerField()
    is_end = serializers.BooleanField(help_text="From then on the next wider price binds.")
    note = serializers.CharField()
    created_by = serializers.CharField()
    created_at = Moment()


class EndBody(Body):
    effective_from = Moment(
        required=False,
        allow_null=True,
        default=None,
        help_text="A whole minute to come; the next by default.",
    )


class PriceBody(EndBody):
    model = Ref("mdl_", allow_null=True, default=None)
    device_class = Text(max_length=63, required=False, allow_blank=True)
    micro_per_device_hour = Whole(max_value=MAX_MICRO, default=0)
    micro_per_million_tokens = Whole(max_value=MAX_MICRO, default=0)
    micro_per_thousand_requests = Whole(max_value=MAX_MICRO, default=0)
    note = Text(max_length=200, required=False, allow_blank=True)


class Prices(ApiView):
    """`/prices`"""

    @listed("list_prices", PriceDocument, Page)
    def get(self, request: Request) -> Response:
        """Prices of the models you may use, newest first."""
        return self.rows(visible_prices(self.actor), PriceDocument)

    @made("set_price", PriceBody, PriceDocument, Rehearsed)
    def post(self, request: Request) -> Response:
        """Price a model (null: all) on a device class (empty: all)."""
        require(self.actor, Right.MANAGE_PRICES)
        values = self.read(PriceBody)
        if values["model"] is not None:
            values["model"] = self.named("model", access_model_by_id, values["model"])
        return self.make(lambda: set_price(by=self.actor, **values), PriceDocument, address_of)


class OnePrice(ApiView):
    """`/prices/{id}`"""

    @shown("get_price", PriceDocument)
    def get(self, request: Request, price_id: str) -> Response:
        """One price."""
        return self.one(access_price(self.actor, price_id), PriceDocument)

    @gone("withdraw_price", Rehearsed)
    def delete(self, request: Request, price_id: str) -> Response:
        """Take back a price that has not begun."""

        def act(price: Price) -> Any:
            return withdraw_price(by=self.actor, price=price)

        return self.remove(
            lambda: access_price(self.actor, price_id, Right.MANAGE_PRICES), act, PriceDocument
        )


class EndPrice(ApiView):
    """`/prices/{id}/end`"""

    @made("end_price", EndBody, PriceDocument)
    def post(self, request: Request, price_id: str) -> Response:
        """From a minute on the price's scope has none of its own; the answer is that end."""
        price = access_price(self.actor, price_id, Right.MANAGE_PRICES)
        values = self.read(EndBody)
        return self.make(lambda: end_price(by=self.actor, price=price, **values), PriceDocument, address_of)


def address_of(price: Price) -> str:
    return reverse("api_price", args=[price.pk])
