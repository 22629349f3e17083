"""Names of tenants and versions, read now and then, so that a frame every second costs no query."""

from __future__ import annotations

import structlog
from django.db import DatabaseError

from console.live.topics import Names
from serving.control.catalog.models import Version
from tenants.models import Tenant
from tenants.scoping import all_tenants

REFRESH_S = 10.0

log = structlog.get_logger(__name__)


class NameBook:
    """Keeps the last names it read while the database is away."""

    def __init__(self) -> None:
        self._names = Names()
        self._read_at = float("-inf")

    def read(self, now: float) -> Names:
        """At most one pair of queries each `REFRESH_S`."""
        if now - self._read_at >= REFRESH_S:
            self._read_at = now
            try:
                self._names = _query()
            except DatabaseError as error:
                log.warning("live.names_unread", error=str(error))
        return self._names


def _query() -> Names:
    with all_tenants("the collector names the tenants of every frame"):
        tenants = {i: (slug, name) for i, slug, name in Tenant.objects.values_list("id", "slug", "name")}
    return Names(tenants=tenants, versions=dict(Version.objects.values_list("id", "number")))
