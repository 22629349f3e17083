"""Rows for `seed`: what a large platform's tables look like, drawn at random, without a promise about any one."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from tenants.usage_columns import COUNTS, DIMENSIONS, NAMES, PLATFORM_DIMENSIONS

Row = Sequence[Any]
MODELS, VERSIONS = 12, 3
CLASSES = ("interactive", "standard", "batch")
_ALPHABET = "abcdefghijklmnopqrstuvwxyz0123456789"

TENANT_COLUMNS = (
    "id", "slug", "name", "is_active", "suspended_reason", "max_concurrency", "time_zone", "usage_zone",
    "created_at", "updated_at",
)  # fmt: skip
KEY_COLUMNS = (
    "id", "first_id", "tenant_id", "name", "prefix", "last_four", "digest", "scopes", "created_at", "created_by",
    "last_used_class", "last_used_network",
)  # fmt: skip
QUOTA_COLUMNS = (
    "id", "tenant_id", "key_id", "resource", "window", "limit", "observe_only", "is_of_platform",
    "soft_told_for", "hard_told_for", "created_at", "updated_at",
)  # fmt: skip
QUOTAS = (("requests", "second"), ("concurrency", ""), ("cost_micro", "month"))
"""Of every tenant, and the first of them of each tenant's first key."""
USAGE_COLUMNS = ("minute", *DIMENSIONS, *NAMES, *COUNTS)
EVENT_COLUMNS = (
    "event_id", "at", "tenant_id", "tenant_name", "actor_type", "actor_id", "actor_name", "action",
    "target_type", "target_id", "target_name", "outcome", "reason", "before", "after", "request_id",
    "trace_id", "ip", "user_agent",
)  # fmt: skip
ACTIONS = ("key.created", "key.revoked", "member.added", "tenant.updated", "profile.bound", "user.signed_in")


@dataclass(frozen=True, slots=True)
class Shape:
    tenants: int
    keys: int
    days: int


class Tenant(NamedTuple):
    id: str
    name: str
    values: Row


class Key(NamedTuple):
    id: str
    name: str
    tenant: Tenant
    values: Row


def tenants(shape: Shape, now: datetime, draw: random.Random) -> list[Tenant]:
    return [_tenant(number, now, draw) for number in range(shape.tenants)]


def _tenant(number: int, now: datetime, draw: random.Random) -> Tenant:
    ident, slug = _id("tnt_", 16, draw), f"seed-{_text(6, draw)}-{number}"
    name = f"Seeded team {number}"
    values = (ident, slug, name, True, "", 1024, "UTC", "UTC", now, now)
    return Tenant(ident, name, values)


def keys(shape: Shape, owners: Sequence[Tenant], now: datetime, draw: random.Random) -> list[Key]:
    return [_key(number, owners[number % len(owners)], now, draw) for number in range(shape.keys)]


def quotas(callers: Sequence[Key], now: datetime, draw: random.Random) -> list[Row]:
    """Of the tenants that these keys are of."""
    first = {key.tenant.id: key.id for key in reversed(callers)}
    found = [(tenant_id, None, *kind) for tenant_id in first for kind in QUOTAS]
    found += [(tenant_id, key_id, *QUOTAS[0]) for tenant_id, key_id in first.items()]
    return [(_id("quo_", 16, draw), *target, 10**6, False, True, 0, 0, now, now) for target in found]


def _key(number: int, owner: Tenant, now: datetime, draw: random.Random) -> Key:
    ident, name = _id("key_", 12, draw), f"service {number}"
    created = now - timedelta(minutes=draw.randrange(500_000))
    shown = (f"tg_{ident[4:8]}…", ident[-4:])
    values = (ident, "", owner.id, name, *shown, draw.randbytes(32), ["infer"], created, "seed", "", "")
    return Key(ident, name, owner, values)


