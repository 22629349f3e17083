"""CADF (DMTF DSP0262): one activity event per row."""

from __future__ import annotations

from typing import Any

from tenants.trail.formats.activity import SIGN_INS, activity_of, parsed, proof, without_none
from tenants.trail.formats.writer import Row

_INITIATORS = {
    "user": "data/security/account/user",
    "api_key": "data/security/key",
    "system": "service",
    "anonymous": "unknown",
}
_TARGETS = {
    "user": "data/security/account/user",
    "member": "data/security/account",
    "api_key": "data/security/key",
    "tenant": "data/security/account",
    "host": "compute/node",
    "replica": "compute/process",
}


def cadf(row: Row) -> dict[str, Any]:
    return without_none(
        {
            "typeURI": "http://schemas.dmtf.org/cloud/audit/1.0/event",
            "eventType": "activity",
            "id": row["event_id"],
            "eventTime": row["at"],
            "action": _action(row),
            "outcome": row["outcome"],
            "initiator": _initiator(row),
            "target": _target(row),
            "observer": {"id": "tidegate", "typeURI": "service/security", "name": "tidegate"},
            "reason": {"reasonCode": row["reason"], "reasonType": "tidegate"} if row["reason"] else None,
            "tags": [row["action"]],
            "attachments": _attachments(row),
        }
    )


def _action(row: Row) -> str:
    if row["action"] in SIGN_INS:
        return "authenticate/login" if SIGN_INS[row["action"]] else "authenticate/logout"
    kind = activity_of(row["action"]).value
    return row["action"] if kind == "other" else kind


def _initiator(row: Row) -> dict[str, Any]:
    return without_none(
        {
            "id": row["actor_id"] or row["actor_type"],
            "typeURI": _INITIATORS.get(row["actor_type"], "unknown"),
            "name": row["actor_name"],
            "host": without_none({"address": row["ip"], "agent": row["user_agent"]}),
            "project_id": row["tenant_id"],
        }
    )


def _target(row: Row) -> dict[str, Any]:
    return without_none(
        {
            "id": row["target_id"] or row["target_type"],
            "typeURI": _TARGETS.get(row["target_type"], f"data/{row['target_type']}"),
            "name": row["target_name"],
        }
    )


def _attachments(row: Row) -> list[dict[str, Any]]:
    parts: dict[str, object] = {
        "before": parsed(row["before"]),
        "after": parsed(row["after"]),
        "request": without_none({"request_id": row["request_id"], "trace_id": row["trace_id"]}),
        "chain": proof(row),
    }
    return [
        {"name": name, "typeURI": "application/json", "content": content}
        for name, content in without_none(parts).items()
    ]
