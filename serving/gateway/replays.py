"""The outcomes of requests with an `Idempotency-Key`, in Valkey: shared by all gateways, bounded in memory.

A record is a hash: `f` the request's fingerprint, then `t` the token of the gateway that works on it, with a
lease that is renewed while it does, or `a` the outcome, kept for a day. A gateway that dies leaves a lease that
ends by itself. Each step is one script, so that two gateways never both begin.

Memory: what is kept is added up per hour and tenant. A tenant may keep as much as it leaves free for the
others (as in `large.Room`); beyond that only the fact is kept, and beyond twice that nothing new begins.
"""

from __future__ import annotations

import secrets
import time
from typing import NamedTuple, cast

import structlog
from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from serving.errors import IdempotencyUnavailable
from serving.gateway import idempotency
from serving.gateway.idempotency import Kept
from serving.gateway.large import Turn

log = structlog.get_logger("tidegate.gateway.replays")

LEASE_S = 10.0
"""How long a key is blocked after the gateway that worked on it died."""
RENEW_S = 3.0
KEEP_S = 24 * 3600
TIMEOUT_S = 0.5
CONNECTIONS = 16
CONNECTIONS_EACH = 4
"""Of one tenant: what it asks for beyond waits, and does not make others wait."""
BACK_OFF_S = 1.0
"""While Valkey is away it is asked no more often than this."""
RECORD_BYTES = 512
"""What a record takes besides its outcome."""
_PREFIX = "tidegate:{idempotency}:"

_HELD = """
local function held(key, hour)
  local sum, flat = 0, redis.call('HGETALL', key)
  for i = 1, #flat, 2 do
    if tonumber(flat[i]) < hour - 24 then redis.call('HDEL', key, flat[i])
    else sum = sum + tonumber(flat[i + 1]) end
  end
  return sum
end
"""
_BEGIN = (
    _HELD
    + """
local record, mine, all = KEYS[1], KEYS[2], KEYS[3]
local print, token, lease_ms = ARGV[1], ARGV[2], ARGV[3]
local hour, limit, size = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
local known = redis.call('HMGET', record, 'f', 't', 'a')
if known[1] then
  if known[1] ~= print then return {'other'} end
  if known[3] then return {'kept', known[3]} end
  if known[2] ~= token then return {'busy'} end
elseif held(mine, hour) + size > 2 * limit - held(all, hour) - size then
  return {'full'}
end
redis.call('HSET', record, 'f', print, 't', token)
redis.call('PEXPIRE', record, lease_ms)
return {'began'}
"""
)
_FINISH = (
    _HELD
    + """
local record, mine, all = KEYS[1], KEYS[2], KEYS[3]
local print, token, keep_s = ARGV[1], ARGV[2], tonumber(ARGV[3])
local hour, limit, size = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
local answer, marker = ARGV[7], ARGV[8]
local known = redis.call('HMGET', record, 'f', 't')
if known[1] and known[2] ~= token then return 0 end
local bytes = #answer + size
if answer == '' or held(mine, hour) + bytes > limit - held(all, hour) - bytes then
  answer, bytes = marker, size
end
redis.call('HDEL', record, 't')
redis.call('HSET', record, 'f', print, 'a', answer)
redis.call('EXPIRE', record, keep_s)
for _, key in ipairs({mine, all}) do
  redis.call('HINCRBY', key, hour, bytes)
  redis.call('EXPIRE', key, keep_s + 7200)
end
return 1
"""
)
_RENEW = "return redis.call('HGET', KEYS[1], 't') == ARGV[1] and redis.call('PEXPIRE', KEYS[1], ARGV[2]) or 0"
_RELEASE = "return redis.call('HGET', KEYS[1], 't') == ARGV[1] and redis.call('DEL', KEYS[1]) or 0"
_SCRIPTS = (_BEGIN, _FINISH, _RENEW, _RELEASE)


class Lease(NamedTuple):
    """The right to carry out one request, and to say what came of it."""

    tenant_id: str
    record: str
    fingerprint: bytes
    token: str


