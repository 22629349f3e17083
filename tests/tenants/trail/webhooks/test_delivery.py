"""Each event arrives at least once and in order; what does not arrive is not lost."""

from __future__ import annotations

import base64
import hmac
import json
from collections.abc import Mapping
from datetime import datetime, timedelta
from hashlib import sha256

import pytest
from django.utils import timezone

from tenants.actions.tenants import update_tenant
from tenants.errors import Conflict, Invalid, NotAllowed, NotFound
from tenants.models import AuditEvent, AuditLink, AuditSinkCursor
from tenants.scoping import all_tenants
from tenants.trail.webhooks import delivery
from tenants.trail.webhooks.actions import (
    access_webhook,
    create_webhook,
    delete_webhook,
    pause_webhook,
    resend_dead_letters,
    resume_webhook,
    roll_secret,
    update_webhook,
)
from tenants.trail.webhooks.models import AuditDeadLetter, AuditDelivery, AuditWebhook
from tenants.trail.webhooks.schedule import MAX_ATTEMPTS, Answer
from tests.tenants.conftest import SYSTEM, Cast, last_event
from tests.tenants.trail.test_chain import chain_now

URL = "https://siem.example.org/in"


@pytest.fixture(autouse=True)
def _time_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """A turn ends when nothing is left, however slow this machine is."""
    monkeypatch.setattr(delivery, "TURN_S", 600.0)
    monkeypatch.setattr(delivery, "TICK_S", 600.0)


class Receiver:
    """Keeps what it is sent and answers as told; 200 when told nothing."""

    def __init__(self, *answers: int | None) -> None:
        self.answers = list(answers)
        self.came: list[tuple[dict[str, str], bytes]] = []

    def __call__(self, url: str, body: bytes, headers: Mapping[str, str], allow_private: bool) -> Answer:
        self.came.append((dict(headers), body))
        status = self.answers.pop(0) if self.answers else 200
        return Answer(status, "" if status else "It did not answer in time.", 3)

    def positions(self) -> list[tuple[str, int]]:
        data = [json.loads(body)["data"] for _, body in self.came]
        return [(each["chain"], each["position"]) for each in data]


def tick(receiver: Receiver, now: datetime | None = None) -> int:
    chain_now()
    return delivery.deliver_due(now or timezone.now(), receiver)


def fresh(webhook: AuditWebhook) -> AuditWebhook:
    with all_tenants("a test"):
        return AuditWebhook.objects.get(pk=webhook.pk)


def overdue(webhook: AuditWebhook) -> None:
    """The back-off is over."""
    with all_tenants("a test"):
        AuditWebhook.objects.filter(pk=webhook.pk).update(next_attempt_at=timezone.now())


def made(team: Cast, *, from_start: bool = True) -> tuple[AuditWebhook, str]:
    chain_now()
    return create_webhook(by=SYSTEM, tenant=team.tenant, url=URL, from_start=from_start)


def is_signed(headers: Mapping[str, str], body: bytes, secret: str) -> bool:
    """As a receiver would, from the standard's words."""
    key = base64.b64decode(secret.removeprefix("whsec_"))
    text = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    wanted = "v1," + base64.b64encode(hmac.new(key, text, sha256).digest()).decode()
    return wanted in headers["webhook-signature"].split(" ")


def test_every_event_of_the_tenant_arrives_in_the_order_of_its_chain_and_proves_itself(team: Cast) -> None:
    webhook, secret = made(team)
    receiver = Receiver()
    tick(receiver)
    ours = AuditLink.objects.filter(chain=team.tenant.pk).count()
    assert receiver.positions() == [(team.tenant.pk, n) for n in range(1, ours + 1)]
    previous = bytes(32)
    for headers, body in receiver.came:
        record = body.partition(b'"record":')[2][:-2]
        previous = sha256(previous + record).digest()
        said = json.loads(body)["data"]
        assert said["hash"] == previous.hex() and said["record"]["event_id"] == headers["webhook-id"]
        assert is_signed(headers, body, secret)
    assert tick(receiver) == 0
    assert (fresh(webhook).state, fresh(webhook).delivered) == ("active", ours)


