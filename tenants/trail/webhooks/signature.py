"""Secrets and signatures as Standard Webhooks 1.0 asks (`v1`: HMAC-SHA256).

A secret is derived from `TIDEGATE_AUDIT_KEY` and a random salt: the database alone holds none. `check` tells
whether the secret is still the one that was shown, after the key behind it was replaced.
"""

from __future__ import annotations

import hmac
import secrets as randomness
from base64 import b64encode
from collections.abc import Iterable, Mapping
from datetime import datetime
from hashlib import sha256
from typing import Any

from django.conf import settings

from tenants.trail.signing import NoSigningKey

MAX_SECRETS = 3
PREFIX = "whsec_"
_PURPOSE = b"tidegate audit webhook secret v1\0"
_CHECK = b"tidegate audit webhook check v1\0"


def new_secret() -> tuple[dict[str, Any], str]:
    """What is stored, and the secret as it is shown once. Raises `NoSigningKey`."""
    salt = randomness.token_hex(16)
    key = _key(salt)
    return {"salt": salt, "check": _check(key), "until": None}, PREFIX + b64encode(key).decode()


def valid_keys(stored: Iterable[Mapping[str, Any]], now: datetime) -> list[bytes]:
    """Keys to sign with, newest first. Those that ended, or whose key behind them is gone, are left out."""
    if not settings.AUDIT_KEY:
        return []
    live = [each for each in stored if each["until"] is None or datetime.fromisoformat(each["until"]) > now]
    return [key for each in live if _check(key := _key(each["salt"])) == each["check"]]


def rolled(
    stored: list[dict[str, Any]], added: dict[str, Any], until: datetime, now: datetime
) -> list[dict[str, Any]]:
    """`added` in front; those before it end at `until`, or earlier when they were to. At most `MAX_SECRETS`."""
    ended = [
        each | {"until": min(filter(None, (each["until"], until.isoformat())))}
        for each in stored
        if each["until"] is None or datetime.fromisoformat(each["until"]) > now
    ]
    return [added, *ended][:MAX_SECRETS]


def headers(message_id: str, sent_at: datetime, body: bytes, keys: Iterable[bytes]) -> dict[str, str]:
    """`webhook-id`, `webhook-timestamp` and one signature per key, separated by spaces."""
    at = str(int(sent_at.timestamp()))
    signed = f"{message_id}.{at}.".encode() + body
    marks = [b64encode(hmac.digest(key, signed, "sha256")).decode() for key in keys]
    return {
        "webhook-id": message_id,
        "webhook-timestamp": at,
        "webhook-signature": " ".join(f"v1,{mark}" for mark in marks),
    }


def _key(salt: str) -> bytes:
    if not settings.AUDIT_KEY:
        raise NoSigningKey("TIDEGATE_AUDIT_KEY is not set")
    return hmac.digest(settings.AUDIT_KEY, _PURPOSE + salt.encode(), "sha256")


def _check(key: bytes) -> str:
    return sha256(_CHECK + key).hexdigest()[:16]
