"""What the controller wrote arrives once, is tried again where that may help, and is given up where it cannot."""

from __future__ import annotations

import hmac
import socket
import threading
from base64 import b64decode
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from django.core import mail
from django.utils import timezone

from serving.control.alerts.channels import actions
from serving.control.alerts.channels.delivery import deliver_due, send_to
from serving.control.alerts.channels.models import AlertChannel, AlertDelivery
from serving.control.alerts.models import AlertNotification, AlertRoute, plain
from serving.control.alerts.notify import Notification
from tenants.errors import Conflict, Invalid, NotAllowed, NotFound
from tenants.scoping import all_tenants
from tenants.trail.webhooks.schedule import Answer
from tests.serving.control.alerts.channels.test_render import told
from tests.tenants.conftest import Cast, last_event, team

__all__ = ["team"]

pytestmark = pytest.mark.django_db

URL = "https://receiver.invalid/in?key=hidden"
NOW = timezone.now()


@pytest.fixture
def scoped(team: Cast) -> Iterator[Cast]:
    with all_tenants("a test"):
        yield team


def make(cast: Cast, kind: str = "webhook", address: str = URL, **values: str) -> AlertChannel:
    asked = {"by": cast.actor("owner"), "tenant": cast.tenant, "name": "ops"}
    return actions.create_channel(**asked, kind=kind, address=address, **values)[0]


def write(channel: AlertChannel) -> AlertNotification:
    body = msgspec.structs.replace(told(), id="ntf_00000000000000aa", receiver=channel.pk)
    return AlertNotification.objects.create(
        tenant_id=channel.tenant_id,
        route_id="art_1",
        receiver=channel.pk,
        reason="fired",
        body=plain(body),
    )


class Receiver:
    """Answers each message with the next of `answers`, the last one again and again."""

    def __init__(self, *answers: int | None) -> None:
        self.answers, self.came = list(answers), list[str]()

    def __call__(self, channel: AlertChannel, notification: Notification) -> Answer:
        self.came.append(notification.id)
        status = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return Answer(status, "" if status else "It could not be reached.")


def test_a_notification_arrives_once(scoped: Cast) -> None:
    write(make(scoped))
    receiver = Receiver(204)
    assert deliver_due(NOW, receiver) == 1
    assert deliver_due(NOW + timedelta(days=1), receiver) == 0
    assert len(receiver.came) == 1
    assert AlertDelivery.objects.get().state == "delivered"


@pytest.mark.parametrize("status", [None, 500, 503, 429, 408])
def test_what_may_pass_is_tried_again_later_under_the_same_id(scoped: Cast, status: int | None) -> None:
    write(make(scoped))
    receiver = Receiver(status, 200)
    assert deliver_due(NOW, receiver) == 0
    assert deliver_due(NOW, receiver) == 0, "not before its back-off is over"
    assert deliver_due(NOW + timedelta(minutes=1), receiver) == 1
    assert len(receiver.came) == 2 and len(set(receiver.came)) == 1


@pytest.mark.parametrize("status", [400, 401, 404, 410])
def test_what_is_refused_is_given_up_and_can_be_sent_again(scoped: Cast, status: int) -> None:
    channel = make(scoped)
    write(channel)
    receiver = Receiver(status, 200)
    deliver_due(NOW, receiver)
    assert AlertDelivery.objects.get().state == "dead"
    assert actions.resend(by=scoped.actor("owner"), channel=channel) == 1
    assert deliver_due(timezone.now() + timedelta(seconds=1), receiver) == 1
    with pytest.raises(Conflict):
        actions.resend(by=scoped.actor("owner"), channel=channel)


def test_who_never_answers_is_given_up_after_eight_attempts(scoped: Cast) -> None:
    write(make(scoped))
    receiver = Receiver(500)
    for day in range(10):
        deliver_due(NOW + timedelta(days=day), receiver)
    assert len(receiver.came) == 8
    assert AlertDelivery.objects.get().state == "dead"


def test_what_somebody_sends_now_is_left_alone_until_the_lease_is_over(scoped: Cast) -> None:
    write(make(scoped))
    receiver = Receiver(500, 200)
    deliver_due(NOW, receiver)
    later = NOW + timedelta(minutes=1)
    AlertDelivery.objects.update(leased_until=later + timedelta(seconds=1))
    assert deliver_due(later, receiver) == 0
    assert deliver_due(later + timedelta(seconds=2), receiver) == 1


