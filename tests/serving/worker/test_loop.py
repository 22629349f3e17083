"""The engine thread, one step at a time, on a clock that the test moves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest

from serving.contract import CostCurve
from serving.errors import EngineFailed, OutOfMemory
from serving.scheduling.cost import CostModel
from serving.scheduling.scheduler import Scheduler
from serving.scheduling.work import Work
from serving.wire import Amend, Infer, Stages
from serving.worker import requests
from serving.worker.engines.contract import (
    DeviceLost,
    EngineInput,
    EngineOutput,
    Run,
    Signature,
    Tensor,
)
from serving.worker.loop import STUCK_AFTER_S, BatchRun, EngineLoop, Notice, Settled
from serving.worker.requests import Request
from tests.serving.worker.links import request as infer

LAYERS = 4
LAYER_S = 0.01


@dataclass
class Clock:
    now: float = 100.0

    def __call__(self) -> float:
        return self.now


@dataclass
class LayeredEngine:
    """Takes `LAYER_S` per layer on the test's clock and pauses between layers."""

    clock: Clock
    during_layer: Callable[[int, Sequence[EngineInput]], None] = lambda layer, inputs: None
    trace: list[str] = field(default_factory=list)
    can_yield: bool = True
    max_batch_rows: int = 64
    max_tokens: int = 0

    def run(self, inputs: Sequence[EngineInput]) -> Run:
        name = "+".join(str(int(item.tensors["x"].array.flat[0])) for item in inputs)
        for layer in range(LAYERS):
            if layer:
                yield
            self.trace.append(f"{name}@{layer}")
            self.clock.now += LAYER_S
            self.during_layer(layer, inputs)
        return [EngineOutput({"y": item.tensors["x"]}) for item in inputs]

    def load(self) -> None: ...

    def warm_up(self) -> None: ...

    def signature(self) -> Signature:
        return Signature((), ())

    def check(self, item: EngineInput) -> None: ...

    def executed_tokens(self, inputs: Sequence[EngineInput]) -> int:
        return sum(item.rows for item in inputs)

    def notes(self) -> tuple[str, ...]:
        return ()

    def sample(self, rows: int, tokens: int) -> EngineInput:
        return EngineInput(rows, {"x": Tensor("FP32", np.zeros((rows, 1), np.float32))})


