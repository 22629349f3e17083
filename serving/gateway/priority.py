"""A request's wish for a class. Pure: it may lower the class of its profile, never raise it.

The schedule extension of the Open Inference Protocol counts from 1, the highest; 0 is no wish. So 1 is
`interactive`, 2 `standard`, and everything below `batch`. A wish for a higher class than the profile gives
is not an error, since Triton's clients send priorities as a matter of course: it has no effect.
"""

from __future__ import annotations

from serving.contract import SlaClass
from serving.errors import InvalidRequest

PRIORITY_HEADER = b"x-tidegate-priority"
CLASSES: tuple[SlaClass, ...] = ("interactive", "standard", "batch")
"""Highest first."""
_RANKS = {name: rank for rank, name in enumerate(CLASSES)}
_NAMES = {name.encode(): name for name in CLASSES}


def of_number(priority: object) -> SlaClass | None:
    """The class that `parameters.priority` wishes for. Raises `InvalidRequest`."""
    if priority is None:
        return None
    if not isinstance(priority, int) or isinstance(priority, bool) or priority < 0:
        raise InvalidRequest(
            "parameters.priority is a whole number: 0 for none, 1 for the highest", param="priority"
        )
    return CLASSES[min(priority, len(CLASSES)) - 1] if priority else None


def of_header(value: bytes) -> SlaClass:
    """The class that `x-tidegate-priority` names. Raises `InvalidRequest`."""
    wish = _NAMES.get(value.strip(b" \t").lower())
    if wish is None:
        raise InvalidRequest(f"x-tidegate-priority is one of {', '.join(CLASSES)}")
    return wish


def lower(own: SlaClass, wish: SlaClass) -> SlaClass:
    """The lower one of two classes."""
    return wish if _RANKS[wish] > _RANKS[own] else own
