"""Garbage collection of processes that make many small objects and no cycles."""

from __future__ import annotations

import gc


def settle_memory(allocations: int, generations: int = 20) -> None:
    """What is loaded now stays, and collections are rare: every so many `allocations`, older ones rarer by factors.

    Requests and counts leave no cycles behind; looking for one takes a third of the time of merging them.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(allocations, generations, generations)
