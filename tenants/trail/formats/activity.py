"""What kind of act a verb is; the schemas have few kinds, and our verbs end in one of them."""

from __future__ import annotations

from enum import StrEnum

import orjson

from tenants.trail.formats.writer import Row


class Activity(StrEnum):
    CREATE = "create"
    READ = "read"
    UPDATE = "update"
    DELETE = "delete"
    OTHER = "other"


SIGN_INS: dict[str, bool] = {
    "user.signed_in": True,
    "user.sign_in_failed": True,
    "user.signed_out": False,
}
"""Events of sessions; whether the session begins."""

_BY_ENDING: dict[str, Activity] = {
    **dict.fromkeys(("created", "added", "registered", "granted", "bound", "invited"), Activity.CREATE),
    **dict.fromkeys(("exported", "export_requested", "verified", "read"), Activity.READ),
    **dict.fromkeys(
        ("deleted", "removed", "revoked", "unbound", "expired", "archived"),
        Activity.DELETE,
    ),
    **dict.fromkeys(
        (
            "updated",
            "suspended",
            "resumed",
            "rolled",
            "trusted",
            "scaled",
            "validated",
            "stopped",
            "deployed",
        ),
        Activity.UPDATE,
    ),
}


def activity_of(action: str) -> Activity:
    """`key.revoked` → delete. What changes something says so at its end: `…_changed`, `…_set`."""
    verb = action.rpartition(".")[2]
    known = _BY_ENDING.get(verb) or _BY_ENDING.get(verb.rpartition("_")[2])
    if known is not None:
        return known
    return Activity.UPDATE if verb.endswith(("changed", "set", "reset")) else Activity.OTHER


def parsed(text: str | None) -> object:
    """`before` or `after` as a value."""
    return None if text is None else orjson.loads(text)


def without_none(document: dict[str, object]) -> dict[str, object]:
    """Members that say nothing are left out."""
    return {name: value for name, value in document.items() if value not in (None, "", {}, [])}


def proof(row: Row) -> dict[str, object]:
    """Where the event stands in its chain, for whoever wants to look it up."""
    return {
        "chain": row["chain"],
        "position": row["position"],
        "prev_hash": bytes(row["prev_hash"]).hex(),
        "hash": bytes(row["hash"]).hex(),
    }
