"""Ed25519 signatures (RFC 8032) over what the trail says of itself."""

from __future__ import annotations

from hashlib import sha256

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from django.conf import settings

_PURPOSE = b"tidegate audit signing key v1\0"


class NoSigningKey(RuntimeError):
    """`TIDEGATE_AUDIT_KEY` is not set: nothing can be signed here."""


def can_sign() -> bool:
    return bool(settings.AUDIT_KEY)


def sign(message: bytes) -> bytes:
    """64 bytes. Raises `NoSigningKey`."""
    return _private_key().sign(message)


def public_key() -> str:
    """This installation's, in 64 hex digits. Raises `NoSigningKey`."""
    return _private_key().public_key().public_bytes_raw().hex()


def trusted_keys() -> frozenset[str]:
    """Public keys whose signatures count: our own, and the retired ones that the settings name."""
    own = {public_key()} if can_sign() else set()
    return frozenset(own | set(settings.AUDIT_TRUSTED_KEYS))


def is_signed(message: bytes, signature: bytes, key: str) -> bool:
    """Whether the holder of `key` (hex digits) signed `message`; a malformed key signed nothing."""
    try:
        Ed25519PublicKey.from_public_bytes(bytes.fromhex(key)).verify(signature, message)
    except (InvalidSignature, ValueError):
        return False
    return True


def _private_key() -> Ed25519PrivateKey:
    if not can_sign():
        raise NoSigningKey("TIDEGATE_AUDIT_KEY is not set")
    return Ed25519PrivateKey.from_private_bytes(sha256(_PURPOSE + settings.AUDIT_KEY).digest())
