"""Delivers notifications, each at least once under one id, with back-off; those given up lie as dead letters.

What is sent, when again and what an answer means is pure (the kinds' modules, `tenants.trail.webhooks.schedule`).
"""

from __future__ import annotations

import random
import time
from base64 import b64decode
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from email.utils import parseaddr
from smtplib import SMTPException
from typing import cast

import structlog
from django.conf import settings
from django.core.mail import EmailMultiAlternatives
from django.db import transaction
from django.db.models import Q, QuerySet
from django.utils import timezone

from serving.control.alerts.channels import dingtalk, email, feishu, slack, webhook, wecom
from serving.control.alerts.channels.message import Language
from serving.control.alerts.channels.models import MAX_ERROR_CHARS, AlertChannel, AlertDelivery
from serving.control.alerts.channels.post import Post
from serving.control.alerts.channels.sealing import unseal
from serving.control.alerts.models import AlertNotification
from serving.control.alerts.notify import Notification
from tenants.scoping import all_tenants
from tenants.trail.webhooks.post import post
from tenants.trail.webhooks.schedule import Answer, Delivered, Retry, verdict

log = structlog.get_logger(__name__)

TICK_S = 4.0
LEASE = timedelta(seconds=60)
"""Longer than one exchange: a name's resolution and `post.TIMEOUT_S`, or mail's timeouts."""
ANSWER_BYTES = 4096
TAKEN_AT_ONCE = 200
_TRY_AGAIN = (408, 425, 429)
_ROBOTS = {"feishu": feishu.answer, "dingtalk": dingtalk.answer, "wecom": wecom.answer}
_WHY = "channels of every tenant, and of the platform, are delivered to"
Send = Callable[[AlertChannel, Notification], Answer]


def deliver_due(now: datetime, send: Send | None = None) -> int:
    """Take over what the controller wrote and attempt what is due, the oldest first; how many arrived."""
    until, arrived = time.monotonic() + TICK_S, 0
    with all_tenants(_WHY):
        _take_over(now)
        for delivery_id in list(_due(now).values_list("pk", flat=True)[:TAKEN_AT_ONCE]):
            if time.monotonic() >= until:
                break
            arrived += _attempt(delivery_id, now, send or send_to)
    return arrived


def send_to(channel: AlertChannel, notification: Notification) -> Answer:
    """One exchange, or one mail. Never raises for what a receiver does."""
    try:
        address, secret = unseal(channel.address_sealed), unseal(channel.secret_sealed)
    except ValueError as error:
        return Answer(None, str(error))
    if channel.kind == "email":
        return _mailed(notification, address, cast(Language, channel.language))
    sent = _rendered(channel, notification, address, secret)
    answer = post(sent.url, sent.body, sent.headers, settings.WEBHOOK_ALLOW_PRIVATE, ANSWER_BYTES)
    if answer.is_success and (read := _ROBOTS.get(channel.kind)) and (said := read(answer.body)).error:
        return replace(answer, status=429 if said.is_busy else 400, error=said.error)
    return answer


def _rendered(channel: AlertChannel, notification: Notification, url: str, secret: str) -> Post:
    language, now_s = cast(Language, channel.language), time.time()
    if channel.kind == "slack":
        return slack.render(notification, url, language)
    if channel.kind == "feishu":
        return feishu.render(notification, url, language, secret, now_s)
    if channel.kind == "dingtalk":
        return dingtalk.render(notification, url, language, secret, now_s)
    if channel.kind == "wecom":
        return wecom.render(notification, url, language)
    return webhook.render(
        notification, url, channel.name, "", [b64decode(secret.removeprefix("whsec_"))], now_s
    )


def _mailed(notification: Notification, address: str, language: Language) -> Answer:
    begun = time.monotonic()
    host = parseaddr(settings.DEFAULT_FROM_EMAIL)[1].partition("@")[2] or "localhost"
    mail = email.render(notification, tuple(address.split(",")), language, host)
    message = EmailMultiAlternatives(
        mail.subject, mail.text, to=list(mail.to), headers={"Message-ID": mail.message_id}
    )
    message.attach_alternative(mail.html, "text/html")
    try:
        message.send()
    except (SMTPException, OSError) as error:
        return Answer(None, f"The mail server did not take it ({type(error).__name__}).")
    return Answer(250, "", int((time.monotonic() - begun) * 1000))


@transaction.atomic
def _take_over(now: datetime) -> None:
    """A notification for a channel that is gone goes nowhere."""
    waiting = AlertNotification.objects.select_for_update(skip_locked=True, of=("self",))
    taken = list(waiting.filter(taken_at__isnull=True).order_by("created_at")[:TAKEN_AT_ONCE])
    channels = AlertChannel.objects.in_bulk([each.receiver for each in taken])
    AlertDelivery.objects.bulk_create(
        AlertDelivery(notification=each, channel=found, tenant_id=found.tenant_id, next_attempt_at=now)
        for each in taken
        if (found := channels.get(each.receiver)) is not None and found.tenant_id == each.tenant_id
    )
    AlertNotification.objects.filter(pk__in=[each.pk for each in taken]).update(taken_at=now)


def _due(now: datetime) -> QuerySet[AlertDelivery]:
    free = Q(leased_until__isnull=True) | Q(leased_until__lte=now)
    return AlertDelivery.objects.filter(free, state="waiting", next_attempt_at__lte=now).order_by(
        "next_attempt_at", "pk"
    )


def _attempt(delivery_id: int, now: datetime, send: Send) -> bool:
    """Whoever dies in between leaves a lease: it is sent again under the same id when that is over."""
    lease = timezone.now() + LEASE
    if not _due(now).filter(pk=delivery_id).update(leased_until=lease):
        return False
    delivery = AlertDelivery.objects.select_related("channel", "notification").get(pk=delivery_id)
    answer = send(delivery.channel, delivery.notification.notification())
    noted = _noted(delivery, answer, now)
    AlertDelivery.objects.filter(pk=delivery_id, leased_until=lease).update(leased_until=None, **noted)
    if noted["state"] == "dead":
        log.warning("alerts.delivery_gave_up", channel=delivery.channel_id, error=noted["error"])
    return answer.is_success


def _noted(delivery: AlertDelivery, answer: Answer, now: datetime) -> dict[str, object]:
    what = verdict(answer, delivery.attempts, now, random.random())
    is_refused = answer.status is not None and 400 <= answer.status < 500 and answer.status not in _TRY_AGAIN
    state = "delivered" if isinstance(what, Delivered) else "dead"
    is_again = isinstance(what, Retry) and not is_refused
    return {
        "state": "waiting" if is_again else state,
        "next_attempt_at": what.at if isinstance(what, Retry) and is_again else now,
        "attempts": delivery.attempts + 1,
        "status": answer.status,
        "error": "" if answer.is_success else answer.sentence()[:MAX_ERROR_CHARS],
        "took_ms": answer.took_ms,
        "tried_at": now,
    }
