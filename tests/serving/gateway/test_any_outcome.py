"""Whatever workers and clients do: every request has exactly one outcome, and nothing is left behind."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Sequence
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from serving.contract import ProfileEntry, ReplicaSpec, VersionEntry
from serving.errors import ClientClosedRequest, DataPlaneError, QuotaExhausted
from serving.gateway.dispatch import Dispatcher, OnCovered
from serving.gateway.metrics import Metrics
from serving.gateway.pending import Answer, Payload, Pending
from serving.gateway.replicas import STUCK_S
from serving.gateway.retries import RESERVE, SHARE
from serving.gateway.routing import Lane
from serving.wire import Failure, Result, Stages

TENANTS = ("tnt_a", "tnt_b", "tnt_c")
CODES = ("engine_failed", "out_of_memory", "draining", "invalid_tensor", "deadline_unattainable", "cancelled")
STAGES = Stages(1, 1, 1, 0, 1, 1, 1, 1, 1, 1, 1, "full")

step = st.tuples(
    st.sampled_from(
        ["send"] * 4
        + ["answer"] * 2
        + ["fail", "die", "come back", "abandon", "expire", "second", "say", "say"]
    ),
    st.integers(0, 1000),
)


class FakeLink:
    """Takes frames; nobody answers by itself."""

    def send(self, pieces: Sequence[bytes]) -> None: ...

    def close(self) -> None: ...


class World:
    """Two replicas of one version without sockets."""

    def __init__(self) -> None:
        self.late_us = 0
        self.dispatcher = Dispatcher(self._late, self._cover)
        self.asked: list[tuple[Pending, OnCovered]] = []
        """Failed, and whether their limits allow another try is not known yet."""
        pool = self.dispatcher.pool
        pool.update(
            ReplicaSpec(id=f"rep_{n}", version_id="mv_a", host="h", address="unix:/nowhere") for n in range(2)
        )
        self.replicas = list(pool.replicas.values())
        for replica in self.replicas:
            replica._task.cancel()
            self.come_back(replica)
        self.now = 0.0
        self.outcomes: dict[int, list[Answer | DataPlaneError]] = {}
        self.pendings: list[Pending] = []
        self.refused = 0
        self.lanes = [_lane(tenant, policy) for tenant in TENANTS for policy in ("refuse", "run")]

    def _late(self, pending: Pending, stages: Stages) -> None:
        self.late_us += stages.device_us

    def _cover(self, pending: Pending, on_known: OnCovered) -> None:
        assert pending.payload is not None
        self.asked.append((pending, on_known))

    def say(self, number: int) -> None:
        """Whether those who asked may be tried again."""
        asked, self.asked = self.asked, []
        for _, on_known in asked:
            on_known(QuotaExhausted("no") if number % 3 == 0 else None)

    def send(self, number: int) -> None:
        lane = self.lanes[number % len(self.lanes)]
        got: list[Answer | DataPlaneError] = []
        payload = Payload(1, 1, (), (), [b"x"])
        deadline = self.dispatcher._wheel._next * 0.02 + 1.0
        try:
            pending = self.dispatcher.submit(lane, "key_a", payload, deadline, got.append)
        except DataPlaneError:
            self.refused += 1
            return
        self.pendings.append(pending)
        self.outcomes[pending.id] = got

    def flying(self, number: int) -> tuple[Any, Pending] | None:
        every = [(replica, p) for replica in self.replicas for p in replica.in_flight.values()]
        return every[number % len(every)] if every else None

    def answer(self, number: int) -> None:
        if (found := self.flying(number)) is not None:
            replica, pending = found
            replica._take(pending.id)
            self.dispatcher.on_result(pending, Result(STAGES, ()), memoryview(b""))

    def fail(self, number: int) -> None:
        if (found := self.flying(number)) is not None:
            replica, pending = found
            replica._take(pending.id)
            self.dispatcher.on_failure(
                pending, Failure(CODES[number % len(CODES)], "no", {}, 0, STAGES if number % 2 else None)
            )

    def die(self, replica: Any) -> None:
        if replica.link is not None:
            replica.on_lost(replica.link)

    def come_back(self, replica: Any) -> None:
        if replica.link is None:
            replica.link = FakeLink()
            replica.epoch += 1
            replica.breaker.renewed(0.0)
            replica._set_accepting(True)

    def do(self, what: str, number: int) -> None:
        match what:
            case "send":
                self.send(number)
            case "answer":
                self.answer(number)
            case "fail":
                self.fail(number)
            case "die":
                self.die(self.replicas[number % 2])
            case "come back":
                self.come_back(self.replicas[number % 2])
            case "say":
                self.say(number)
            case "abandon" if self.pendings:
                self.dispatcher.abandon(self.pendings[number % len(self.pendings)])
            case "expire":
                self.dispatcher.expire(self.dispatcher._wheel._next * 0.02 + 0.5 * (number % 3))
            case "second":
                for _ in range(50):
                    self.dispatcher._look_around(self.now)
                self.now += 1.0

    def check(self) -> None:
        open_now = [pending for pending in self.pendings if pending.is_open]
        assert self.dispatcher.in_flight == len(open_now)
        asking = {pending.id for pending, _ in self.asked}
        flying = {pending.id for replica in self.replicas for pending in replica.in_flight.values()}
        for pending in self.pendings:
            got = self.outcomes[pending.id]
            assert len(got) == (0 if pending.is_open else 1)
            assert not pending.is_open or pending.id in asking | flying
        for replica in self.replicas:
            there = list(replica.in_flight.values())
            assert replica.outstanding_us == sum(pending.predicted_us for pending in there)
            probes = [pending.probe for pending in there if pending.probe is not None]
            claimed = [id(circuit) for probe in probes for circuit in probe.circuits]
            assert len(claimed) == len(set(claimed))
            assert probes or not any(replica.breaker.is_probed_for(tenant) for tenant in TENANTS)
        served = self.dispatcher.pool.of("mv_a")
        assert served.budget.spent <= RESERVE + SHARE * served.sent


async def play(steps: list[tuple[str, int]]) -> None:
    random.seed(0)
    world = World()
    for what, number in steps:
        world.do(what, number)
        world.check()
    world.say(1)
    while world.flying(0) is not None:
        world.answer(0)
    world.check()
    assert world.dispatcher.in_flight == 0
    for pending in world.pendings:
        (outcome,) = world.outcomes[pending.id]
        assert isinstance(outcome, Answer | DataPlaneError)
        assert pending.payload is None
    assert len(world.pendings) + world.refused == sum(what == "send" for what, _ in steps)
    world.dispatcher.close()


@settings(max_examples=150, deadline=None)
@given(st.lists(step, max_size=150))
def test_every_request_has_exactly_one_outcome_and_nothing_is_left_behind(
    steps: list[tuple[str, int]],
) -> None:
    asyncio.run(play(steps))


async def test_an_abandoned_request_is_told_once() -> None:
    world = World()
    world.send(0)
    for _ in range(3):
        world.dispatcher.abandon(world.pendings[0])
    (outcome,) = world.outcomes[world.pendings[0].id]
    assert isinstance(outcome, ClientClosedRequest)
    world.answer(0)
    assert world.late_us == STAGES.device_us
    world.dispatcher.close()


async def test_a_replica_is_stuck_only_while_it_has_work_and_answers_nobody() -> None:
    world, idle_until = World(), time.monotonic() + 100.0
    for replica in world.replicas:
        replica.look(idle_until)
    for number in range(4):
        world.send(number)
    pending = world.pendings[-1]
    replica = pending.replica
    assert replica is not None and len(replica.in_flight) == 2
    replica.look(idle_until + STUCK_S)
    assert not replica.is_stuck(pending, idle_until + STUCK_S / 2)
    assert replica.is_stuck(pending, idle_until + STUCK_S)
    replica._take(next(iter(replica.in_flight)))
    assert not replica.is_stuck(pending, idle_until + STUCK_S)
    world.dispatcher.close()


def _lane(tenant_id: str, late_policy: Any) -> Lane:
    version = VersionEntry(
        id="mv_a", model="m", number=1, engine="echo", artifact_sha256="", artifact_path=""
    )
    series = Metrics().series(tenant_id, "m", "mv_a", "infer", "standard")
    return Lane(tenant_id, version, ProfileEntry(id="pro_a", name="a", late_policy=late_policy), series)