def test_a_notification_for_a_channel_that_is_gone_or_anothers_goes_nowhere(scoped: Cast) -> None:
    channel = make(scoped)
    write(channel)
    AlertNotification.objects.update(tenant_id=None)
    assert deliver_due(NOW, Receiver(200)) == 0
    actions.delete_channel(by=scoped.actor("owner"), channel=channel)
    assert not AlertRoute.objects.filter(receivers=[channel.pk]).exists()
    write(channel)
    assert deliver_due(NOW, Receiver(200)) == 0
    assert not AlertNotification.objects.filter(taken_at=None).exists()


def test_a_real_receiver_can_verify_the_signature(scoped: Cast, settings: Any) -> None:
    settings.WEBHOOK_ALLOW_PRIVATE = True
    with Listening(b"HTTP/1.1 204 No Content\r\n\r\n") as (url, came):
        asked = {"by": scoped.actor("owner"), "tenant": scoped.tenant, "name": "ops", "kind": "webhook"}
        channel, secret = actions.create_channel(**asked, address=url)
        assert actions.test_channel(by=scoped.actor("owner"), channel=channel).is_success
    head, _, body = came[0].partition(b"\r\n\r\n")
    headers = dict(line.split(b": ", 1) for line in head.split(b"\r\n")[1:])
    signed = b".".join((headers[b"webhook-id"], headers[b"webhook-timestamp"], body))
    mark = hmac.digest(b64decode(secret.removeprefix("whsec_")), signed, "sha256")
    assert b64decode(headers[b"webhook-signature"].removeprefix(b"v1,")) == mark


@pytest.mark.parametrize(
    ("said", "arrived"), [(b'{"errcode":0}', True), (b'{"errcode":93000,"errmsg":"no"}', False)]
)
def test_a_robots_refusal_with_status_200_is_no_arrival(
    scoped: Cast, settings: Any, said: bytes, arrived: bool
) -> None:
    settings.WEBHOOK_ALLOW_PRIVATE = True
    with Listening(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n" + said) as (url, _):
        answer = send_to(make(scoped, "wecom", url), told())
    assert answer.is_success is arrived
    assert arrived or answer.error == "It answered 93000: no"


def test_a_mail_goes_to_every_address(scoped: Cast, settings: Any) -> None:
    settings.SENDS_MAIL = True
    write(make(scoped, "email", "a@example.com, b@example.com"))
    assert deliver_due(NOW) == 1
    assert mail.outbox[0].to == ["a@example.com", "b@example.com"]


def test_nothing_secret_is_stored_readably_shown_or_recorded(scoped: Cast) -> None:
    channel = make(scoped, "dingtalk", secret="SECabc")
    row = AlertChannel.objects.filter(pk=channel.pk).values().get()
    for text in (str(row), str(last_event().after)):
        assert "hidden" not in text and "SECabc" not in text
    assert channel.shown_address == "receiver.invalid/…"


@pytest.mark.parametrize(
    ("kind", "address", "secret"),
    [
        ("pager", URL, ""),
        ("slack", "http://receiver.invalid/", ""),
        ("slack", "https://127.0.0.1/", ""),
        ("wecom", URL, "unused"),
        ("email", "nobody", ""),
    ],
)
def test_what_is_no_channel_is_refused(scoped: Cast, kind: str, address: str, secret: str) -> None:
    with pytest.raises(Invalid):
        make(scoped, kind, address, secret=secret)


def test_only_who_manages_alerts_makes_channels_and_a_stranger_sees_none(scoped: Cast) -> None:
    channel = make(scoped)
    with pytest.raises(NotAllowed):
        actions.create_channel(by=scoped.actor("owner"), tenant=None, name="all", kind="webhook", address=URL)
    with pytest.raises(NotFound):
        actions.access_channel(scoped.actor("stranger"), channel.pk)


class Listening:
    """One receiver on loopback that answers one message."""

    def __init__(self, answer: bytes) -> None:
        self._answer, self._came = answer, list[bytes]()
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def __enter__(self) -> tuple[str, list[bytes]]:
        self._thread.start()
        return f"http://127.0.0.1:{self._socket.getsockname()[1]}/", self._came

    def __exit__(self, *_: object) -> None:
        self._thread.join(5)
        self._socket.close()

    def _serve(self) -> None:
        connection, _ = self._socket.accept()
        with connection:
            read = b""
            while b"\r\n\r\n" not in read or not read.endswith(b"}"):
                read += connection.recv(65536)
            self._came.append(read)
            connection.sendall(self._answer)
