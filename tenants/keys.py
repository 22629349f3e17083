"""API key tokens: their shape, their digest, how a new one is made.

A token is `tg_<public>_<secret>`. The public part names the key and may be shown and logged; the secret part
is shown once and stored only as a keyed digest, so a stolen database opens nothing without the pepper.

Pure: gateways import it too, so it knows neither Django nor the environment.
"""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass, field
from hashlib import blake2b
from string import ascii_lowercase, digits

PUBLIC_CHARS = 12
SECRET_CHARS = 43
DIGEST_BYTES = 32
MAX_TOKEN_CHARS = len("tg__") + PUBLIC_CHARS + SECRET_CHARS

_ALPHABET = ascii_lowercase + digits
_PEPPER_BYTES = 64
_IN_TEXT = re.compile(rf"(tg_[a-z0-9]{{{PUBLIC_CHARS}}}_)[A-Za-z0-9_-]{{{SECRET_CHARS}}}")
_TOKEN = re.compile(rf"tg_([a-z0-9]{{{PUBLIC_CHARS}}})_([A-Za-z0-9_-]{{{SECRET_CHARS}}})")


@dataclass(frozen=True, slots=True)
class NewToken:
    """A token that was just made. `token` and `secret` stay out of `repr`, and so out of logs."""

    id: str
    token: str = field(repr=False)
    secret: bytes = field(repr=False)
    prefix: str
    last_four: str


def masked(text: str) -> str:
    """The text without the secrets of tokens in it. People paste keys where none belongs: into paths, names, ids."""
    return _IN_TEXT.sub(r"\1***", text) if "tg_" in text else text


def holds_token(text: str) -> bool:
    return "tg_" in text and _IN_TEXT.search(text) is not None


def parse_token(token: str) -> tuple[str, bytes] | None:
    """Split a token into its key id (`key_…`) and secret; None when it is not one of ours."""
    match = _TOKEN.fullmatch(token)
    if match is None:
        return None
    return f"key_{match[1]}", match[2].encode()


def digest_secret(secret: bytes, pepper: bytes) -> bytes:
    """32 bytes of blake2b, keyed with the pepper. Compare with `hmac.compare_digest` only.

    The secret holds 256 random bits, so one fast keyed hash is enough: there is nothing to guess.
    """
    return blake2b(secret, key=pepper[:_PEPPER_BYTES], digest_size=DIGEST_BYTES).digest()


def new_token() -> NewToken:
    """A fresh token from the operating system's randomness."""
    public = "".join(secrets.choice(_ALPHABET) for _ in range(PUBLIC_CHARS))
    secret = secrets.token_urlsafe(32)
    return NewToken(
        id=f"key_{public}",
        token=f"tg_{public}_{secret}",
        secret=secret.encode(),
        prefix=f"tg_{public}",
        last_four=secret[-4:],
    )
