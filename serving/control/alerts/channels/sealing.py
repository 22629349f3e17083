"""Addresses and secrets of channels at rest: a copy of the database sends nothing in our name."""

from __future__ import annotations

import base64
from hashlib import blake2b

from cryptography.fernet import Fernet, InvalidToken
from django.conf import settings


def seal(text: str) -> str:
    """Fernet (AES-128-CBC with HMAC-SHA256) under a key derived from the installation's secret key."""
    return _cipher().encrypt(text.encode()).decode() if text else ""


def unseal(sealed: str) -> str:
    """Raises ValueError under another secret key."""
    try:
        return _cipher().decrypt(sealed).decode() if sealed else ""
    except InvalidToken as error:
        raise ValueError("It was sealed under another TIDEGATE_SECRET_KEY. Make the channel anew.") from error


def _cipher() -> Fernet:
    key = blake2b(settings.SECRET_KEY.encode(), digest_size=32, person=b"tg alert channel").digest()
    return Fernet(base64.urlsafe_b64encode(key))
