"""The supervisor in virtual time: what it starts, drains, kills and says."""

from __future__ import annotations

import itertools

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from serving.agent.states import Drain, Kill, Start
from serving.agent.supervisor import (
    CRASH_LOOP_DEATHS,
    DRAIN_TIMEOUT_S,
    FIRST_PAUSE_S,
    LONGEST_PAUSE_S,
    REPORT_EVERY_S,
    SILENT_S,
    STABLE_AFTER_S,
    START_TIMEOUT_S,
    Supervisor,
)
from serving.contract import ReplicaSpec, VersionEntry

HOST = "here"


def version(identifier: str = "mv_1") -> VersionEntry:
    return VersionEntry(
        id=identifier, model="m", number=1, engine="echo", artifact_sha256="", artifact_path="/nowhere"
    )


def spec(identifier: str = "rep_1", **changes: object) -> ReplicaSpec:
    fields = {"id": identifier, "version_id": "mv_1", "host": HOST, "address": f"unix:/r/{identifier}"}
    return ReplicaSpec(**(fields | changes))


VERSIONS = {"mv_1": version()}


def fresh() -> Supervisor:
    counter = itertools.count(1)
    return Supervisor(HOST, lambda: next(counter))


def running(now: float = 0.0) -> Supervisor:
    supervisor = fresh()
    supervisor.want([spec()], VERSIONS, now)
    supervisor.step(now)
    supervisor.told("rep_1", 1, "ready", now)
    return supervisor


def test_a_wanted_replica_is_started_once():
    supervisor = fresh()
    supervisor.want([spec()], VERSIONS, 0.0)
    assert supervisor.step(0.0) == [Start(spec(), VERSIONS["mv_1"], 1)]
    assert supervisor.step(0.0) == []


def test_replicas_of_other_hosts_are_left_alone():
    supervisor = fresh()
    supervisor.want([spec(host="elsewhere")], VERSIONS, 0.0)
    assert supervisor.step(0.0) == []
    assert supervisor.reports(0.0, 0.0) == []


def test_a_replica_waits_for_its_version_without_keeping_the_agent_awake():
    supervisor = fresh()
    supervisor.want([spec()], {}, 0.0)
    assert supervisor.step(0.0) == []
    assert supervisor.next_due(0.0) is None
    [report] = supervisor.reports(0.0, 0.0)
    assert (report.state, report.reason) == ("pending", "waiting for version mv_1")
    supervisor.want([spec()], VERSIONS, 1.0)
    assert isinstance(supervisor.step(1.0)[0], Start)


def test_the_first_restart_comes_quickly_and_under_a_greater_epoch():
    supervisor = running()
    supervisor.exited("rep_1", 1, "the worker was killed by SIGKILL", 50.0)
    assert supervisor.step(50.0) == []
    assert supervisor.next_due(50.0) == 50.0 + FIRST_PAUSE_S
    assert supervisor.step(50.0 + FIRST_PAUSE_S) == [Start(spec(), VERSIONS["mv_1"], 2)]


def test_a_restarted_replica_says_what_ended_the_start_before():
    supervisor = running()
    supervisor.exited("rep_1", 1, "the worker was killed by SIGKILL", 50.0)
    supervisor.step(50.0 + FIRST_PAUSE_S)
    supervisor.told("rep_1", 2, "ready", 53.0)
    [report] = supervisor.reports(53.0, 0.0)
    assert (report.state, report.reason) == ("ready", "restarted after: the worker was killed by SIGKILL")


def test_a_crash_loop_slows_down_is_called_failed_with_its_reason_and_is_still_tried():
    supervisor = fresh()
    supervisor.want([spec()], VERSIONS, 0.0)
    now, pauses = 0.0, []
    for _ in range(12):
        [start] = supervisor.step(now)
        supervisor.exited("rep_1", start.epoch, "no such file", now)
        due = supervisor.next_due(now)
        pauses.append(due - now)
        now = due
    assert pauses == sorted(pauses)
    assert pauses[-1] == LONGEST_PAUSE_S
    [report] = supervisor.reports(now, 0.0)
    assert report.state == "failed"
    assert "no such file" in report.reason
    assert report.restarts == 11


