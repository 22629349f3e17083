"""How often one account may ask: a window that every console process counts in, in Valkey."""

from __future__ import annotations

import time
from typing import Any

import structlog
from django.conf import settings
from django.core.cache import cache
from redis.exceptions import RedisError
from rest_framework.request import Request
from rest_framework.throttling import BaseThrottle

from console.requests import actor_of

WINDOW_S = 60
log = structlog.get_logger(__name__)


class PerAccount(BaseThrottle):
    """`API_REQUESTS_PER_MINUTE` of each account; 0 sets no limit.

    Without Valkey nothing is counted and nothing refused: a key must be revocable on the worst of days.
    """

    def allow_request(self, request: Request, view: Any) -> bool:
        limit = settings.API_REQUESTS_PER_MINUTE
        if limit <= 0:
            return True
        now = time.time()
        self._reset_s = WINDOW_S - int(now) % WINDOW_S
        actor = actor_of(request._request)
        try:
            used = _counted(f"api:{actor.type}:{actor.id}:{int(now) // WINDOW_S}")
        except RedisError as error:
            log.warning("api.limits_not_counted", error=str(error))
            return True
        view.limits = {
            "RateLimit-Policy": f'"requests";q={limit};w={WINDOW_S}',
            "RateLimit": f'"requests";r={max(0, limit - used)};t={self._reset_s}',
        }
        return used <= limit

    def wait(self) -> float:
        """Seconds until the next window."""
        return float(self._reset_s)


def _counted(name: str) -> int:
    """One more in this window; the counter outlives it a little and then goes by itself."""
    if cache.add(name, 1, timeout=2 * WINDOW_S):
        return 1
    try:
        return cache.incr(name)
    except ValueError:  # it went between the two
        return 1
