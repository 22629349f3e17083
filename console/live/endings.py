"""Tells the sockets of a person, in every console process, to ask again whether they may go on."""

from __future__ import annotations

import structlog
from asgiref.sync import async_to_sync
from channels.layers import get_channel_layer
from redis.exceptions import RedisError

log = structlog.get_logger(__name__)


def group_of(user_id: str) -> str:
    return f"live.user.{user_id}"


def ask_again(user_id: str) -> None:
    """Best effort: without Valkey the sockets notice by themselves, within `topics.RECHECK_S`."""
    try:
        async_to_sync(_send)(user_id)
    except (RedisError, OSError) as error:
        log.warning("live.ending_unsent", error=str(error))


async def _send(user_id: str) -> None:
    layer = get_channel_layer()
    await layer.group_send(group_of(user_id), {"type": "live.ask_again"})
