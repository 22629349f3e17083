"""Elastic Common Schema 8: one document per event."""

from __future__ import annotations

from typing import Any

from tenants.trail.formats.activity import SIGN_INS, Activity, activity_of, parsed, proof, without_none
from tenants.trail.formats.writer import Row

ECS_VERSION = "8.11.0"
_TYPES = {
    Activity.CREATE: "creation",
    Activity.READ: "access",
    Activity.UPDATE: "change",
    Activity.DELETE: "deletion",
    Activity.OTHER: "info",
}
_PEOPLE = frozenset({"user", "member", "api_key"})
"""Targets whose changes concern who may do what."""


def ecs(row: Row) -> dict[str, Any]:
    return without_none(
        {
            "@timestamp": row["at"],
            "ecs": {"version": ECS_VERSION},
            "event": _event(row),
            "user": without_none({"id": row["actor_id"], "name": row["actor_name"]}),
            "source": without_none({"ip": row["ip"]}),
            "user_agent": without_none({"original": row["user_agent"]}),
            "organization": without_none({"id": row["tenant_id"], "name": row["tenant_name"]}),
            "trace": without_none({"id": row["trace_id"]}),
            "http": {"request": {"id": row["request_id"]}} if row["request_id"] else None,
            "related": {"user": sorted({row["actor_name"], *_target_person(row)} - {""})},
            "message": f"{row['actor_name']} {row['action']} {row['target_name']}",
            "tidegate": _own(row),
        }
    )


def _event(row: Row) -> dict[str, Any]:
    return without_none(
        {
            "id": row["event_id"],
            "kind": "event",
            "category": _categories(row),
            "type": _types(row),
            "action": row["action"],
            "outcome": row["outcome"],
            "reason": row["reason"],
            "sequence": row["seq"],
            "module": "tidegate",
            "dataset": "tidegate.audit",
            "hash": bytes(row["hash"]).hex(),
        }
    )


def _categories(row: Row) -> list[str]:
    if row["action"] in SIGN_INS:
        return ["authentication", "session"]
    return ["iam"] if row["target_type"] in _PEOPLE else ["configuration"]


def _types(row: Row) -> list[str]:
    if row["action"] in SIGN_INS:
        return ["start" if SIGN_INS[row["action"]] else "end"]
    denied = ["denied"] if row["action"] == "access.denied" else []
    return [_TYPES[activity_of(row["action"])], *denied]


def _target_person(row: Row) -> set[str]:
    return {row["target_name"]} if row["target_type"] in {"user", "member"} else set()


def _own(row: Row) -> dict[str, Any]:
    target = {"type": row["target_type"], "id": row["target_id"], "name": row["target_name"]}
    return without_none(
        {
            "actor": {"type": row["actor_type"]},
            "target": without_none(dict(target)),
            "before": parsed(row["before"]),
            "after": parsed(row["after"]),
            "chain": proof(row),
        }
    )
