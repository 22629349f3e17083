"""What kind of act a verb is; the schemas have few kinds, and our verbs end in one of them."""

from __future__ import annotations

import json
import math
from enum import StrEnum

from tenants.trail.formats.writer import Row

_MAX_DIGITS = 20


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
    """`before` or `after` as a value. A number that readers would round, or refuse, is given as its text."""
    return None if text is None else json.loads(text, parse_int=_whole, parse_float=_fraction)


def _whole(text: str) -> int | str:
    return int(text) if len(text) <= _MAX_DIGITS and abs(int(text)) < 1 << 63 else text


def _fraction(text: str) -> float | str:
    number = float(text)
    return number if math.isfinite(number) else text


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