class Bench:
    """A loop without a thread or an intake: submit, step, look at what was settled."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.engine = LayeredEngine(self.clock)
        self.cost = CostModel(CostCurve(a_ms=40.0, b_ms_per_row=0.0, c_ms_per_token=0.1))
        scheduler = Scheduler(64, self.cost, can_yield=True, segments=LAYERS)
        self.settled: list[Settled] = []
        self.notices: list[Notice] = []
        self.loop = EngineLoop(
            self.engine, scheduler, self.settled.append, self.clock, notify=self.notices.append
        )

    def submit(self, value: int, sla_class: str = "batch", **fields: object) -> Request:
        item = EngineInput(1, {"x": Tensor("FP32", np.full((1, 1), value, np.float32))})
        header: Infer = infer(sla_class=sla_class, tenant_id=f"tnt_{sla_class}", **fields)
        request = Request(None, value, self.clock.now, 4)
        works = requests.cut(request, header, item, 64)
        assert self.loop.submit([works]) == [None]
        return request

    def step(self) -> None:
        """One batch (and what interrupts it), then everything that was settled is handed over."""
        assert self.loop.step()
        self.loop._hand_over()

    @property
    def runs(self) -> list[BatchRun]:
        return [run for settled in self.settled for run in settled.runs]


@pytest.fixture
def bench() -> Bench:
    return Bench()


def values(works: list[Work]) -> list[int]:
    return [work.payload.request.id for work in works]


def test_urgent_work_runs_at_the_next_layer_boundary(bench: Bench) -> None:
    def arrive(layer: int, inputs: Sequence[EngineInput]) -> None:
        if inputs[0].tensors["x"].array[0, 0] == 1 and layer == 1:
            bench.submit(2, "interactive", target_us=200_000)

    bench.engine.during_layer = arrive
    bench.submit(1)
    bench.step()
    assert bench.engine.trace == ["1@0", "1@1", "2@0", "2@1", "2@2", "2@3", "1@2", "1@3"]


def test_urgent_work_that_arrives_together_is_merged(bench: Bench) -> None:
    def arrive(layer: int, inputs: Sequence[EngineInput]) -> None:
        if inputs[0].tensors["x"].array[0, 0] == 1 and layer == 1:
            for value in (2, 3, 4):
                bench.submit(value, "interactive", target_us=200_000)

    bench.engine.during_layer = arrive
    bench.submit(1)
    bench.step()
    assert [values(run.batch.works) for run in bench.runs] == [[2, 3, 4], [1]]


def test_bulk_work_interrupts_nothing(bench: Bench) -> None:
    def arrive(layer: int, inputs: Sequence[EngineInput]) -> None:
        if inputs[0].tensors["x"].array[0, 0] == 1 and layer == 1:
            bench.submit(2, "batch")

    bench.engine.during_layer = arrive
    bench.submit(1)
    bench.step()
    bench.step()
    assert bench.engine.trace == [f"1@{n}" for n in range(LAYERS)] + [f"2@{n}" for n in range(LAYERS)]


def test_new_terms_reach_what_waits_and_not_what_runs(bench: Bench) -> None:
    waiting: list[Request] = []

    def change(layer: int, inputs: Sequence[EngineInput]) -> None:
        if layer == 1 and not waiting[1:]:
            waiting.append(waiting[0])
            amend = Amend("interactive", 200_000, 1.0, 64, 0, 1024, "refuse", 200_000)
            works = [work for request in (running, waiting[0]) for work in request.works]
            bench.loop.amend([(works, requests.terms(amend, bench.clock.now))])

    running = bench.submit(1)
    bench.engine.during_layer = lambda layer, inputs: None
    waiting.append(bench.submit(2, max_batch_size=1))
    bench.engine.during_layer = change
    bench.step()
    assert bench.engine.trace[:3] == ["1@0", "1@1", "2@0"]
    assert [run.batch.works[0].sla_class for run in bench.runs] == ["interactive", "batch"]


def test_an_interrupted_batch_is_charged_only_its_own_time(bench: Bench) -> None:
    def arrive(layer: int, inputs: Sequence[EngineInput]) -> None:
        if inputs[0].tensors["x"].array[0, 0] == 1 and layer == 1:
            bench.submit(2, "interactive", target_us=200_000)

    bench.engine.during_layer = arrive
    bulk = bench.submit(1)
    bench.step()
    urgent_run, bulk_run = bench.runs
    assert bulk_run.execute_s == pytest.approx(LAYERS * LAYER_S)
    assert bulk_run.ended - bulk_run.started == pytest.approx(2 * LAYERS * LAYER_S)
    stages = settle(bulk, bulk_run, bench.clock.now)
    assert stages.interrupted_us == pytest.approx(urgent_run.execute_s * 1e6, abs=2)
    assert stages.device_us == 40_000


def test_the_stages_sum_to_the_time_since_arrival(bench: Bench) -> None:
    request = bench.submit(1)
    bench.clock.now += 0.0123456
    bench.step()
    bench.clock.now += 0.0011111
    stages = settle(request, bench.runs[0], bench.clock.now)
    parts = (stages.queue_us, stages.batch_wait_us, stages.execute_us, stages.interrupted_us, stages.post_us)
    assert sum(parts) == round((bench.clock.now - request.arrived) * 1e6)
    assert stages.queue_us == 12346
    assert stages.post_us == pytest.approx(1111, abs=1)


def test_answers_are_handed_over_when_the_next_batch_is_chosen(bench: Bench) -> None:
    bench.submit(1)
    bench.loop.step()
    assert not bench.runs
    bench.submit(2)
    seen_at_layer: list[int] = []
    bench.engine.during_layer = lambda layer, inputs: seen_at_layer.append(len(bench.runs))
    bench.loop.step()
    assert seen_at_layer == [1] * LAYERS


def test_expired_work_is_refused_not_run(bench: Bench) -> None:
    bench.submit(1, budget_us=100_000, late_policy="refuse")
    bench.submit(2)
    bench.clock.now += 1.0
    bench.step()
    refused = [(values([work])[0], refusal.code) for each in bench.settled for work, refusal in each.expired]
    assert refused == [(1, "deadline_unattainable")]
    assert [values(run.batch.works) for run in bench.runs] == [[2]]


def test_a_drained_loop_ends_after_what_was_queued(bench: Bench) -> None:
    bench.submit(1)
    bench.loop.drain()
    assert bench.loop.step()
    assert not bench.loop.step()
    assert values(bench.runs[0].batch.works) == [1]


def test_only_the_culprit_of_a_failed_batch_fails(bench: Bench) -> None:
    def fail(layer: int, inputs: Sequence[EngineInput]) -> None:
        if layer == 2 and any(item.tensors["x"].array[0, 0] == 3 for item in inputs):
            raise RuntimeError("cannot do 3")

    bench.engine.during_layer = fail
    for value in range(1, 7):
        bench.submit(value)
    bench.step()
    (run,) = bench.runs
    failed = [
        value
        for value, outcome in zip(values(run.batch.works), run.outcomes, strict=True)
        if isinstance(outcome, EngineFailed)
    ]
    assert failed == [3]


def test_a_batch_out_of_memory_is_retried_in_halves(bench: Bench) -> None:
    def exhaust(layer: int, inputs: Sequence[EngineInput]) -> None:
        if len(inputs) > 2:
            raise OutOfMemory("no room")

    bench.engine.during_layer = exhaust
    for value in range(1, 5):
        bench.submit(value)
    bench.step()
    assert all(isinstance(outcome, EngineOutput) for outcome in bench.runs[0].outcomes)


def test_halves_are_halved_again_until_they_fit(bench: Bench) -> None:
    def exhaust(layer: int, inputs: Sequence[EngineInput]) -> None:
        if len(inputs) > 1:
            raise OutOfMemory("no room")

    bench.engine.during_layer = exhaust
    for value in range(1, 9):
        bench.submit(value)
    bench.step()
    assert all(isinstance(outcome, EngineOutput) for outcome in bench.runs[0].outcomes)


def test_running_out_of_memory_teaches_a_limit_and_is_told(bench: Bench) -> None:
    def exhaust(layer: int, inputs: Sequence[EngineInput]) -> None:
        if len(inputs) > 2:
            raise OutOfMemory("no room")

    bench.engine.during_layer = exhaust
    for value in range(1, 17):
        bench.submit(value)
    bench.step()
    [notice] = bench.notices
    assert notice.event == "batch.out_of_memory"
    assert notice.numbers == {"batch_tokens": 16, "failed_tokens": 4, "cap_tokens": 2}
    bench.submit(17)
    bench.submit(18)
    bench.submit(19)
    bench.step()
    assert bench.runs[-1].batch.rows == 2


def test_one_input_that_never_fits_shrinks_nobody_elses_batches(bench: Bench) -> None:
    def exhaust(layer: int, inputs: Sequence[EngineInput]) -> None:
        if any(item.tensors["x"].array[0, 0] == 3 for item in inputs):
            raise OutOfMemory("no room")

    for value in range(11, 19):
        bench.submit(value)
    bench.step()
    bench.engine.during_layer = exhaust
    for value in range(1, 9):
        bench.submit(value)
    bench.step()
    [run] = bench.runs[1:]
    refused = [isinstance(outcome, OutOfMemory) for outcome in run.outcomes]
    assert [value for value, no in zip(values(run.batch.works), refused, strict=True) if no] == [3]
    for value in range(21, 29):
        bench.submit(value)
    bench.step()
    assert bench.runs[-1].batch.rows >= 7


def test_parts_that_do_not_fit_by_themselves_are_refused(bench: Bench) -> None:
    def exhaust(layer: int, inputs: Sequence[EngineInput]) -> None:
        raise OutOfMemory("no room")

    bench.engine.during_layer = exhaust
    for value in range(1, 5):
        bench.submit(value)
    bench.step()
    assert [type(outcome) for outcome in bench.runs[0].outcomes] == [OutOfMemory] * 4
    assert len(bench.engine.trace) <= 2 * 4 - 1


def test_a_lost_device_ends_the_loop(bench: Bench) -> None:
    def die(layer: int, inputs: Sequence[EngineInput]) -> None:
        raise DeviceLost("the device failed")

    bench.engine.during_layer = die
    bench.submit(1)
    with pytest.raises(DeviceLost):
        bench.loop.run()


def test_a_batch_that_stands_still_far_beyond_its_prediction_is_noticed(bench: Bench) -> None:
    noticed: list[bool] = []

    def hang(layer: int, inputs: Sequence[EngineInput]) -> None:
        noticed.append(bench.loop.is_stuck)
        if layer == 2:
            bench.clock.now += STUCK_AFTER_S
            noticed.append(bench.loop.is_stuck)

    bench.engine.during_layer = hang
    bench.submit(1)
    bench.step()
    assert noticed == [False, False, False, True, False]
    bench.clock.now += 10 * STUCK_AFTER_S
    assert not bench.loop.is_stuck


def test_counters_count_since_they_were_taken(bench: Bench) -> None:
    bench.submit(1)
    bench.submit(2)
    assert bench.loop.take_counters().queued_rows == 2
    bench.step()
    counters = bench.loop.take_counters()
    assert (counters.batches, counters.rows, counters.tokens, counters.running_rows) == (1, 2, 2, 0)
    assert counters.busy_us == pytest.approx(LAYERS * LAYER_S * 1e6, abs=2)
    assert bench.loop.take_counters().batches == 0


def settle(request: Request, run: BatchRun, now: float) -> Stages:
    work = request.works[0]
    index = run.batch.works.index(work)
    request.ran(work, run, run.shares_us[index])
    assert request.settle(0, run.outcomes[index])
    stages = requests.stages(request, now)
    assert stages is not None
    return stages
