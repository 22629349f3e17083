"""The gates to invitations: by id for who manages the tenant's members, by its secret for whoever was sent it."""

from __future__ import annotations

import secrets
from hashlib import sha256

from django.db.models import QuerySet

from tenants.access import require
from tenants.actors import Actor
from tenants.errors import NotFound
from tenants.people import Invitation
from tenants.roles import Right
from tenants.scoping import all_tenants

_SECRET_BYTES = 32
_MAX_SECRET_CHARS = 64


def new_secret() -> tuple[str, bytes]:
    """What the link carries, and the digest that is stored. At 256 random bits a plain hash is enough."""
    secret = secrets.token_urlsafe(_SECRET_BYTES)
    return secret, _digest(secret)


def access_invitation(actor: Actor, invitation_id: str) -> Invitation:
    with all_tenants("a gate looks the row up before it can know the tenant"):
        row = _rows().filter(pk=invitation_id).first()
    if row is None or not actor.can_see(row.tenant_id):
        raise NotFound("invitation")
    require(actor, Right.MANAGE_MEMBERS, row.tenant_id)
    return row


def open_invitation(secret: str) -> Invitation:
    """The pending invitation this link is of; used, withdrawn, expired and invented ones are all `NotFound`."""
    with all_tenants("whoever holds the link belongs to no tenant yet"):
        row = _rows().filter(digest=_digest(secret[:_MAX_SECRET_CHARS])).first()
    if row is None or row.state != "pending" or not row.tenant.is_active:
        raise NotFound("invitation")
    return row


def _rows() -> QuerySet[Invitation]:
    return Invitation.objects.select_related("tenant", "inviter")


def _digest(secret: str) -> bytes:
    return sha256(secret.encode()).digest()
