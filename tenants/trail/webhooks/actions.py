"""Setting up where events are sent. Who may take events away and change the tenant may; each step is an event."""

from __future__ import annotations

from datetime import timedelta

from django.conf import settings
from django.db import transaction
from django.utils import timezone

from tenants.access import require
from tenants.actors import Actor
from tenants.audit import record
from tenants.errors import Conflict, Invalid, NotFound
from tenants.models import Tenant
from tenants.roles import Right
from tenants.scoping import all_tenants, scope_of_row
from tenants.trail import signing
from tenants.trail.canonical import chain_of
from tenants.trail.checkpoints import linked_chains
from tenants.trail.models import AuditLink, AuditSinkCursor
from tenants.trail.webhooks import signature
from tenants.trail.webhooks.models import MAX_URL_CHARS, AuditDeadLetter, AuditDelivery, AuditWebhook
from tenants.trail.webhooks.post import Refused, checked_url

MAX_OVERLAP = timedelta(days=30)


def webhook_of(actor: Actor, tenant: Tenant | None) -> AuditWebhook | None:
    """The chosen tenant's, or the platform's. Raises like `require` without the right to export."""
    require(actor, Right.EXPORT_AUDIT, tenant.pk if tenant else None)
    with all_tenants("the right is asked for above"):
        return AuditWebhook.objects.filter(tenant_id=tenant.pk if tenant else None).first()


def access_webhook(actor: Actor, webhook_id: str, *, to_change: bool = True) -> AuditWebhook:
    """Raises `NotFound` for one of a trail the actor may not read."""
    with all_tenants("a gate looks the row up before it can know the tenant"):
        webhook = AuditWebhook.objects.filter(pk=webhook_id).first()
    if webhook is None or not actor.has(Right.VIEW_AUDIT, webhook.tenant_id):
        raise NotFound("webhook")
    require(actor, Right.EXPORT_AUDIT, webhook.tenant_id)
    if to_change:
        _require_change(actor, webhook.tenant_id)
    return webhook


def may_change(actor: Actor, tenant: Tenant | None) -> bool:
    tenant_id = tenant.pk if tenant else None
    return actor.has(Right.EXPORT_AUDIT, tenant_id) and actor.has(Right.EDIT_TENANT, tenant_id)


@transaction.atomic
def create_webhook(
    *, by: Actor, tenant: Tenant | None, url: str, from_start: bool = False
) -> tuple[AuditWebhook, str]:
    """The webhook and its secret, which is seen this once. `from_start`: also what happened before.

    Raises `Invalid` for an address that may not be sent to, `Conflict` when there is one already.
    """
    tenant_id = tenant.pk if tenant else None
    _require_change(by, tenant_id)
    refuse_address(url)
    stored, secret = _new_secret()
    with all_tenants("the row is its owner's, who was asked above"):
        if AuditWebhook.objects.filter(tenant_id=tenant_id).exists():
            raise Conflict("There is a webhook already.")
        webhook = AuditWebhook.objects.create(
            tenant_id=tenant_id, tenant_name=tenant.name if tenant else "", url=url, secrets=[stored]
        )
        if not from_start:
            _begin_at_the_end(webhook)
    record(
        by=by,
        action="audit_webhook.created",
        target=webhook,
        after={**webhook.facts(), "from_start": from_start},
        tenant=tenant,
    )
    return webhook, secret


@transaction.atomic
def update_webhook(*, by: Actor, webhook: AuditWebhook, url: str) -> AuditWebhook:
    """Another address; what failed is tried there at once. Raises `Invalid`."""
    fresh = _locked(by, webhook)
    refuse_address(url)
    if url == fresh.url:
        return fresh
    before, fresh.url, fresh.next_attempt_at, fresh.attempts = fresh.url, url, timezone.now(), 0
    _save(fresh, ["url", "next_attempt_at", "attempts"])
    _record(by, "audit_webhook.changed", fresh, {"url": before}, {"url": url})
    return fresh


@transaction.atomic
def roll_secret(*, by: Actor, webhook: AuditWebhook, overlap: timedelta) -> tuple[AuditWebhook, str]:
    """A new secret; messages carry signatures of the old ones too until `overlap` is over."""
    fresh, now = _locked(by, webhook), timezone.now()
    if not timedelta() <= overlap <= MAX_OVERLAP:
        raise Invalid({"overlap": f"From none to {MAX_OVERLAP.days} days."})
    stored, secret = _new_secret()
    fresh.secrets = signature.rolled(fresh.secrets, stored, now + overlap, now)
    _save(fresh, ["secrets"])
    _record(by, "audit_webhook.rolled", fresh, None, {"old_until": (now + overlap).isoformat()})
    return fresh, secret