def test_without_the_wish_for_more_only_new_events_are_sent(team: Cast) -> None:
    made(team, from_start=False)
    receiver = Receiver()
    tick(receiver)
    with all_tenants("a test"):
        actions = [
            AuditEvent.objects.get(event_id=headers["webhook-id"]).action for headers, _ in receiver.came
        ]
    assert actions == ["audit_webhook.created"]


def test_the_platforms_gets_every_chain(team: Cast) -> None:
    chain_now()
    create_webhook(by=SYSTEM, tenant=None, url=URL, from_start=True)
    receiver = Receiver()
    tick(receiver)
    assert len(receiver.came) == AuditLink.objects.count()
    assert {chain for chain, _ in receiver.positions()} == {team.tenant.pk, team.other.pk, "platform"}


def test_a_failure_is_tried_again_later_and_blocks_what_follows(team: Cast) -> None:
    webhook, _ = made(team)
    receiver = Receiver(200, 500)
    assert tick(receiver) == 1
    state = fresh(webhook)
    assert (state.state, state.attempts, state.last_error) == ("failing", 1, "It answered with status 500.")
    assert tick(receiver) == 0 and len(receiver.came) == 2  # the back-off runs
    overdue(webhook)
    tick(receiver)
    assert [position for _, position in receiver.positions()][:4] == [1, 2, 2, 3]
    assert receiver.came[1][0]["webhook-id"] == receiver.came[2][0]["webhook-id"]
    assert fresh(webhook).state == "active"


def test_after_the_last_attempt_an_event_is_a_dead_letter_and_the_next_one_is_sent(team: Cast) -> None:
    webhook, _ = made(team)
    receiver = Receiver(*[None] * MAX_ATTEMPTS)
    for _ in range(MAX_ATTEMPTS):
        overdue(webhook)
        tick(receiver)
    with all_tenants("a test"):
        letter = AuditDeadLetter.objects.get()
    assert (letter.position, letter.attempts, letter.error) == (1, MAX_ATTEMPTS, "It did not answer in time.")
    tick(receiver)
    assert receiver.positions()[MAX_ATTEMPTS:][0] == (team.tenant.pk, 2)
    assert fresh(webhook).state == "active"
    before = len(receiver.came)
    assert resend_dead_letters(by=SYSTEM, webhook=webhook, letter=letter.pk) == 1
    with pytest.raises(Conflict):
        resend_dead_letters(by=SYSTEM, webhook=webhook)
    tick(receiver)
    assert receiver.positions()[before] == (team.tenant.pk, 1)
    with all_tenants("a test"):
        assert not AuditDeadLetter.objects.exists()


def test_a_dead_letter_that_fails_again_stays(team: Cast) -> None:
    webhook, _ = made(team, from_start=False)
    tick(Receiver())
    with all_tenants("a test"):
        event = AuditLink.objects.get(chain=team.tenant.pk, position=1)
        letter = AuditDeadLetter.objects.create(
            webhook_id=webhook.pk,
            tenant_id=team.tenant.pk,
            chain=event.chain,
            position=1,
            event_id="evt_x",
            attempts=8,
            dead_at=timezone.now(),
        )
    resend_dead_letters(by=SYSTEM, webhook=webhook)
    tick(Receiver(503))
    with all_tenants("a test"):
        letter.refresh_from_db()
    assert (letter.is_asked_again, letter.attempts, letter.error) == (
        False,
        9,
        "It answered with status 503.",
    )


def test_gone_pauses_it_and_says_so_in_the_trail(team: Cast) -> None:
    webhook, _ = made(team)
    receiver = Receiver(410)
    tick(receiver)
    assert fresh(webhook).state == "paused"
    assert (last_event().action, last_event().outcome) == ("audit_webhook.paused", "failure")
    assert tick(receiver) == 0 and len(receiver.came) == 1
    resume_webhook(by=SYSTEM, webhook=webhook)
    tick(receiver)
    assert receiver.positions()[1] == (team.tenant.pk, 1)  # the event was not lost


