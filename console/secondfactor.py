"""How the secrets of second factors are kept: encrypted, so that a copy of the database signs nobody in."""

from __future__ import annotations

import base64
from hashlib import blake2b

from allauth.mfa.adapter import DefaultMFAAdapter
from cryptography.fernet import Fernet
from django.conf import settings

_MARK = "sealed:"


class SealedSecrets(DefaultMFAAdapter):
    """Fernet (AES-128-CBC with HMAC-SHA256) under a key derived from the installation's secret key."""

    def encrypt(self, text: str) -> str:
        return _MARK + _cipher().encrypt(text.encode()).decode()

    def decrypt(self, encrypted_text: str) -> str:
        """Also what was stored before secrets were encrypted. Raises `InvalidToken` under another secret key."""
        if not encrypted_text.startswith(_MARK):
            return encrypted_text
        return _cipher().decrypt(encrypted_text.removeprefix(_MARK)).decode()


def _cipher() -> Fernet:
    key = blake2b(settings.SECRET_KEY.encode(), digest_size=32, person=b"tg second factor").digest()
    return Fernet(base64.urlsafe_b64encode(key))
