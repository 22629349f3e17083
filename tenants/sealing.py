"""Secrets at rest: a copy of the database alone opens nothing."""

from __future__ import annotations

import base64
from hashlib import blake2b

from cryptography.fernet import Fernet
from django.conf import settings


def cipher(purpose: bytes) -> Fernet:
    """Fernet (AES-128-CBC with HMAC-SHA256) under a key derived from the installation's secret key.

    `purpose`, at most 16 bytes, keeps what is sealed for one use from being opened by another.
    """
    key = blake2b(settings.SECRET_KEY.encode(), digest_size=32, person=purpose).digest()
    return Fernet(base64.urlsafe_b64encode(key))
