"""Channels are made, tested and removed; what was given up is sent again. Each is recorded."""

from __future__ import annotations

import secrets
from base64 import b64encode
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.validators import validate_email
from django.db import transaction
from django.utils import timezone

from serving.control.alerts import engine
from serving.control.alerts.channels.delivery import Send, send_to
from serving.control.alerts.channels.message import Language, say
from serving.control.alerts.channels.models import AlertChannel, AlertDelivery, ChannelKind
from serving.control.alerts.channels.sealing import seal
from serving.control.alerts.checks import matchers_from
from serving.control.alerts.models import AlertRoute, plain
from serving.control.alerts.notify import Notification, Standing
from tenants.access import require
from tenants.actions.tenants import lock_tenant
from tenants.actors import Actor
from tenants.audit import Target, record
from tenants.errors import Conflict, Invalid, NotFound
from tenants.models import Tenant
from tenants.roles import Right
from tenants.scoping import all_tenants, scope_of_row
from tenants.trail.webhooks.actions import refuse_address
from tenants.trail.webhooks.schedule import Answer
from tenants.validation import save_valid

MAX_CHANNELS = 20
"""Of one tenant, or of the platform."""
MAX_RECIPIENTS = 20
MAX_SECRET_CHARS = 200
SIGNED_BY_THEM = ("feishu", "dingtalk")
"""Kinds whose secret the receiver makes and people paste here."""


def access_channel(actor: Actor, channel_id: str, right: Right = Right.MANAGE_ALERTS) -> AlertChannel:
    """Raises `NotFound` for one the actor does not see, `NotAllowed` without the right where it is."""
    with all_tenants("a gate looks the row up before it can know the tenant"):
        channel = AlertChannel.objects.select_related("tenant").filter(pk=channel_id).first()
    if channel is None or not _sees(actor, channel.tenant_id):
        raise NotFound("alert channel")
    require(actor, right, channel.tenant_id)
    return channel


@transaction.atomic
def create_channel(
    *,
    by: Actor,
    tenant: Tenant | None,
    name: str,
    kind: str,
    address: str,
    secret: str = "",
    language: str = "en",
    matchers: Iterable[Mapping[str, Any]] = (),
) -> tuple[AlertChannel, str]:
    """A channel with its route: it is told of every alert that meets all `matchers`.

    Also the secret that a webhook is signed with, which is seen this once; empty for other kinds. Raises `Invalid`
    by field, `Conflict` where there are `MAX_CHANNELS`.
    """
    require(by, Right.MANAGE_ALERTS, tenant.pk if tenant else None)
    shown, kept = _checked(kind, address, secret)
    made = f"whsec_{b64encode(secrets.token_bytes(32)).decode()}" if kind == "webhook" else ""
    channel = AlertChannel(tenant=tenant, name=name, kind=kind, language=language, created_by=by.name)
    channel.address_sealed, channel.secret_sealed = seal(kept), seal(made or secret)
    channel.shown_address = shown
    asked = list(matchers)
    met = plain(matchers_from(asked)) if asked else []
    if tenant is not None:
        lock_tenant(tenant)
    with scope_of_row(channel):
        if AlertChannel.objects.filter(tenant=tenant).count() >= MAX_CHANNELS:
            raise Conflict(f"There are at most {MAX_CHANNELS} channels here.")
        save_valid(channel)
        AlertRoute.objects.create(
            tenant=tenant, name=name, receivers=[channel.pk], matchers=met, created_by=by.name
        )
    _record(by, "created", channel, after={**facts_of(channel), "matchers": met})
    return channel, made


@transaction.atomic
def delete_channel(*, by: Actor, channel: AlertChannel) -> None:
    """Nothing is told there any more; its log goes too. The trail keeps that it was."""
    require(by, Right.MANAGE_ALERTS, channel.tenant_id)
    with scope_of_row(channel):
        found = AlertChannel.objects.select_for_update(of=("self",)).filter(pk=channel.pk).first()
        if found is None:
            raise NotFound("alert channel")
        AlertRoute.objects.filter(receivers=[channel.pk]).delete()
        found.delete()
    _record(by, "deleted", channel, before=facts_of(channel))


