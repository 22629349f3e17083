"""What the supervisor holds about one replica, and what it wants done. Plain data."""

from __future__ import annotations

from dataclasses import dataclass

from serving.contract import ReplicaSpec, ReplicaState, VersionEntry


@dataclass(frozen=True, slots=True)
class Start:
    """Spawn the worker of `spec` under `epoch`."""

    spec: ReplicaSpec
    version: VersionEntry
    epoch: int


@dataclass(frozen=True, slots=True)
class Drain:
    """Tell the worker to finish what it has and exit."""

    replica_id: str
    epoch: int


@dataclass(frozen=True, slots=True)
class Kill:
    """SIGKILL: it was asked to leave, or it hangs."""

    replica_id: str
    epoch: int


Action = Start | Drain | Kill


@dataclass(slots=True)
class Replica:
    """One replica from its first wish to its last exit. Times are the caller's monotonic seconds."""

    spec: ReplicaSpec
    is_wanted: bool = True
    is_running: bool = False
    is_leaving: bool = False
    """Told to drain; whatever it says, it is on its way out."""
    state: ReplicaState = "pending"
    reason: str = ""
    epoch: int = 0
    pid: int | None = None
    restarts: int = 0
    memory_bytes: int | None = None
    load_s: float | None = None
    failures: int = 0
    """Deaths since it was last stable."""
    start_at: float = 0.0
    """Not started before this."""
    ready_since: float | None = None
    heard_at: float | None = None
    """When it last said that it lives; None before the first time."""
    kill_at: float | None = None
    """When patience ends: with a drain, or with a start that never becomes ready."""
    running_spec: ReplicaSpec | None = None
    reported_at: float | None = None
    is_changed: bool = True
    last_words: str = ""
    """The reason the worker itself gave for failing, kept for the report of its exit."""
    last_death: str = ""
    """Why the start before this one ended, kept for whoever asks why it was restarted."""
    kills: int = 0