def test_the_workers_own_reason_wins_over_how_it_exited():
    supervisor = running()
    supervisor.told("rep_1", 1, "failed", 1.0, reason="out of memory")
    supervisor.exited("rep_1", 1, "the worker ended with code 1", 1.1)
    [report] = supervisor.reports(1.1, 0.0)
    assert report.reason.startswith("out of memory")


def test_a_stable_replica_is_forgiven():
    supervisor = running()
    for number in range(CRASH_LOOP_DEATHS + 2):
        now = (number + 1) * (STABLE_AFTER_S + 1)
        epoch = supervisor.replicas["rep_1"].epoch
        supervisor.exited("rep_1", epoch, "gone", now)
        supervisor.step(now + FIRST_PAUSE_S)
        assert supervisor.replicas["rep_1"].state == "starting"
        supervisor.told("rep_1", epoch + 1, "ready", now + FIRST_PAUSE_S)


def test_an_unwanted_replica_drains_and_is_reported_stopped_once():
    supervisor = running()
    supervisor.want([], VERSIONS, 1.0)
    assert supervisor.step(1.0) == [Drain("rep_1", 1)]
    assert supervisor.step(2.0) == []
    supervisor.exited("rep_1", 1, "", 3.0)
    [report] = supervisor.reports(3.0, 0.0)
    assert report.state == "stopped"
    assert supervisor.reports(99.0, 0.0) == []
    assert supervisor.is_idle


def test_a_drain_that_takes_too_long_ends_in_a_kill():
    supervisor = running()
    supervisor.want([], VERSIONS, 1.0)
    supervisor.step(1.0)
    assert supervisor.step(1.0 + DRAIN_TIMEOUT_S) == [Kill("rep_1", 1)]


def test_a_start_that_hangs_is_killed_and_says_so():
    supervisor = fresh()
    supervisor.want([spec()], VERSIONS, 0.0)
    supervisor.step(0.0)
    assert supervisor.step(START_TIMEOUT_S) == [Kill("rep_1", 1)]
    supervisor.exited("rep_1", 1, "the worker was killed by SIGKILL", START_TIMEOUT_S + 1)
    [report] = supervisor.reports(START_TIMEOUT_S + 1, 0.0)
    assert report.reason.startswith("did not become ready within 600 s")


def beat(supervisor: Supervisor, start: float, seconds: float, *, is_alive: bool) -> list[object]:
    """Steps once a second; what the supervisor wanted done on the way."""
    actions: list[object] = []
    for second in range(round(seconds)):
        if is_alive:
            supervisor.heard("rep_1", 1, start + second)
        actions += supervisor.step(start + second)
    return actions


def test_a_worker_that_stops_saying_that_it_lives_is_killed_and_says_so():
    supervisor = running()
    assert beat(supervisor, 1.0, 100, is_alive=True) == []
    assert beat(supervisor, 101.0, SILENT_S + 1, is_alive=False) == [Kill("rep_1", 1)]
    supervisor.exited("rep_1", 1, "the worker was killed by SIGKILL", 140.0)
    assert "hung" in supervisor.replicas["rep_1"].reason
    assert [type(action) for action in supervisor.step(141.0)] == [Start]
    assert beat(supervisor, 142.0, SILENT_S * 2, is_alive=False) == []


def test_silence_while_the_agent_itself_stood_still_proves_nothing():
    supervisor = running()
    assert beat(supervisor, 1.0, 10, is_alive=True) == []
    assert supervisor.step(500.0) == []
    assert beat(supervisor, 501.0, 10, is_alive=True) == []


