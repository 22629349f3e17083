"""Addresses and secrets of channels at rest: a copy of the database sends nothing in our name."""

from __future__ import annotations

from cryptography.fernet import InvalidToken

from tenants.sealing import cipher

_PURPOSE = b"tg alert channel"


def seal(text: str) -> str:
    """Sealed as `tenants.sealing` says; nothing stays nothing."""
    return cipher(_PURPOSE).encrypt(text.encode()).decode() if text else ""


def unseal(sealed: str) -> str:
    """Raises ValueError under another secret key."""
    try:
        return cipher(_PURPOSE).decrypt(sealed).decode() if sealed else ""
    except InvalidToken as error:
        raise ValueError("It was sealed under another TIDEGATE_SECRET_KEY. Make the channel anew.") from error
