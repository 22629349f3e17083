"""Decides which workers of this host start, drain and die. Pure: events and `now` in, actions out.

A replica is started as soon as it is wanted and its version is known. One that dies is started again
after a pause that doubles from 0.1 s to 30 s; after three deaths in a row it counts as failed, keeps its
last reason, and goes on being tried slowly. A worker that is no longer wanted, or whose specification
changed, drains within a bound and is killed beyond it; so is one that stops saying that it lives. Two
workers of one replica never run at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from serving.agent.states import Action, Drain, Kill, Replica, Start
from serving.contract import ReplicaReport, ReplicaSpec, ReplicaState, VersionEntry

FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 30.0
STABLE_AFTER_S = 30.0
CRASH_LOOP_DEATHS = 3
START_TIMEOUT_S = 600.0
DRAIN_TIMEOUT_S = 35.0
REPORT_EVERY_S = 5.0
SILENT_S = 30.0
"""A ready worker that says nothing for so long hangs."""
ABSENT_S = 5.0
"""Steps further apart than this: it was the agent that stood still, so silence proves nothing."""

_TOLD: frozenset[ReplicaState] = frozenset(("loading", "warming", "ready", "draining", "failed"))
_REASON_LENGTH = 500


class Supervisor:
    """`next_epoch` must never return a number twice, also across restarts of the agent."""

    def __init__(self, host: str, next_epoch: Callable[[], int]) -> None:
        self._host = host
        self._next_epoch = next_epoch
        self._versions: Mapping[str, VersionEntry] = {}
        self._stepped_at = 0.0
        self.replicas: dict[str, Replica] = {}

    # -------------------------------------------------------------------- what is wanted

    def want(self, specs: Iterable[ReplicaSpec], versions: Mapping[str, VersionEntry], now: float) -> None:
        """Replace the wishes; specs of other hosts are ignored."""
        self._versions = versions
        wanted = {spec.id: spec for spec in specs if spec.host == self._host}
        for replica in self.replicas.values():
            self._set_wanted(replica, replica.spec.id in wanted)
        for spec in wanted.values():
            replica = self.replicas.setdefault(spec.id, Replica(spec, start_at=now))
            if replica.spec != spec:
                replica.spec, replica.failures, replica.start_at = spec, 0, now

    @staticmethod
    def _set_wanted(replica: Replica, is_wanted: bool) -> None:
        if is_wanted and not replica.is_wanted:
            replica.failures = 0
        replica.is_wanted = is_wanted

    # -------------------------------------------------------------------- what happened

    def started(self, replica_id: str, epoch: int, pid: int) -> None:
        if replica := self._current(replica_id, epoch):
            replica.pid = pid

    def told(
        self,
        replica_id: str,
        epoch: int,
        state: ReplicaState,
        now: float,
        *,
        reason: str = "",
        memory_bytes: int | None = None,
        load_s: float | None = None,
    ) -> None:
        """The worker says its state. Words of an older epoch, and of one being killed, do not count."""
        replica = self._current(replica_id, epoch)
        if replica is None or state not in _TOLD or replica.kills:
            return
        if memory_bytes is not None:
            replica.memory_bytes = memory_bytes
        if load_s is not None:
            replica.load_s = load_s
        if state == "failed":
            replica.last_words = reason[:_REASON_LENGTH]
            return  # the exit that follows decides between another try and a crash loop
        if replica.is_leaving and state != "draining":
            return
        if state == "ready":
            replica.ready_since = now if replica.ready_since is None else replica.ready_since
            replica.kill_at = None
        _move(replica, state, reason or ("" if state == "draining" else _restarted_after(replica)))

    def heard(self, replica_id: str, epoch: int, now: float) -> None:
        """The worker says that it lives."""
        if replica := self._current(replica_id, epoch):
            replica.heard_at = now

    def exited(self, replica_id: str, epoch: int, description: str, now: float) -> None:
        """The process is gone; `description` says how, and with which last words in its log."""
        replica = self._current(replica_id, epoch)
        if replica is None:
            return
        has_drained = replica.is_leaving or replica.state == "draining"
        if replica.ready_since is not None and now - replica.ready_since >= STABLE_AFTER_S:
            replica.failures = 0
        replica.is_running = replica.is_leaving = False
        replica.pid = replica.ready_since = replica.kill_at = replica.running_spec = replica.heard_at = None
        if has_drained:
            _move(replica, "stopped" if not replica.is_wanted else "pending", "drained")
            replica.start_at = now
        else:
            self._note_death(replica, replica.last_words or description, now)
        replica.last_words, replica.kills = "", 0

    def _note_death(self, replica: Replica, why: str, now: float) -> None:
        replica.failures += 1
        replica.last_death = why[:_REASON_LENGTH]
        pause_s = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0 ** min(replica.failures - 1, 16))
        replica.start_at = now + pause_s
        is_loop = replica.failures >= CRASH_LOOP_DEATHS
        _move(replica, "failed" if is_loop else "pending", f"{replica.last_death}; again in {pause_s:.1f} s")

    def _current(self, replica_id: str, epoch: int) -> Replica | None:
        replica = self.replicas.get(replica_id)
        return replica if replica and replica.is_running and replica.epoch == epoch else None

    # -------------------------------------------------------------------- what to do

    def step(self, now: float) -> list[Action]:
        """Everything due at `now`; call it after every event and at `next_due`."""
        if now - self._stepped_at > ABSENT_S:
            self._forgive_silence(now)
        self._stepped_at = now
        actions = []
        for replica in self.replicas.values():
            action = self._decide(replica, now)
            if action is not None:
                actions.append(action)
        return actions

    def _decide(self, replica: Replica, now: float) -> Action | None:
        if not replica.is_running:
            return self._while_not_running(replica, now)
        if replica.kill_at is not None and now >= replica.kill_at:
            reason = f"did not become ready within {START_TIMEOUT_S:.0f} s"
            return _kill(replica, now, "" if replica.is_leaving or replica.kills else reason)
        if replica.kill_at is None and _is_silent(replica, now):
            return _kill(replica, now, f"hung: it said nothing for {SILENT_S:.0f} s")
        if not replica.is_leaving and self._must_leave(replica):
            replica.is_leaving = True
            replica.kill_at = now + DRAIN_TIMEOUT_S
            _move(replica, "draining", "" if not replica.is_wanted else "its specification changed")
            return Drain(replica.spec.id, replica.epoch)
        return None

    def _forgive_silence(self, now: float) -> None:
        for replica in self.replicas.values():
            if replica.heard_at is not None:
                replica.heard_at = now

    @staticmethod
    def _must_leave(replica: Replica) -> bool:
        return not replica.is_wanted or replica.running_spec != replica.spec

    def _while_not_running(self, replica: Replica, now: float) -> Start | None:
        if not replica.is_wanted:
            _move(replica, "stopped", replica.reason if replica.state == "stopped" else "")
            return None
        version = self._versions.get(replica.spec.version_id)
        if version is None:
            _move(replica, "pending", f"waiting for version {replica.spec.version_id}")
            return None
        if now < replica.start_at:
            return None
        replica.restarts += replica.epoch > 0
        replica.epoch = self._next_epoch()
        replica.is_running, replica.running_spec = True, replica.spec
        replica.kill_at = now + START_TIMEOUT_S
        _move(replica, "starting", _restarted_after(replica))
        return Start(replica.spec, version, replica.epoch)

    def next_due(self, now: float) -> float | None:
        """When `step` has something to do without an event, in the same clock; None for never."""
        times = [replica.kill_at for replica in self.replicas.values() if replica.kill_at is not None]
        times += [
            replica.heard_at + SILENT_S
            for replica in self.replicas.values()
            if replica.heard_at is not None and replica.kill_at is None
        ]
        times += [replica.start_at for replica in self.replicas.values() if self._can_start(replica)]
        return min((max(time, now) for time in times), default=None)

    def _can_start(self, replica: Replica) -> bool:
        is_due = replica.is_wanted and not replica.is_running
        return is_due and replica.spec.version_id in self._versions

    @property
    def is_idle(self) -> bool:
        """No process is left."""
        return not any(replica.is_running for replica in self.replicas.values())

    # -------------------------------------------------------------------- what to say

    def reports(self, now: float, at: float) -> list[ReplicaReport]:
        """Replicas that changed, and all others once in a while; `at` is the wall clock for the report.

        A stopped replica that nobody wants is reported once and forgotten.
        """
        due = [replica for replica in self.replicas.values() if _is_due(replica, now)]
        for replica in due:
            replica.is_changed, replica.reported_at = False, now
            if replica.state == "stopped" and not replica.is_wanted:
                del self.replicas[replica.spec.id]
        return [self._report(replica, at) for replica in due]

    def _report(self, replica: Replica, at: float) -> ReplicaReport:
        return ReplicaReport(
            replica_id=replica.spec.id,
            version_id=(replica.running_spec or replica.spec).version_id,
            host=self._host,
            epoch=replica.epoch,
            state=replica.state,
            reason=replica.reason,
            pid=replica.pid,
            restarts=replica.restarts,
            memory_bytes=replica.memory_bytes,
            load_s=replica.load_s,
            at=at,
        )


def _restarted_after(replica: Replica) -> str:
    return f"restarted after: {replica.last_death}" if replica.last_death else ""


def _move(replica: Replica, state: ReplicaState, reason: str) -> None:
    if (replica.state, replica.reason) != (state, reason):
        replica.state, replica.reason, replica.is_changed = state, reason, True


def _is_silent(replica: Replica, now: float) -> bool:
    return replica.heard_at is not None and now - replica.heard_at >= SILENT_S


def _kill(replica: Replica, now: float, reason: str) -> Kill:
    """Repeated until the exit is seen: a process in an uninterruptible wait takes its time."""
    replica.kills += 1
    replica.kill_at = now + 5.0
    if reason:
        replica.last_words = reason
    return Kill(replica.spec.id, replica.epoch)


def _is_due(replica: Replica, now: float) -> bool:
    last = replica.reported_at
    return replica.is_changed or last is None or now - last >= REPORT_EVERY_S
