"""The control plane's side of the accounts in Valkey: how they stand, what the ledger says they are at least."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec
import structlog
from django.conf import settings
from redis import Redis
from redis.exceptions import RedisError

from serving.control.quotas.models import Quota
from serving.quotas.limits import store_name
from serving.quotas.valkey import RAISE, WHOLE, encode

log = structlog.get_logger(__name__)

TIMEOUT_S = 0.5
KEEP_MS = 3_600_000


class Standing(NamedTuple):
    """Of one account, in base units. `window` is the start of the window it counts in."""

    window: int
    used: int
    reserved: int


class AccountsAway(Exception):
    """Valkey cannot be asked now."""


class Raise(NamedTuple):
    """What an account is at least: `used` since `window` (Unix seconds), which ends at `ends_s`."""

    tenant_id: str
    quota_id: str
    window: int
    ends_s: int
    used: int


class Accounts:
    """Raises `AccountsAway`. A connection is made when it is needed."""

    def __init__(self, valkey_url: str = "") -> None:
        self._client = Redis.from_url(
            valkey_url or settings.VALKEY_URL, socket_timeout=TIMEOUT_S, socket_connect_timeout=TIMEOUT_S
        )

    def are_whole(self) -> bool:
        """False after they were lost, until `raise_to` declares them whole."""
        try:
            return bool(self._client.exists(WHOLE))
        except (RedisError, OSError) as error:
            raise AccountsAway(str(error)) from None

    def standings(self, quotas: Sequence[Quota]) -> dict[str, Standing]:
        """By quota id; those nobody used yet are absent."""
        if not quotas:
            return {}
        names = [store_name(quota.tenant_id, quota.pk) for quota in quotas]
        try:
            found: Any = self._client.mget(names)
        except (RedisError, OSError) as error:
            raise AccountsAway(str(error)) from None
        pairs = zip(quotas, found, strict=True)
        return {quota.pk: _standing(raw) for quota, raw in pairs if raw is not None}

    def raise_to(self, known: Sequence[Raise], now: float, *, declare_whole: bool = False) -> None:
        """No account is lowered: gateways know sooner than the ledger. `now` in Unix seconds."""
        names = [store_name(row.tenant_id, row.quota_id) for row in known]
        rows = [[row.window, row.used, int(max(0.0, row.ends_s - now) * 1000) + KEEP_MS] for row in known]
        arguments = (encode(rows), b"1" if declare_whole else b"0")
        try:
            self._client.eval(RAISE, len(names) + 1, WHOLE, *names, *arguments)
        except (RedisError, OSError) as error:
            raise AccountsAway(str(error)) from None


def standings_or_none(quotas: Sequence[Quota]) -> dict[str, Standing] | None:
    """For pages: None while Valkey is away."""
    try:
        return Accounts().standings(quotas)
    except AccountsAway as error:
        log.warning("quotas.accounts_unread", error=str(error))
        return None


def _standing(raw: bytes) -> Standing:
    row = msgspec.msgpack.decode(raw)
    holdings = row["p"].values() if isinstance(row["p"], dict) else ()  # Lua knows no empty map
    now_ms = time.time() * 1000
    reserved = sum(held - slack for held, slack, _, until_ms, *_ in holdings if until_ms > now_ms)
    return Standing(row["w"], row["u"], reserved)
