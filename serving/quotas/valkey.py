"""The accounts in Valkey, where the gateways' and the control plane's meet."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import cast

import msgspec
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import NoScriptError, RedisError

from serving.quotas.account import Batch, Verdicts
from serving.quotas.keeper import StoreAway
from serving.quotas.limits import PREFIX

WHOLE = PREFIX + "whole"
"""Exists while no account is missing what the ledger knows."""
TIMEOUT_S = 0.5
TAKE = (Path(__file__).parent / "accounts.lua").read_text()
RAISE = (Path(__file__).parent / "raise.lua").read_text()

encode = msgspec.msgpack.Encoder().encode
_verdicts = msgspec.msgpack.Decoder(Verdicts).decode


class ValkeyAccounts:
    """An `AccountStore`."""

    def __init__(self, valkey_url: str) -> None:
        self._client = Redis.from_url(
            valkey_url,
            max_connections=2,
            socket_timeout=TIMEOUT_S,
            socket_connect_timeout=TIMEOUT_S,
            retry=Retry(NoBackoff(), 1),
        )
        self._sha = ""

    async def take(self, names: list[str], batch: Batch) -> Verdicts:
        try:
            verdicts = _verdicts(await self._run(names, encode(batch)))
        except (RedisError, OSError, TimeoutError, msgspec.DecodeError) as error:
            raise StoreAway(str(error)) from None
        if verdicts.is_whole and len(verdicts.views) != len(names):
            raise StoreAway("a newer question came first")
        return verdicts

    async def close(self) -> None:
        await self._client.aclose()

    async def _run(self, names: Sequence[str], batch: bytes) -> bytes:
        if not self._sha:
            self._sha = await self._client.script_load(TAKE)
        for attempt in (1, 2):
            try:
                return cast(
                    bytes, await self._client.evalsha(self._sha, len(names) + 1, WHOLE, *names, batch)
                )
            except NoScriptError:
                if attempt == 2:
                    raise
                self._sha = await self._client.script_load(TAKE)
        raise AssertionError("unreachable")
