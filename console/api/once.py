"""`Idempotency-Key` on POST: asked twice, done once.

After draft-ietf-httpapi-idempotency-key-header: the answer is kept in the transaction of what was done, so
there is never one without the other. Only success is kept: a refusal changed nothing and may be tried again.
Whoever lost rights since gets nothing again: what they may read now, they read at its address.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from functools import wraps
from hashlib import blake2b, sha256
from typing import Any

from django.core.files.uploadedfile import UploadedFile
from django.db import connection, transaction
from rest_framework import exceptions
from rest_framework.request import Request
from rest_framework.response import Response

from console.api.errors import InProgress, Mismatch
from console.models import KeptAnswer
from tenants.actors import Actor
from tenants.errors import NotAllowed, NotFound
from tenants.roles import Rights

KEPT = timedelta(hours=24)
SHOWN_ONCE = ("token", "link", "secret", "is_mailed")
"""Fields of an answer that are never stored: a replay has null in their place."""
_KEY = re.compile(r'"([\x21\x23-\x7e]{1,255})"|([\x21\x23-\x7e]{1,255})')
_HEADERS = ("Location", "ETag")

Post = Callable[..., Response]


def once(post: Post) -> Post:
    """Wraps a view's `post`; without the header nothing changes."""

    @wraps(post)
    def answer(view: Any, request: Request, *args: Any, **kwargs: Any) -> Response:
        key = _key_of(request)
        if not key:
            return _sent(view, post(view, request, *args, **kwargs))
        with transaction.atomic():
            kept = _first_or_again(view.actor, key, request, lambda: post(view, request, *args, **kwargs))
        return _sent(view, kept)

    return answer


def _sent(view: Any, answer: Response) -> Response:
    """What waits for others, such as a mail server, is done once no lock is held; the answer tells of it."""
    for send in view.afterwards:
        answer.data.update(send())
    return answer


def forget_old(now: datetime) -> int:
    """Deletes what was kept for long enough; how many."""
    return KeptAnswer.objects.filter(created_at__lt=now - KEPT).delete()[0]


def _first_or_again(actor: Actor, key: str, request: Request, post: Callable[[], Response]) -> Response:
    account = f"{actor.type}:{actor.id}"
    _claim(account, key)
    fingerprint = _fingerprint(request)
    kept = KeptAnswer.objects.filter(account=account, key=key).first()
    if kept is None:
        return _keep(actor, account, key, fingerprint, post())
    if kept.fingerprint != fingerprint:
        raise Mismatch({"": "This Idempotency-Key was used for another request."})
    _refuse_lost_rights(actor, kept)
    return Response(kept.body, kept.status, headers={**kept.headers, "Idempotency-Replayed": "true"})


def _claim(account: str, key: str) -> None:
    """Raises `InProgress` while another transaction works on the same key."""
    digest = blake2b(f"{account}\n{key}".encode(), digest_size=8).digest()
    with connection.cursor() as cursor:
        number = int.from_bytes(digest, "big", signed=True)
        cursor.execute("SELECT pg_try_advisory_xact_lock(%s)", [number])
        is_ours = cursor.fetchone()[0]
    if not is_ours:
        raise InProgress("The first request with this Idempotency-Key is still being answered.")


def _keep(actor: Actor, account: str, key: str, fingerprint: str, answer: Response) -> Response:
    body = answer.data
    tenant_id = _tenant_of(body)
    if isinstance(body, Mapping):
        body = {name: None if name in SHOWN_ONCE else value for name, value in body.items()}
    KeptAnswer.objects.create(
        account=account,
        key=key,
        fingerprint=fingerprint,
        status=answer.status_code,
        headers={name: answer[name] for name in _HEADERS if name in answer},
        body=body,
        needs={"tenant": tenant_id, "rights": sorted(_rights(actor, tenant_id))},
    )
    return answer


def _tenant_of(body: Any) -> str | None:
    """Whose object the answer shows; None for one of the platform."""
    told = body if isinstance(body, Mapping) else {}
    found = told.get("tenant") or told.get("tenant_id") or told.get("id")
    return found if isinstance(found, str) and found.startswith("tnt_") else None


def _rights(actor: Actor, tenant_id: str | None) -> Rights:
    return actor.platform_rights if tenant_id is None else actor.rights_in(tenant_id)


def _refuse_lost_rights(actor: Actor, kept: KeptAnswer) -> None:
    """Raises like the gates: `NotFound` for a tenant that is no longer seen, `NotAllowed` for lost rights."""
    tenant_id = kept.needs.get("tenant")
    if tenant_id is not None and not actor.can_see(tenant_id):
        raise NotFound("tenant")
    if not _rights(actor, tenant_id) >= set(kept.needs.get("rights", ())):
        raise NotAllowed("You hold fewer rights than when this was asked first.", tenant_id)


def _key_of(request: Request) -> str:
    """Raises `ParseError` for a header that is no key."""
    given = request.headers.get("idempotency-key")
    if given is None:
        return ""
    found = _KEY.fullmatch(given)
    if found is None:
        raise exceptions.ParseError("Idempotency-Key: 1 to 255 visible characters, best in quotes.")
    return found[1] or found[2]


def _fingerprint(request: Request) -> str:
    data = request.data
    said = {name: _said(value) for name, value in data.items()} if isinstance(data, Mapping) else data
    text = json.dumps([request.method, request.get_full_path(), said], sort_keys=True, default=str)
    return blake2b(text.encode(), digest_size=32).hexdigest()


def _said(value: Any) -> Any:
    """A file is told by its content."""
    if not isinstance(value, UploadedFile):
        return value
    digest = sha256()
    for chunk in value.chunks(1 << 20):
        digest.update(chunk)
    value.seek(0)
    return digest.hexdigest()
