"""The life of a tuning run, as data: which state may follow which."""

from __future__ import annotations

from typing import Literal, get_args

TuningState = Literal["requested", "running", "done", "failed", "cancelled"]

NEXT: dict[TuningState, frozenset[TuningState]] = {
    "requested": frozenset({"running", "failed", "cancelled"}),
    "running": frozenset({"done", "failed", "cancelled"}),
    "done": frozenset(),
    "failed": frozenset(),
    "cancelled": frozenset(),
}
STATES: tuple[TuningState, ...] = get_args(TuningState)
ACTIVE: tuple[TuningState, ...] = ("requested", "running")
"""An agent is, or will be, at work."""

assert set(NEXT) == set(STATES), "every state has its row"


def sources_of(state: TuningState) -> list[TuningState]:
    """The states from which `state` may be entered."""
    return [source for source, following in NEXT.items() if state in following]