def test_while_a_secret_is_rolled_messages_carry_both_signatures(team: Cast) -> None:
    webhook, old = made(team)
    _, new = roll_secret(by=SYSTEM, webhook=webhook, overlap=timedelta(hours=1))
    receiver = Receiver()
    tick(receiver)
    headers, body = receiver.came[0]
    assert is_signed(headers, body, old) and is_signed(headers, body, new) and old != new
    _, newest = roll_secret(by=SYSTEM, webhook=webhook, overlap=timedelta())
    tick(receiver)
    headers, body = receiver.came[-1]
    assert is_signed(headers, body, newest)
    assert not is_signed(headers, body, old) and not is_signed(headers, body, new)


def test_no_secret_is_in_the_database_or_the_trail(team: Cast) -> None:
    webhook, secret = made(team)
    bare = secret.removeprefix("whsec_")
    with all_tenants("a test"):
        rows = [str(list(model.objects.values())) for model in (AuditEvent, AuditWebhook)]
    assert not any(bare in text or base64.b64decode(bare).hex() in text for text in rows)
    assert webhook.secrets[0]["salt"] in rows[1]


def test_when_the_key_behind_the_secrets_is_another_it_pauses(team: Cast, settings: object) -> None:
    webhook, _ = made(team)
    settings.AUDIT_KEY = b"another key altogether"  # type: ignore[attr-defined]
    receiver = Receiver()
    tick(receiver)
    assert receiver.came == [] and fresh(webhook).pause_reason == "There is no valid secret. Roll it."


def test_without_a_key_there_is_no_secret_and_no_webhook(team: Cast, settings: object) -> None:
    settings.AUDIT_KEY = b""  # type: ignore[attr-defined]
    with pytest.raises(Conflict):
        made(team)


def test_a_second_process_leaves_a_leased_one_alone_and_follows_when_the_lease_is_over(team: Cast) -> None:
    webhook, _ = made(team)
    receiver, now = Receiver(), timezone.now()
    with all_tenants("a test"):
        AuditWebhook.objects.filter(pk=webhook.pk).update(
            lease="dead", leased_until=now + timedelta(seconds=9)
        )
    assert tick(receiver, now) == 0
    assert tick(receiver, now + timedelta(seconds=9)) > 0


def test_who_dies_before_the_delivery_is_noted_sends_the_event_again(team: Cast) -> None:
    """The receiver had it; nothing was written: at least once."""
    webhook, _ = made(team)
    first = Receiver()

    def dies(url: str, body: bytes, headers: Mapping[str, str], allow_private: bool) -> Answer:
        first(url, body, headers, allow_private)
        raise KeyboardInterrupt

    chain_now()
    with pytest.raises(KeyboardInterrupt):
        delivery.take_turn(webhook.pk, timezone.now(), dies)
    second = Receiver()
    tick(second)
    assert second.positions()[0] == first.positions()[0]
    assert second.came[0][0]["webhook-id"] == first.came[0][0]["webhook-id"]


def test_who_lost_the_lease_while_sending_writes_nothing(team: Cast) -> None:
    webhook, _ = made(team)
    receiver = Receiver()

    def slow(url: str, body: bytes, headers: Mapping[str, str], allow_private: bool) -> Answer:
        with all_tenants("a test"):
            AuditWebhook.objects.filter(pk=webhook.pk).update(lease="other")
        return receiver(url, body, headers, allow_private)

    chain_now()
    assert delivery.take_turn(webhook.pk, timezone.now(), slow) == 0
    assert not AuditSinkCursor.objects.filter(sink=webhook.pk).exists()
    assert len(receiver.came) == 1 and fresh(webhook).lease == "other"


def test_one_receiver_that_is_away_holds_up_no_other(team: Cast) -> None:
    webhook, _ = made(team)
    create_webhook(by=SYSTEM, tenant=team.other, url=URL, from_start=True)
    receiver = Receiver(None)
    tick(receiver)
    assert fresh(webhook).state == "failing"
    others = AuditLink.objects.filter(chain=team.other.pk).count()
    assert [chain for chain, _ in receiver.positions()].count(team.other.pk) == others


