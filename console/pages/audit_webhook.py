"""Where a tenant's audit events are sent: state, secrets, what could not be delivered, and the last attempts."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django import forms
from django.contrib import messages
from django.http import HttpResponse
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from console.pages.answers import FORM, POST, FormPage, attempt, go, page, show, try_action
from console.pages.forms import ActionForm, ConfirmForm
from console.pages.keys import OVERLAPS
from console.requests import ConsoleRequest
from tenants.access import require
from tenants.models import AuditDeadLetter, AuditDelivery, AuditWebhook
from tenants.roles import Right
from tenants.scoping import scope_of_row
from tenants.trail.webhooks import actions
from tenants.trail.webhooks.delivery import behind

ATTEMPTS_SHOWN = 20
LETTERS_SHOWN = 50


class WebhookForm(ActionForm):
    url = forms.CharField(
        label=gettext_lazy("Address"),
        max_length=500,
        widget=forms.URLInput(
            attrs={"placeholder": "https://siem.example.org/tidegate", "autocomplete": "off"}
        ),
        help_text=gettext_lazy("It gets a POST for each event, signed as Standard Webhooks says."),
    )


class NewWebhookForm(WebhookForm):
    from_start = forms.BooleanField(
        label=gettext_lazy("Send what happened before, too"),
        required=False,
    )


class RollSecretForm(ActionForm):
    overlap = forms.ChoiceField(
        label=gettext_lazy("The old secret signs for"), choices=list(OVERLAPS.items()), initial="24"
    )

    def values(self) -> dict[str, Any]:
        return {"overlap": timedelta(hours=int(self.cleaned_data["overlap"]))}


@page("audit")
def index(request: ConsoleRequest) -> HttpResponse:
    webhook = actions.webhook_of(request.actor, request.tenant)
    return show(
        request,
        "pages/audit_webhook.html",
        webhook=webhook,
        may_change=actions.may_change(request.actor, request.tenant),
        crumbs=_crumbs()[:1],
        **(_shown(webhook) if webhook else {}),
    )


@page("audit", FORM)
def create(request: ConsoleRequest) -> HttpResponse:
    for right in (Right.EXPORT_AUDIT, Right.EDIT_TENANT):
        require(request.actor, right, request.tenant.pk if request.tenant else None)
    form = NewWebhookForm(request.POST or None)
    made = attempt(form, actions.create_webhook, by=request.actor, tenant=request.tenant)
    if made is not None:
        return _shown_once(request, *made)
    frame = FormPage(
        title=_("New webhook"),
        submit=_("Create webhook"),
        back=_address(),
        intro=_("The secret that receivers verify signatures with is shown once."),
        crumbs=_crumbs(),
    )
    return frame.show(request, form)


@page("audit", FORM)
def edit(request: ConsoleRequest, webhook_id: str) -> HttpResponse:
    webhook = actions.access_webhook(request.actor, webhook_id)
    form = WebhookForm(request.POST or None, initial={"url": webhook.url})
    if attempt(form, actions.update_webhook, by=request.actor, webhook=webhook) is not None:
        return go(request, _address(), _("Saved."))
    frame = FormPage(title=_("Webhook"), submit=_("Save"), back=_address(), crumbs=_crumbs())
    return frame.show(request, form)


@page("audit", FORM)
def roll(request: ConsoleRequest, webhook_id: str) -> HttpResponse:
    webhook = actions.access_webhook(request.actor, webhook_id)
    form = RollSecretForm(request.POST or None)
    made = attempt(form, actions.roll_secret, by=request.actor, webhook=webhook)
    if made is not None:
        return _shown_once(request, *made)
    frame = FormPage(
        title=_("Roll the secret"),
        submit=_("Roll"),
        back=_address(),
        intro=_("Messages carry a signature of each secret until the old one ends."),
        crumbs=_crumbs(),
    )
    return frame.show(request, form)


@page("audit", FORM)
def delete(request: ConsoleRequest, webhook_id: str) -> HttpResponse:
    webhook = actions.access_webhook(request.actor, webhook_id)
    form = ConfirmForm(webhook.url, request.POST or None)
    if attempt(form, actions.delete_webhook, by=request.actor, webhook=webhook) is not None:
        return go(request, _address(), _("The webhook is deleted."))
    frame = FormPage(
        title=_("Delete the webhook"),
        submit=_("Delete"),
        back=_address(),
        intro=_("Nothing is sent there any more. Its dead letters and its log go too."),
        crumbs=_crumbs(),
        is_danger=True,
    )
    return frame.show(request, form)


@page("audit", POST)
def pause(request: ConsoleRequest, webhook_id: str) -> HttpResponse:
    webhook = actions.access_webhook(request.actor, webhook_id)
    return try_action(
        request, _address(), _("Nothing is sent until it is resumed."), actions.pause_webhook, webhook=webhook
    )


@page("audit", POST)
def resume(request: ConsoleRequest, webhook_id: str) -> HttpResponse:
    webhook = actions.access_webhook(request.actor, webhook_id)
    return try_action(
        request, _address(), _("It goes on where it stopped."), actions.resume_webhook, webhook=webhook
    )


@page("audit", POST)
def resend(request: ConsoleRequest, webhook_id: str) -> HttpResponse:
    """One dead letter (`letter`), or all of them."""
    webhook = actions.access_webhook(request.actor, webhook_id)
    typed = str(request.POST.get("letter", ""))
    if typed and not (typed.isascii() and typed.isdigit() and len(typed) < 19):
        messages.error(request, _("There is no such event."))
        return go(request, _address())
    letter = int(typed) if typed else None
    return try_action(
        request,
        _address(),
        _("It is sent again."),
        actions.resend_dead_letters,
        webhook=webhook,
        letter=letter,
    )


def _shown(webhook: AuditWebhook) -> dict[str, Any]:
    with scope_of_row(webhook):
        letters = AuditDeadLetter.objects.filter(webhook_id=webhook.pk)
        return {
            "waiting": sum(behind(webhook).values()),
            "letters": list(letters[:LETTERS_SHOWN]),
            "dead": letters.count(),
            "attempts": list(AuditDelivery.objects.filter(webhook_id=webhook.pk)[:ATTEMPTS_SHOWN]),
        }


def _shown_once(request: ConsoleRequest, webhook: AuditWebhook, secret: str) -> HttpResponse:
    template = "pages/webhook_secret_dialog.html" if request.htmx else "pages/webhook_secret.html"
    answer = show(request, template, webhook=webhook, secret=secret, back=_address())
    answer.headers["Cache-Control"] = "no-store"
    return answer


def _address() -> str:
    return reverse("audit_webhook")


def _crumbs() -> list[tuple[str, str]]:
    return [(_("Audit"), reverse("audit")), (_("Webhook"), _address())]
