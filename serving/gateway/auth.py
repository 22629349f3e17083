"""Who asks? `Authorization: Bearer tg_…` or `x-api-key: tg_…`, looked up in memory.

Unknown, malformed, expired and revoked keys are refused with the same words and the same work.
"""

from __future__ import annotations

from hashlib import blake2b
from hmac import compare_digest

from serving.errors import InvalidApiKey, Misuse, PermissionRefused, TenantSuspended
from serving.gateway.addresses import Doorkeeper
from serving.gateway.snapshot import Grant, Snapshot
from serving.gateway.visit import Visit
from tenants.keys import DIGEST_BYTES, parse_token

SCOPE_INFER = "infer"
_REFUSED = "the API key is missing, unknown, expired or revoked"
_NOBODY = bytes(DIGEST_BYTES)


class Authenticator:
    def __init__(self, snapshot: Snapshot, pepper: bytes, door: Doorkeeper | None = None) -> None:
        self._snapshot = snapshot
        self._door = door or Doorkeeper()
        # The keyed state is prepared once and copied per request: a third of the cost of keying anew.
        self._keyed = blake2b(key=pepper[:64], digest_size=DIGEST_BYTES)

    def authenticate(self, headers: dict[bytes, bytes], now: float) -> Grant:
        """`now` is Unix time. Raises `InvalidApiKey`, `TenantSuspended` or `PermissionRefused`."""
        parsed = parse_token(_token(headers))
        if parsed is None:
            raise InvalidApiKey(_REFUSED)
        key_id, secret = parsed
        digest = self._keyed.copy()
        digest.update(secret)
        key = self._snapshot.keys.get(key_id)
        is_same = compare_digest(digest.digest(), _NOBODY if key is None else key.digest)
        if key is None or not is_same or (key.expires_at is not None and key.expires_at <= now):
            # Noted alike for all of them, or the time it takes would tell which keys there are.
            raise InvalidApiKey(_REFUSED).of_misuse(Misuse("credential", key_id, digest=digest.digest()))
        tenant = self._snapshot.tenants.get(key.tenant_id)
        if tenant is None:
            raise InvalidApiKey(_REFUSED)
        if not tenant.is_active:
            raise TenantSuspended("this tenant is suspended")
        if SCOPE_INFER not in key.scopes:
            error = PermissionRefused(f"this API key lacks the scope {SCOPE_INFER!r}")
            raise error.of_misuse(Misuse("scope", key.id, tenant.id, SCOPE_INFER))
        return Grant(key, tenant, self._snapshot.generation)

    def admit(self, visit: Visit, now: float) -> Grant:
        """`authenticate`, and from where: raises `PermissionRefused` for an address the key is not for."""
        grant = self.authenticate(visit.headers, now)
        key = grant.key
        if key.networks is not None and not self._door.lets_in(visit, key.networks):
            error = PermissionRefused("this API key may not be used from this address")
            raise error.of_misuse(Misuse("network", key.id, key.tenant_id))
        return grant

    def still_holds(self, grant: Grant, now: float) -> bool:
        """Whether `admit` would give the same grant to the same headers on the same connection."""
        expires_at = grant.key.expires_at
        is_expired = expires_at is not None and expires_at <= now
        return grant.generation == self._snapshot.generation and not is_expired


def _token(headers: dict[bytes, bytes]) -> str:
    authorization = headers.get(b"authorization")
    if authorization is not None:
        scheme, _, token = authorization.partition(b" ")
        return token.strip().decode("latin-1") if scheme.lower() == b"bearer" else ""
    return headers.get(b"x-api-key", b"").strip().decode("latin-1")
