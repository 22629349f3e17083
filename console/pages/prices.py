"""The price book: what binds now, what will, and what did."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Any

from django import forms
from django.http import HttpResponse
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from console.pages.answers import FORM, FormPage, attempt, go, page, show
from console.pages.forms import ActionForm
from console.requests import ConsoleRequest
from serving.control.catalog.models import Model, Version
from serving.control.pricing.access import access_price, visible_prices
from serving.control.pricing.actions import NOTICE, end_price, set_price, withdraw_price
from serving.control.pricing.classes import known_classes
from serving.control.pricing.current import binding_at
from serving.control.pricing.models import RATES
from tenants.access import require
from tenants.roles import Right

MICRO = 1_000_000
PAST_ROWS = 50


class RateField(forms.DecimalField):
    """Units of the currency, to the millionth."""

    def __init__(self, label: Any, help_text: Any = "") -> None:
        super().__init__(
            label=label,
            help_text=help_text,
            min_value=0,
            max_digits=15,
            decimal_places=6,
            initial=Decimal(0),
        )


class MomentForm(ActionForm):
    """From when on."""

    effective_from = forms.DateTimeField(
        label=gettext_lazy("From"),
        required=False,
        widget=forms.DateTimeInput(attrs={"type": "datetime-local"}, format="%Y-%m-%dT%H:%M"),
        help_text=gettext_lazy("In UTC. Empty: from the next minute. What was used already keeps its price."),
    )


class PriceForm(MomentForm):
    """One scope and its rates, typed in units of the currency."""

    units = {
        "micro_per_device_hour": gettext_lazy("per device-hour"),
        "micro_per_million_tokens": gettext_lazy("per million tokens"),
        "micro_per_thousand_requests": gettext_lazy("per thousand requests"),
    }

    model = forms.ModelChoiceField(
        label=gettext_lazy("Model"),
        queryset=Model.objects.none(),
        required=False,
        empty_label=gettext_lazy("Every model"),
    )
    device_class = forms.ChoiceField(
        label=gettext_lazy("Device class"),
        required=False,
        help_text=gettext_lazy(
            "The narrowest price binds: model on a class, then model, then class, then everything."
        ),
    )
    micro_per_device_hour = RateField(
        label=gettext_lazy("Device time"),
        help_text=gettext_lazy("Each request is charged its share of device time at this price."),
    )
    micro_per_million_tokens = RateField(label=gettext_lazy("Tokens"))
    micro_per_thousand_requests = RateField(
        label=gettext_lazy("Requests"),
        help_text=gettext_lazy("Tokens and requests are charged when they were answered."),
    )
    note = forms.CharField(label=gettext_lazy("Note"), max_length=200, required=False)

    field_order = ("model", "device_class", *RATES, "effective_from", "note")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["model"].queryset = Model.objects.order_by("name")  # type: ignore[attr-defined]
        choices = [("", _("Every device")), *((name, name) for name in known_classes())]
        self.fields["device_class"].choices = choices  # type: ignore[attr-defined]

    def values(self) -> dict[str, Any]:
        return {**self.cleaned_data, **{name: int(self.cleaned_data[name] * MICRO) for name in RATES}}


@page("prices")
def index(request: ConsoleRequest) -> HttpResponse:
    now = timezone.now()
    rows = list(visible_prices(request.actor, request.tenant.pk if request.tenant else None))
    bound = {price.pk for price in binding_at(rows, now).values()}
    return show(
        request,
        "pages/prices.html",
        current=[price for price in rows if price.pk in bound and not price.is_end],
        coming=sorted((p for p in rows if not p.has_begun(now)), key=lambda p: p.effective_from),
        past=[p for p in rows if p.has_begun(now) and (p.pk not in bound or p.is_end)][:PAST_ROWS],
        own=_versions_with_prices(request),
        may_manage=request.actor.has(Right.MANAGE_PRICES),
        withdrawable_from=now + NOTICE,
    )


@page("prices", FORM)
def create(request: ConsoleRequest) -> HttpResponse:
    require(request.actor, Right.MANAGE_PRICES)
    form = PriceForm(request.POST or None)
    price = attempt(form, set_price, by=request.actor)
    if price is not None:
        return go(request, reverse("prices"), _begins(price.effective_from))
    frame = FormPage(
        title=_("New price"),
        submit=_("Set price"),
        back=reverse("prices"),
        crumbs=[(_("Prices"), reverse("prices"))],
    )
    return frame.show(request, form)


@page("prices", FORM)
def end(request: ConsoleRequest, price_id: str) -> HttpResponse:
    price = access_price(request.actor, price_id, Right.MANAGE_PRICES)
    form = MomentForm(_posted(request))
    ended = attempt(form, end_price, by=request.actor, price=price)
    if ended is not None:
        return go(request, reverse("prices"), _begins(ended.effective_from))
    frame = FormPage(
        title=_("End the price of %(scope)s") % {"scope": price.scope_text},
        submit=_("End price"),
        back=reverse("prices"),
        intro=_("From then on the next wider price binds, or none."),
        crumbs=[(_("Prices"), reverse("prices"))],
    )
    return frame.show(request, form)


@page("prices", FORM)
def withdraw(request: ConsoleRequest, price_id: str) -> HttpResponse:
    price = access_price(request.actor, price_id, Right.MANAGE_PRICES)
    form = ActionForm(_posted(request))

    def confirmed() -> bool:
        withdraw_price(by=request.actor, price=price)
        return True

    if attempt(form, confirmed):
        return go(request, reverse("prices"), _("The price is withdrawn; nobody was charged it."))
    frame = FormPage(
        title=_("Withdraw the price of %(scope)s") % {"scope": price.scope_text},
        submit=_("Withdraw"),
        back=reverse("prices"),
        crumbs=[(_("Prices"), reverse("prices"))],
        is_danger=True,
    )
    return frame.show(request, form)


def _versions_with_prices(request: ConsoleRequest) -> list[Version]:
    """Versions whose own price takes the place of the book's, as far as they are in use."""
    if not request.actor.has(Right.VIEW_PLATFORM):
        return []
    rows = Version.objects.select_related("model").filter(
        price_micro_per_device_hour__gt=0, deployments__state="active"
    )
    return list(rows.order_by("model__name", "number").distinct())


def _posted(request: ConsoleRequest) -> Any:
    """A form without a value to give is sent all the same."""
    return request.POST if request.method == "POST" else None


def _begins(moment: datetime) -> str:
    return _("Binds from %(moment)s UTC on, at every gateway.") % {"moment": f"{moment:%Y-%m-%d %H:%M}"}
