"""The life of a version, as data: which state may follow which."""

from __future__ import annotations

from typing import get_args

from serving.contract import VersionState

NEXT: dict[VersionState, frozenset[VersionState]] = {
    "registered": frozenset({"validating", "failed", "archived"}),
    "validating": frozenset({"ready", "failed", "archived"}),
    "ready": frozenset({"archived"}),
    "failed": frozenset({"validating", "archived"}),
    "archived": frozenset(),
}
STATES: tuple[VersionState, ...] = get_args(VersionState)

assert set(NEXT) == set(STATES), "every state of the contract has its row"


def sources_of(state: VersionState) -> list[VersionState]:
    """The states from which `state` may be entered."""
    return [source for source, following in NEXT.items() if state in following]