def test_a_changed_specification_drains_the_old_worker_before_the_new_one_starts():
    supervisor = running()
    changed = spec(threads=2)
    supervisor.want([changed], VERSIONS, 1.0)
    assert supervisor.step(1.0) == [Drain("rep_1", 1)]
    supervisor.exited("rep_1", 1, "", 2.0)
    assert supervisor.step(2.0) == [Start(changed, VERSIONS["mv_1"], 2)]


def test_words_of_an_older_epoch_do_not_count():
    supervisor = running()
    supervisor.exited("rep_1", 1, "gone", 1.0)
    supervisor.step(2.0)
    supervisor.told("rep_1", 1, "ready", 2.1)
    supervisor.exited("rep_1", 1, "gone", 2.2)
    assert supervisor.replicas["rep_1"].state == "starting"


def test_unchanged_replicas_are_reported_again_once_in_a_while():
    supervisor = running()
    assert len(supervisor.reports(0.0, 0.0)) == 1
    assert supervisor.reports(REPORT_EVERY_S - 0.1, 0.0) == []
    assert len(supervisor.reports(REPORT_EVERY_S, 0.0)) == 1


class SupervisorMachine(RuleBasedStateMachine):
    """Whatever is wanted, said and dies in whatever order: the promises hold."""

    def __init__(self) -> None:
        super().__init__()
        self.supervisor = fresh()
        self.now = 0.0
        self.alive: dict[str, int] = {}
        self.wanted: set[str] = set()
        self.last_epoch = 0
        self.drained_at: dict[str, float] = {}

    @rule(names=st.sets(st.sampled_from(["a", "b", "c"])), threads=st.integers(1, 2))
    def want(self, names: set[str], threads: int) -> None:
        self.wanted = names
        self.supervisor.want([spec(name, threads=threads) for name in sorted(names)], VERSIONS, self.now)

    @rule(seconds=st.floats(0.0, 20.0))
    def step(self, seconds: float) -> None:
        self.now += seconds
        for action in self.supervisor.step(self.now):
            match action:
                case Start(asked, _, epoch):
                    assert asked.id in self.wanted
                    assert asked.id not in self.alive, "two workers of one replica"
                    assert epoch > self.last_epoch, "an epoch was used twice"
                    self.last_epoch = self.alive[asked.id] = epoch
                case Drain(name, epoch):
                    assert self.alive[name] == epoch
                    assert name not in self.drained_at, "drained twice"
                    self.drained_at[name] = self.now
                case Kill(name, epoch):
                    assert self.alive[name] == epoch
                    assert self.now - self.drained_at.get(name, -START_TIMEOUT_S) >= DRAIN_TIMEOUT_S

    @precondition(lambda self: self.alive)
    @rule(data=st.data(), state=st.sampled_from(["loading", "ready", "failed", "draining"]))
    def say(self, data: st.DataObject, state: str) -> None:
        name = data.draw(st.sampled_from(sorted(self.alive)))
        self.supervisor.told(name, self.alive[name], state, self.now)

    @precondition(lambda self: self.alive)
    @rule(data=st.data())
    def die(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.alive)))
        self.supervisor.exited(name, self.alive.pop(name), "gone", self.now)
        self.drained_at.pop(name, None)

    @rule()
    def report(self) -> None:
        self.supervisor.reports(self.now, 0.0)

    @invariant()
    def wishes_come_true_unless_a_pause_is_running(self) -> None:
        for name in self.wanted - set(self.alive):
            assert self.supervisor.next_due(self.now) is not None
            assert self.supervisor.replicas[name].start_at <= self.now + LONGEST_PAUSE_S

    @invariant()
    def nothing_alive_is_forgotten(self) -> None:
        assert set(self.alive) <= set(self.supervisor.replicas)
        assert self.supervisor.is_idle == (not self.alive)


SupervisorMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestSupervisorMachine = SupervisorMachine.TestCase
