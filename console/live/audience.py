"""Which tenants' pictures somebody looks at: with many tenants only those are made.

The layer's own subscriptions say it, so nobody has to sign on or off. A tenant is remembered for as long as its
frames are, so that going from page to page loses none.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from django.conf import settings

from console.live.topics import HISTORY_FRAMES, Scope

READY_TENANTS = 50
"""Of so many the last minutes are kept ready for whoever comes, watched or not."""
REMEMBERED_S = float(HISTORY_FRAMES)


class Audience:
    def __init__(self) -> None:
        self._seen_at: dict[str, float] = {}

    def among(self, tenant_ids: Collection[str], now: float) -> list[str]:
        """Those whose pictures are to be made."""
        if len(tenant_ids) <= READY_TENANTS:
            return list(tenant_ids)
        self._seen_at = {t: at for t, at in self._seen_at.items() if at > now - REMEMBERED_S}
        return [tenant_id for tenant_id in tenant_ids if tenant_id in self._seen_at]

    async def ask(self, client: Any, tenant_ids: Iterable[str], now: float) -> None:
        """Ask Valkey who listens now. One statement, however many tenants."""
        asked = {_channel(tenant_id): tenant_id for tenant_id in tenant_ids}
        for channel, listeners in await client.pubsub_numsub(*asked):
            if listeners:
                self._seen_at[asked[channel.decode()]] = now


def _channel(tenant_id: str) -> str:
    """What the pub/sub layer calls the group of a tenant's scope."""
    layers: Any = settings.CHANNEL_LAYERS
    return f"{layers['default']['CONFIG']['prefix']}__group__{Scope(tenant_id).group}"