@transaction.atomic
def pause_webhook(*, by: Actor, webhook: AuditWebhook) -> AuditWebhook:
    fresh = _locked(by, webhook)
    if fresh.is_paused:
        raise Conflict("It is paused already.")
    fresh.is_paused, fresh.pause_reason = True, ""
    _save(fresh, ["is_paused", "pause_reason"])
    _record(by, "audit_webhook.paused", fresh, {"paused": False}, {"paused": True})
    return fresh


@transaction.atomic
def resume_webhook(*, by: Actor, webhook: AuditWebhook) -> AuditWebhook:
    """Go on at once where it stopped, also out of a back-off."""
    fresh = _locked(by, webhook)
    before = fresh.is_paused
    fresh.is_paused, fresh.pause_reason, fresh.next_attempt_at = False, "", timezone.now()
    _save(fresh, ["is_paused", "pause_reason", "next_attempt_at"])
    _record(by, "audit_webhook.resumed", fresh, {"paused": before}, {"paused": False})
    return fresh


@transaction.atomic
def resend_dead_letters(*, by: Actor, webhook: AuditWebhook, letter: int | None = None) -> int:
    """One more attempt for one event that was given up, or for all; how many."""
    fresh = _locked(by, webhook)
    with scope_of_row(fresh):
        dead = AuditDeadLetter.objects.filter(webhook_id=fresh.pk, is_asked_again=False)
        asked = (dead if letter is None else dead.filter(pk=letter)).update(is_asked_again=True)
    if not asked:
        raise Conflict("There is nothing to send again.")
    _record(by, "audit_webhook.sent_again", fresh, None, {"events": asked})
    return asked


@transaction.atomic
def delete_webhook(*, by: Actor, webhook: AuditWebhook) -> bool:
    """Nothing is sent any more; its dead letters and its log go too. The trail keeps that it was."""
    fresh = _locked(by, webhook)
    _record(by, "audit_webhook.deleted", fresh, fresh.facts(), None)
    with scope_of_row(fresh):
        AuditDeadLetter.objects.filter(webhook_id=fresh.pk).delete()
        AuditDelivery.objects.filter(webhook_id=fresh.pk).delete()
        AuditSinkCursor.objects.filter(sink=fresh.pk).delete()
        fresh.delete()
    return True


def _locked(by: Actor, webhook: AuditWebhook) -> AuditWebhook:
    _require_change(by, webhook.tenant_id)
    with all_tenants("the right is asked for above"):
        fresh = AuditWebhook.objects.select_for_update().filter(pk=webhook.pk).first()
    if fresh is None:
        raise NotFound("webhook")
    return fresh


def _require_change(by: Actor, tenant_id: str | None) -> None:
    require(by, Right.EXPORT_AUDIT, tenant_id)
    require(by, Right.EDIT_TENANT, tenant_id)


def refuse_address(url: str, field: str = "url") -> None:
    """Raises `Invalid` at `field` for one that nothing may be sent to."""
    if len(url) > MAX_URL_CHARS:
        raise Invalid({field: f"At most {MAX_URL_CHARS} characters."})
    try:
        checked_url(url, settings.WEBHOOK_ALLOW_PRIVATE)
    except Refused as refused:
        raise Invalid({field: str(refused)}) from refused


def _new_secret() -> tuple[dict[str, object], str]:
    try:
        return signature.new_secret()
    except signing.NoSigningKey as error:
        raise Conflict("There is no TIDEGATE_AUDIT_KEY to make a secret from.") from error


def _begin_at_the_end(webhook: AuditWebhook) -> None:
    chains = linked_chains() if webhook.tenant_id is None else [chain_of(webhook.tenant_id)]
    for chain in chains:
        end = AuditLink.objects.filter(chain=chain).order_by("-position").first()
        if end is not None:
            AuditSinkCursor.objects.create(sink=webhook.pk, chain=chain, position=end.position)


def _save(webhook: AuditWebhook, fields: list[str]) -> None:
    with scope_of_row(webhook):
        webhook.save(update_fields=fields)


def _record(
    by: Actor,
    action: str,
    webhook: AuditWebhook,
    before: dict[str, object] | None,
    after: dict[str, object] | None,
) -> None:
    tenant = Tenant.objects.filter(pk=webhook.tenant_id).first()
    record(by=by, action=action, target=webhook, before=before, after=after, tenant=tenant)