def usage(
    shape: Shape, known: Sequence[Key], count: int, now: datetime, draw: random.Random
) -> Iterator[Row]:
    """Distinct minutes × dimensions. A hundredth of the keys makes nearly half of the rows; each serves one model."""
    minute = now.replace(second=0, microsecond=0)
    seen: set[tuple[int, int, int]] = set()
    while len(seen) < count:
        key = int(len(known) * draw.random() ** 6)
        kind = key % MODELS + MODELS * (draw.randrange(10) // 9 + VERSIONS * (key % len(CLASSES)))
        place = (draw.randrange(shape.days * 1440), key, kind)
        if place not in seen:
            seen.add(place)
            yield _usage(minute - timedelta(minutes=place[0]), known[key], kind, draw)


def _usage(minute: datetime, key: Key, kind: int, draw: random.Random) -> Row:
    model, version = kind % MODELS, kind // MODELS % VERSIONS
    requests = 1 + draw.randrange(600)
    device_us = requests * draw.randrange(500, 20_000)
    names = (key.tenant.name, key.name)
    dimensions = (
        key.tenant.id,
        key.id,
        f"model-{model}",
        f"mv_seed{model}{version}",
        CLASSES[kind // (MODELS * VERSIONS)],
    )
    failed, cancelled = requests // 100, requests // 200
    counts = (
        requests,
        failed,
        cancelled,
        requests * 2,
        requests * 40,
        device_us,
        device_us // 200,
        device_us // 3000,
    )
    return (minute, *dimensions, *names, *counts)


def events(owners: Sequence[Tenant], count: int, now: datetime, draw: random.Random) -> Iterator[Row]:
    for _ in range(count):
        owner = owners[int(len(owners) * draw.random() ** 2)]
        at = now - timedelta(seconds=draw.randrange(90 * 86_400))
        yield _event(owner, at, draw)


def _event(owner: Tenant, at: datetime, draw: random.Random) -> Row:
    person, action = draw.randrange(5_000), draw.choice(ACTIONS)
    target = _id("key_", 12, draw)
    return (
        _id("evt_", 16, draw), at, owner.id, owner.name, "user", str(person), f"person{person}", action,
        "api_key", target, f"service {person}", "success", "", json.dumps({"name": "old"}),
        json.dumps({"name": f"service {person}"}), _id("req_", 26, draw), "", "10.0.0.7", "seed",
    )  # fmt: skip


def _sums(
    table: str,
    period: str,
    cut: str,
    dimensions: Sequence[str] = (*DIMENSIONS, *NAMES),
    finer: str = "tenants_usageminute",
) -> str:
    rest = ", ".join(dimensions)
    sums = ", ".join(f"sum({count})" for count in COUNTS)
    return f"""
        INSERT INTO {table} ({period}, {rest}, {", ".join(COUNTS)})
        SELECT {cut}, {rest}, {sums} FROM {finer} WHERE tenant_id = ANY(%s) GROUP BY 1, {rest}
    """


_PLATFORM = ", ".join(("day", *PLATFORM_DIMENSIONS))
_ADDED = f"""
    ON CONFLICT ({_PLATFORM}) DO UPDATE SET {", ".join(f"{count} = held.{count} + excluded.{count}" for count in COUNTS)}
"""
ROLL_UPS = (
    _sums("tenants_usagehour", "hour", "date_trunc('hour', minute, 'UTC')"),
    _sums("tenants_usageday", "day", "(minute AT TIME ZONE 'UTC')::date"),
    _sums("tenants_usageweek", "week", "date_trunc('week', day)::date", finer="tenants_usageday"),
    _sums("tenants_usageplatformday AS held", "day", "day", PLATFORM_DIMENSIONS, finer="tenants_usageday")
    + _ADDED,
)


def _id(prefix: str, chars: int, draw: random.Random) -> str:
    return prefix + _text(chars, draw)


def _text(chars: int, draw: random.Random) -> str:
    return "".join(draw.choices(_ALPHABET, k=chars))
