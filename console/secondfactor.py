"""How the secrets of second factors are kept: encrypted, so that a copy of the database signs nobody in."""

from __future__ import annotations

from allauth.mfa.adapter import DefaultMFAAdapter

from tenants.sealing import cipher

_MARK = "sealed:"
_PURPOSE = b"tg second factor"


class SealedSecrets(DefaultMFAAdapter):
    """Sealed as `tenants.sealing` says."""

    def encrypt(self, text: str) -> str:
        return _MARK + cipher(_PURPOSE).encrypt(text.encode()).decode()

    def decrypt(self, encrypted_text: str) -> str:
        """Also what was stored before secrets were encrypted. Raises `InvalidToken` under another secret key."""
        if not encrypted_text.startswith(_MARK):
            return encrypted_text
        return cipher(_PURPOSE).decrypt(encrypted_text.removeprefix(_MARK)).decode()
