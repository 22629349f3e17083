"""What gateways tell about keys beside their usage: from where one was used, and how one was misused."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hmac import compare_digest
from typing import Protocol

from django.db import connection, transaction

from tenants.actors import Actor
from tenants.audit import record
from tenants.models import ApiKey
from tenants.scoping import all_tenants

_SEEN = """
    UPDATE tenants_apikey SET last_used_class = %s, last_used_network = %s
    WHERE id = %s AND tenant_id = %s AND (last_used_class, last_used_network) IS DISTINCT FROM (%s, %s)
"""
_REASONS = {
    "scope": "The key lacks the scope.",
    "network": "The key may not be used from this address.",
    "model": "The key may not use this model.",
    "revoked": "The key is revoked.",
    "expired": "The key is expired.",
}
MAX_DETAIL_CHARS = 200


class SeenKey(Protocol):
    """One row as a gateway reports it; `serving.contract.KeySeen` is one."""

    @property
    def key_id(self) -> str: ...
    @property
    def tenant_id(self) -> str: ...
    @property
    def address_class(self) -> str: ...
    @property
    def network(self) -> str: ...


class MisusedKey(Protocol):
    """The same of a misuse; `serving.contract.KeyMisuse` is one."""

    @property
    def key_id(self) -> str: ...
    @property
    def reason(self) -> str: ...
    @property
    def count(self) -> int: ...
    @property
    def detail(self) -> str: ...
    @property
    def digest(self) -> bytes: ...
    @property
    def tenant_id(self) -> str: ...
    @property
    def address(self) -> str: ...
    @property
    def request_id(self) -> str: ...
    @property
    def trace_id(self) -> str: ...


@transaction.atomic
def record_seen(rows: Iterable[SeenKey]) -> None:
    """Note from where keys were used last; unknown ones are left out."""
    # One order for everybody, as in the ledger: two reports that touch the same keys then wait for each other.
    places = [
        (row.address_class, row.network, row.key_id, row.tenant_id, row.address_class, row.network)
        for row in sorted(rows, key=lambda row: row.key_id)
    ]
    if places:
        with all_tenants("one report holds keys of many tenants"), connection.cursor() as cursor:
            cursor.executemany(_SEEN, places)


@transaction.atomic
def record_misuse(rows: Sequence[MisusedKey]) -> int:
    """Write `key.misused` into the trail of the key's tenant; how many events that were.

    What a gateway could not tell is looked at here: a token that opens nothing is an event when it is the very
    token of a key that was revoked or has expired, and none of anybody's business when it is made up.
    """
    if not rows:
        return 0
    with all_tenants("one report holds keys of many tenants"):
        ids = {row.key_id for row in rows}
        keys = {key.pk: key for key in ApiKey.objects.select_related("tenant").filter(pk__in=ids)}
    return sum(_recorded(row, keys.get(row.key_id)) for row in rows)


def _recorded(row: MisusedKey, key: ApiKey | None) -> bool:
    reason = None if key is None else _reason(row, key)
    if key is None or reason is None:
        return False
    by = Actor(
        type="api_key",
        id=key.pk,
        name=key.name,
        ip=row.address or None,
        request_id=row.request_id,
        trace_id=row.trace_id,
    )
    after = {"misuse": reason, "requests": row.count}
    if row.detail:
        after[row.reason] = row.detail[:MAX_DETAIL_CHARS]
    record(
        by=by,
        action="key.misused",
        target=key,
        after=after,
        tenant=key.tenant,
        outcome="failure",
        reason=_REASONS[reason],
    )
    return True


def _reason(row: MisusedKey, key: ApiKey) -> str | None:
    """None for what is no misuse of this key."""
    if row.reason != "credential":
        is_known = row.tenant_id == key.tenant_id and row.reason in _REASONS
        return row.reason if is_known else None
    is_its_token = compare_digest(row.digest, bytes(key.digest))
    return key.state if is_its_token and key.state != "active" else None