def test_channel(*, by: Actor, channel: AlertChannel, send: Send = send_to) -> Answer:
    """Send a message that says it is a test, at once and once; what the receiver said."""
    require(by, Right.MANAGE_ALERTS, channel.tenant_id)
    answer = send(channel, a_test(channel, timezone.now().timestamp()))
    after = {"arrived": answer.is_success, "status": answer.status}
    _record(by, "tested", channel, after=after)
    return answer


test_channel.__test__ = False  # type: ignore[attr-defined]


@transaction.atomic
def resend(*, by: Actor, channel: AlertChannel) -> int:
    """What was given up is tried anew, with every attempt; how many. Raises `Conflict` where there is none."""
    require(by, Right.MANAGE_ALERTS, channel.tenant_id)
    with scope_of_row(channel):
        dead = AlertDelivery.objects.filter(channel=channel, state="dead")
        again = dead.update(state="waiting", attempts=0, next_attempt_at=timezone.now())
    if not again:
        raise Conflict("There is nothing to send again.")
    _record(by, "sent_again", channel, after={"notifications": again})
    return again


def facts_of(channel: AlertChannel) -> dict[str, Any]:
    return {
        "name": channel.name,
        "kind": channel.kind,
        "language": channel.language,
        "address": channel.shown_address,
    }


def a_test(channel: AlertChannel, now_s: float) -> Notification:
    alert = engine.Alert(
        fingerprint="0" * 16, labels={}, state="resolved", since=now_s, fired_at=now_s, resolved_at=now_s
    )
    language: Language = "zh-hans" if channel.language == "zh-hans" else "en"
    standing = Standing(
        alert=alert,
        rule_id="",
        rule_name="Test",
        severity="info",
        labels={"alert": "Test", "severity": "info"},
        summary=say(language, "test"),
    )
    return Notification(
        id=f"ntf_test_{secrets.token_hex(8)}",
        receiver=channel.pk,
        route_id="",
        group_key="test",
        group_labels={"alert": "Test"},
        reason="fired",
        alerts=(standing,),
        left_out=0,
        news=(),
        at=now_s,
    )


def _checked(kind: str, address: str, secret: str) -> tuple[str, str]:
    """What of the address is shown, and what is kept. Raises `Invalid`."""
    if kind not in ChannelKind.values:
        raise Invalid({"kind": f"One of {', '.join(ChannelKind.values)}."})
    if secret and kind not in SIGNED_BY_THEM:
        raise Invalid({"secret": "Only Feishu and DingTalk robots have a secret of their own."})
    if len(secret) > MAX_SECRET_CHARS:
        raise Invalid({"secret": f"At most {MAX_SECRET_CHARS} characters."})
    return _recipients(address) if kind == "email" else _url(address)


def _url(address: str) -> tuple[str, str]:
    refuse_address(address, "address")
    return f"{urlsplit(address).hostname}/…"[:300], address


def _recipients(address: str) -> tuple[str, str]:
    if not settings.SENDS_MAIL:
        raise Invalid({"kind": "No mail server is set up (TIDEGATE_EMAIL_URL)."})
    each = [one.strip() for one in address.split(",") if one.strip()]
    if not 1 <= len(each) <= MAX_RECIPIENTS:
        raise Invalid({"address": f"From one to {MAX_RECIPIENTS} addresses, separated by commas."})
    try:
        for one in each:
            validate_email(one)
    except ValidationError as error:
        raise Invalid({"address": "An address of mail is not one."}) from error
    kept = ",".join(each)
    return (kept if len(kept) <= 300 else f"{kept[:299]}…"), kept


def _sees(actor: Actor, tenant_id: str | None) -> bool:
    return actor.has(Right.VIEW_PLATFORM) if tenant_id is None else actor.has(Right.VIEW, tenant_id)


def _record(by: Actor, done: str, channel: AlertChannel, **facts: Any) -> None:
    target = Target("alert_channel", channel.pk, channel.name[:200])
    record(by=by, action=f"alert_channel.{done}", target=target, tenant=channel.tenant, **facts)
