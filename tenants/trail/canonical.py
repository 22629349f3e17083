"""The exact bytes that are hashed for an event, as the database's trigger writes them.

A record is one JSON text: members in alphabetical order, no spaces between them, strings escaped as RFC 8259
asks and no further, absent values `null`, `at` in UTC with microseconds, and `before` and `after` as
PostgreSQL prints `jsonb`. hash = SHA-256(previous hash ‖ record in UTF-8); the first previous hash is 32 zero
bytes. docs/audit.md says the same to auditors.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from json.encoder import encode_basestring
from typing import Any

PLATFORM_CHAIN = "platform"
"""The chain of events that belong to no tenant."""
GENESIS = bytes(32)
RECORD_VERSION = 1

COLUMNS: dict[str, str] = {
    "action": "e.action",
    "actor_id": "e.actor_id",
    "actor_name": "e.actor_name",
    "actor_type": "e.actor_type",
    "after": "e.after::text",
    "at": """to_char(e.at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')""",
    "before": "e.before::text",
    "event_id": "e.event_id",
    "ip": "host(e.ip)",
    "outcome": "e.outcome",
    "position": "l.position",
    "reason": "e.reason",
    "request_id": "e.request_id",
    "seq": "e.seq",
    "target_id": "e.target_id",
    "target_name": "e.target_name",
    "target_type": "e.target_type",
    "tenant_id": "e.tenant_id",
    "tenant_name": "e.tenant_name",
    "trace_id": "e.trace_id",
    "user_agent": "e.user_agent",
}
"""Members of a record → how their text is read from the event `e` and its link `l`."""
_AS_THEY_ARE = frozenset({"after", "before"})


def record_text(values: Mapping[str, Any]) -> str:
    """The record of an event whose columns were read as `COLUMNS` says; `before`, `after` are JSON texts."""
    members = [f'"{name}":{_member(name, values[name])}' for name in COLUMNS]
    return "{" + ",".join([*members, f'"v":{RECORD_VERSION}']) + "}"


def link_hash(previous: bytes, record: str) -> bytes:
    return sha256(previous + record.encode()).digest()


def chain_of(tenant_id: str | None) -> str:
    return tenant_id or PLATFORM_CHAIN


def _member(name: str, value: Any) -> str:
    if value is None:
        return "null"
    if name in _AS_THEY_ARE or not isinstance(value, str):
        return str(value)
    return encode_basestring(value)