class Busy(NamedTuple):
    """Somebody works on the same request."""


class Other(NamedTuple):
    """The key stands for another request."""


class ReplayStore:
    """Raises `IdempotencyUnavailable` when Valkey is away, or what it may hold is used up."""

    def __init__(self, valkey_url: str | None, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._silent_until = 0.0
        self._turn = Turn(CONNECTIONS, CONNECTIONS_EACH)
        self._client: Redis | None = None
        if valkey_url:
            pool = BlockingConnectionPool.from_url(
                valkey_url,
                max_connections=CONNECTIONS,
                timeout=TIMEOUT_S,
                socket_timeout=TIMEOUT_S,
                socket_connect_timeout=TIMEOUT_S,
                retry=Retry(NoBackoff(), 1),  # a pooled connection may have died since it was used
            )
            self._client = Redis.from_pool(pool)
            self._scripts = {text: self._client.register_script(text) for text in _SCRIPTS}

    async def begin(self, tenant_id: str, key: bytes, fingerprint: bytes) -> Lease | Busy | Other | Kept:
        """What is known of this key; a `Lease` when nothing is and the request may run now."""
        record = _PREFIX + idempotency.record_name(tenant_id, key)
        lease = Lease(tenant_id, record, fingerprint, secrets.token_hex(8))
        arguments = (
            fingerprint,
            lease.token,
            round(LEASE_S * 1000),
            _hour(),
            self._limit_bytes,
            RECORD_BYTES,
        )
        said = cast(list[bytes], await self._eval(_BEGIN, lease, *arguments))
        if said[0] == b"began":
            return lease
        if said[0] == b"kept":
            return idempotency.decode(said[1])
        if said[0] == b"full":
            raise IdempotencyUnavailable(
                "too many answers are kept for repetition; try again later, or without Idempotency-Key",
                retry_after_s=600.0,
                numbers={"limit_bytes": self._limit_bytes},
            )
        return Busy() if said[0] == b"busy" else Other()

    async def finish(self, lease: Lease, kept: Kept) -> None:
        """Keep the outcome, or of a large one the fact."""
        marker = idempotency.encode(Kept(kept.request_id))
        raw = idempotency.encode(kept)
        answer = raw if len(raw) <= idempotency.MAX_ANSWER_BYTES else b""
        limits = (KEEP_S, _hour(), self._limit_bytes, RECORD_BYTES)
        await self._eval(_FINISH, lease, lease.fingerprint, lease.token, *limits, answer, marker)

    async def renew(self, lease: Lease) -> None:
        """Owed every `RENEW_S` while the request runs."""
        await self._eval(_RENEW, lease, lease.token, round(LEASE_S * 1000))

    async def release(self, lease: Lease) -> None:
        """Nothing ran: the key is free again."""
        await self._eval(_RELEASE, lease, lease.token)

    async def close(self) -> None:
        if self._client is not None:
            await self._client.aclose()
            await self._client.connection_pool.disconnect()

    async def _eval(self, script: str, lease: Lease, *arguments: bytes | str | int) -> object:
        if self._client is None:
            raise IdempotencyUnavailable("this gateway has no VALKEY_URL, so it keeps no answers")
        keys = (lease.record, f"{_PREFIX}bytes:{lease.tenant_id}", f"{_PREFIX}bytes")
        try:
            async with self._turn.of(lease.tenant_id):
                if time.monotonic() < self._silent_until:
                    raise _away()
                return await self._scripts[script](keys=keys, args=arguments)
        except (RedisError, OSError, TimeoutError) as error:
            log.warning("replays.unreachable", reason=str(error))
            self._silent_until = time.monotonic() + BACK_OFF_S
            raise _away() from None


def _away() -> IdempotencyUnavailable:
    return IdempotencyUnavailable(
        "Valkey, which remembers idempotency keys, is away; nothing was run", retry_after_s=BACK_OFF_S
    )


def _hour() -> int:
    return int(time.time()) // 3600