def test_one_whose_turn_ends_in_a_bug_holds_up_no_other(team: Cast) -> None:
    made(team)
    create_webhook(by=SYSTEM, tenant=team.other, url=URL + "/other", from_start=True)
    receiver = Receiver()

    def buggy(url: str, body: bytes, headers: Mapping[str, str], allow_private: bool) -> Answer:
        if url == URL:
            raise ZeroDivisionError
        return receiver(url, body, headers, allow_private)

    chain_now()
    assert delivery.deliver_due(timezone.now(), buggy) == len(receiver.came) > 0


def test_the_log_is_bounded_and_goes_with_its_webhook(team: Cast, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "KEPT_DELIVERIES", 2)
    webhook, _ = made(team)
    tick(Receiver())
    with all_tenants("a test"):
        newest = [row.pk for row in AuditDelivery.objects.all()[:2]]
        assert AuditDelivery.objects.count() > 2
    delivery.forget_old_deliveries()
    with all_tenants("a test"):
        assert [row.pk for row in AuditDelivery.objects.all()] == newest
    delete_webhook(by=SYSTEM, webhook=webhook)
    with all_tenants("a test"):
        assert not AuditDelivery.objects.exists() and not AuditWebhook.objects.exists()
    assert not AuditSinkCursor.objects.filter(sink=webhook.pk).exists()


def test_each_step_of_setting_it_up_is_an_event(team: Cast) -> None:
    owner = team.actor("owner")
    webhook, _ = create_webhook(by=owner, tenant=team.tenant, url=URL)
    assert last_event().action == "audit_webhook.created"
    update_webhook(by=owner, webhook=webhook, url=URL + "/2")
    assert (last_event().before, last_event().after) == ({"url": URL}, {"url": URL + "/2"})
    pause_webhook(by=owner, webhook=webhook)
    with pytest.raises(Conflict):
        pause_webhook(by=owner, webhook=webhook)
    resume_webhook(by=owner, webhook=webhook)
    roll_secret(by=owner, webhook=webhook, overlap=timedelta(hours=1))
    delete_webhook(by=owner, webhook=webhook)
    with all_tenants("a test"):
        found = AuditEvent.objects.filter(action__startswith="audit_webhook.").order_by("seq")
        assert [(event.action, event.tenant_id == team.tenant.pk) for event in found] == [
            (f"audit_webhook.{verb}", True)
            for verb in ("created", "changed", "paused", "resumed", "rolled", "deleted")
        ]


@pytest.mark.parametrize("who", ["developer", "viewer", "auditor", "support"])
def test_who_may_not_change_the_tenant_sets_up_nothing(team: Cast, who: str) -> None:
    with pytest.raises(NotAllowed):
        create_webhook(by=team.actor(who), tenant=team.tenant, url=URL)


def test_another_tenants_webhook_looks_like_none(team: Cast) -> None:
    webhook, _ = made(team)
    for who in ("stranger", "nobody", "viewer"):
        with pytest.raises(NotFound):
            access_webhook(team.actor(who), webhook.pk)
    with pytest.raises(NotFound):
        create_webhook(by=team.actor("stranger"), tenant=team.tenant, url=URL)


def test_one_is_enough_and_its_address_must_lie_outside(team: Cast) -> None:
    with pytest.raises(Invalid):
        create_webhook(by=SYSTEM, tenant=team.tenant, url="https://10.0.0.1/")
    webhook, _ = made(team)
    with pytest.raises(Conflict):
        made(team)
    with pytest.raises(Invalid):
        update_webhook(by=SYSTEM, webhook=webhook, url="http://siem.example.org/")
    with pytest.raises(Invalid):
        roll_secret(by=SYSTEM, webhook=webhook, overlap=timedelta(days=31))


def test_changes_made_meanwhile_arrive_with_the_next_tick(team: Cast) -> None:
    made(team, from_start=False)
    receiver = Receiver()
    tick(receiver)
    update_tenant(by=SYSTEM, tenant=team.tenant, name="Acme Ω")
    tick(receiver)
    assert json.loads(receiver.came[-1][1])["data"]["record"]["after"] == {"name": "Acme Ω"}
