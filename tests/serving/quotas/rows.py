"""Quotas, limits and batches as tests write them."""

from __future__ import annotations

import itertools
from typing import Any
from zoneinfo import ZoneInfo

from serving.contract import QuotaEntry, QuotaResource, QuotaWindow
from serving.quotas.limits import Limit

_numbers = itertools.count()


def entry(
    resource: QuotaResource = "requests", window: QuotaWindow = "day", limit: int = 10, **fields: Any
) -> QuotaEntry:
    """A quota of the tenant `tnt_a`, with an id of its own."""
    own = {"id": f"quo_{next(_numbers)}", "tenant_id": "tnt_a"}
    return QuotaEntry(resource=resource, window=window, limit=limit, **(own | fields))


def limit(*args: Any, zone: str = "UTC", **fields: Any) -> Limit:
    return Limit(entry(*args, **fields), ZoneInfo(zone))
