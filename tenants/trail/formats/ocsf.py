"""OCSF 1.x: API Activity (6003), and Authentication (3002) for sign-ins and sign-outs."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from tenants.trail.formats.activity import SIGN_INS, Activity, activity_of, parsed, proof, without_none
from tenants.trail.formats.writer import Row

SCHEMA_VERSION = "1.5.0"
API_ACTIVITY, AUTHENTICATION = 6003, 3002
_ACTIVITY_IDS = {
    Activity.CREATE: 1,
    Activity.READ: 2,
    Activity.UPDATE: 3,
    Activity.DELETE: 4,
    Activity.OTHER: 99,
}
_NAMES = {1: "Create", 2: "Read", 3: "Update", 4: "Delete", 99: "Other"}
_USER_TYPES = {"user": 1, "system": 3, "api_key": 4, "anonymous": 0}
"""OCSF: 1 User, 3 System, 4 Service, 0 Unknown."""


def ocsf(row: Row) -> dict[str, Any]:
    document = _session(row) if row["action"] in SIGN_INS else _api(row)
    is_failure = row["outcome"] == "failure"
    return document | without_none(
        {
            "time": epoch_ms(row["at"]),
            "severity_id": 3 if is_failure else 1,
            "severity": "Medium" if is_failure else "Informational",
            "status_id": 2 if is_failure else 1,
            "status": "Failure" if is_failure else "Success",
            "status_detail": row["reason"],
            "metadata": _metadata(row),
            "src_endpoint": {"ip": row["ip"]} if row["ip"] else {"name": row["actor_name"] or "unknown"},
            "unmapped": proof(row),
        }
    )


def epoch_ms(at: str) -> int:
    return int(datetime.fromisoformat(at).timestamp() * 1000)


def _api(row: Row) -> dict[str, Any]:
    activity = _ACTIVITY_IDS[activity_of(row["action"])]
    return _class(API_ACTIVITY, 6, activity, _NAMES[activity]) | without_none(
        {
            "class_name": "API Activity",
            "category_name": "Application Activity",
            "actor": {"user": _user(row)},
            "api": without_none(
                {
                    "operation": row["action"],
                    "service": {"name": "tidegate"},
                    "request": {"uid": row["request_id"]} if row["request_id"] else None,
                }
            ),
            "http_request": without_none({"user_agent": row["user_agent"]}),
            "resources": [_resource(row)],
        }
    )


def _session(row: Row) -> dict[str, Any]:
    begins = SIGN_INS[row["action"]]
    activity, name = (1, "Logon") if begins else (2, "Logoff")
    user = _user(row)
    if row["actor_type"] == "anonymous":  # somebody failed to be the target
        user = without_none({"name": row["target_name"], "uid": row["target_id"], "type_id": 0})
    return _class(AUTHENTICATION, 3, activity, name) | without_none(
        {
            "class_name": "Authentication",
            "category_name": "Identity & Access Management",
            "user": user,
            "http_request": without_none({"user_agent": row["user_agent"]}),
            "is_remote": True,
        }
    )


def _class(uid: int, category: int, activity: int, name: str) -> dict[str, Any]:
    return {
        "category_uid": category,
        "class_uid": uid,
        "activity_id": activity,
        "activity_name": name,
        "type_uid": uid * 100 + activity,
    }


def _user(row: Row) -> dict[str, Any]:
    return without_none({"name": row["actor_name"], "uid": row["actor_id"]}) | {
        "type_id": _USER_TYPES.get(row["actor_type"], 99),
        "type": row["actor_type"],
    }


def _resource(row: Row) -> dict[str, Any]:
    return without_none(
        {
            "type": row["target_type"],
            "uid": row["target_id"],
            "name": row["target_name"],
            "data": without_none({"before": parsed(row["before"]), "after": parsed(row["after"])}),
        }
    )


def _metadata(row: Row) -> dict[str, Any]:
    return without_none(
        {
            "version": SCHEMA_VERSION,
            "product": {"name": "Tidegate", "vendor_name": "Tidegate"},
            "uid": row["event_id"],
            "sequence": row["seq"],
            "correlation_uid": row["request_id"],
            "tenant_uid": row["tenant_id"],
            "trace_uid": row["trace_id"],
        }
    )
