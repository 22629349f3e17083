"""The lives of deployments and replicas, as data: which state may follow which.

A replica's states are observations of its agent. Within one epoch (one start of the process) they move
forward until the process ends, though reports may skip steps; a new epoch may begin anywhere.
"""

from __future__ import annotations

from typing import Literal, get_args

from serving.contract import ReplicaState

DeploymentState = Literal["active", "stopped"]
DEPLOYMENT_STATES: tuple[DeploymentState, ...] = get_args(DeploymentState)
REPLICA_STATES: tuple[ReplicaState, ...] = get_args(ReplicaState)

NEXT: dict[ReplicaState, frozenset[ReplicaState]] = {
    "pending": frozenset({"starting", "loading", "warming", "ready", "draining", "stopped", "failed"}),
    "starting": frozenset({"loading", "warming", "ready", "draining", "stopped", "failed", "pending"}),
    "loading": frozenset({"warming", "ready", "draining", "stopped", "failed", "pending"}),
    "warming": frozenset({"ready", "draining", "stopped", "failed", "pending"}),
    "ready": frozenset({"draining", "stopped", "failed", "pending"}),
    "draining": frozenset({"stopped", "failed", "pending"}),
    "failed": frozenset({"stopped", "pending"}),
    "stopped": frozenset({"pending"}),
}
"""A process that ended leaves its replica `pending` (it will be started again), `failed` or `stopped`."""

GONE: frozenset[ReplicaState] = frozenset({"stopped", "failed"})
"""States in which an unwanted replica holds nothing on its host any more."""

assert set(NEXT) == set(REPLICA_STATES), "every state of the contract has its row"


def may_follow(old: ReplicaState, new: ReplicaState, *, is_same_epoch: bool) -> bool:
    """Whether a report of `new` may replace `old`. Repeating a state within an epoch is a heartbeat."""
    return not is_same_epoch or new == old or new in NEXT[old]
