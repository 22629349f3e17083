"""Engines and inputs that break their word: the worker lives, everyone gets exactly one outcome."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from serving.errors import EngineFailed, OutOfMemory
from serving.worker import requests
from serving.worker.engines.contract import (
    Emission,
    EngineInput,
    EngineOutput,
    Finished,
    Run,
    Stalled,
    Tensor,
)
from serving.worker.loop import STUCK_AFTER_S, STUCK_STEPS
from serving.worker.requests import Request
from tests.serving.worker.links import request as infer
from tests.serving.worker.test_loop import Bench, values


def _x(item: EngineInput) -> int:
    return int(item.tensors["x"].array.flat[0])


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_an_input_that_never_fits_never_shrinks_batches_however_often_it_comes(bench: Bench) -> None:
    def exhaust(layer: int, inputs: Sequence[EngineInput]) -> None:
        if any(_x(item) == 3 for item in inputs):
            raise OutOfMemory("no room")

    bench.engine.during_layer = exhaust
    for _ in range(64):
        for value in range(1, 17):
            bench.submit(value)
        bench.step()
        while bench.loop._scheduler.queued_work:
            bench.step()
    for value in range(21, 37):
        bench.submit(value)
    bench.step()
    assert bench.runs[-1].batch.rows == 16


def test_an_input_alone_that_does_not_fit_teaches_no_limit(bench: Bench) -> None:
    def exhaust(layer: int, inputs: Sequence[EngineInput]) -> None:
        if any(_x(item) == 3 for item in inputs):
            raise OutOfMemory("no room")

    bench.engine.during_layer = exhaust
    bench.submit(3)
    bench.step()
    for value in range(21, 37):
        bench.submit(value)
    bench.step()
    assert bench.runs[-1].batch.rows == 16


@pytest.mark.parametrize("returned", [None, 7, [None, None], ["no", "no"], [EngineOutput()]])
def test_an_engine_that_returns_no_outcomes_fails_the_batch_not_the_worker(
    bench: Bench, returned: object
) -> None:
    def run(inputs: Sequence[EngineInput]) -> Run:
        yield
        return returned  # type: ignore[return-value]

    bench.engine.run = run  # type: ignore[method-assign]
    bench.submit(1)
    bench.submit(2)
    bench.step()
    assert [type(outcome) for outcome in bench.runs[0].outcomes] == [EngineFailed] * 2


FOREIGN = EngineInput(1, {"x": Tensor("FP32", np.zeros((1, 1), np.float32))})


@pytest.mark.parametrize(
    "step",
    [
        7,
        Finished(FOREIGN, EngineOutput()),
        Emission(FOREIGN, EngineOutput()),
        Stalled(()),
        Stalled((FOREIGN,)),
    ],
)
def test_an_engine_that_yields_nonsense_fails_its_batch_not_the_worker(bench: Bench, step: object) -> None:
    def run(inputs: Sequence[EngineInput]) -> Run:
        yield step  # type: ignore[misc]
        return [EngineOutput() for _ in inputs]

    bench.engine.run = run  # type: ignore[method-assign]
    bench.submit(1)
    bench.submit(2)
    bench.step()
    assert [type(outcome) for outcome in bench.runs[0].outcomes] == [EngineFailed] * 2


class Reader:
    """A `StreamGate` whose reader takes everything."""

    is_wanted = is_writable = True
    has_begun = False

    def emit(self, output: EngineOutput) -> None: ...

    def stood_still(self, waited_s: float, *, is_contended: bool) -> None: ...


def test_a_chunk_after_the_end_of_its_answer_fails_the_batch_not_the_worker(bench: Bench) -> None:
    def run(inputs: Sequence[EngineInput]) -> Run:
        yield Finished(inputs[0], EngineOutput())
        yield Emission(inputs[0], EngineOutput())
        return [EngineOutput() for _ in inputs]

    bench.engine.run = run  # type: ignore[method-assign]
    requests = [bench.submit(1), bench.submit(2)]
    for request in requests:
        request.works[0].payload.input.stream = Reader()
    bench.step()
    left, rest = bench.runs
    assert [type(outcome) for outcome in left.outcomes] == [EngineOutput, type(None)]
    assert [type(outcome) for outcome in rest.outcomes] == [type(None), EngineFailed]


@pytest.mark.parametrize("is_streamed", [False, True])
def test_a_batch_that_only_ever_pauses_is_noticed(bench: Bench, is_streamed: bool) -> None:
    noticed: list[bool] = []

    def run(inputs: Sequence[EngineInput]) -> Run:
        while not bench.loop.is_stuck and bench.clock.now < 100.0 + 2 * STUCK_STEPS * STUCK_AFTER_S:
            bench.clock.now += 1.0
            yield Stalled(tuple(inputs)) if is_streamed else None
        noticed.append(bench.loop.is_stuck)
        return [EngineOutput() for _ in inputs]

    bench.engine.run = run  # type: ignore[method-assign]
    request = bench.submit(1)
    if is_streamed:
        request.works[0].payload.input.stream = Reader()
    bench.step()
    assert noticed == [True]


def test_a_stream_that_goes_on_for_its_reader_is_not_taken_for_hanging(bench: Bench) -> None:
    noticed: list[bool] = []

    def run(inputs: Sequence[EngineInput]) -> Run:
        for _ in range(int(4 * STUCK_STEPS)):
            bench.clock.now += 0.5 * STUCK_AFTER_S
            noticed.append(bench.loop.is_stuck)
            yield Emission(inputs[0], EngineOutput())
        return [EngineOutput() for _ in inputs]

    bench.engine.run = run  # type: ignore[method-assign]
    bench.submit(1).works[0].payload.input.stream = Reader()
    bench.step()
    assert not any(noticed)


def _submit_rows(bench: Bench, rows: int) -> None:
    item = EngineInput(rows, {"x": Tensor("FP32", np.arange(rows, dtype=np.float32).reshape(rows, 1))})
    request = Request(None, rows, bench.clock.now, 4)
    works = requests.cut(request, infer(sla_class="batch", rows=rows, max_batch_size=64), item, 64)
    assert bench.loop.submit([works]) == [None]


def _only_rows(limit: int) -> Callable[[int, Sequence[EngineInput]], None]:
    def exhaust(layer: int, inputs: Sequence[EngineInput]) -> None:
        if sum(item.rows for item in inputs) > limit:
            raise OutOfMemory("no room")

    return exhaust


def test_one_request_of_more_rows_than_fit_is_answered_in_parts(bench: Bench) -> None:
    bench.engine.during_layer = _only_rows(8)
    _submit_rows(bench, 27)
    bench.step()
    [outcome] = bench.runs[0].outcomes
    assert isinstance(outcome, EngineOutput)
    assert outcome.tensors["y"].array.ravel().tolist() == list(range(27))


def test_a_large_request_beyond_a_known_limit_lowers_it_no_further(bench: Bench) -> None:
    bench.engine.during_layer = _only_rows(8)
    for _ in range(20):
        _submit_rows(bench, 32)
        bench.step()
    for value in range(1, 33):
        bench.submit(value)
    bench.step()
    assert bench.runs[-1].batch.rows >= 4


def test_a_request_with_one_row_that_never_fits_is_refused_and_teaches_nothing(bench: Bench) -> None:
    def exhaust(layer: int, inputs: Sequence[EngineInput]) -> None:
        if any(5.0 in item.tensors["x"].array for item in inputs):
            raise OutOfMemory("no room")

    bench.engine.during_layer = exhaust
    _submit_rows(bench, 16)
    bench.step()
    assert isinstance(bench.runs[0].outcomes[0], OutOfMemory)
    assert [notice.event for notice in bench.notices] == ["input.out_of_memory"]
    for value in range(21, 53):
        bench.submit(value)
    bench.step()
    assert bench.runs[-1].batch.rows == 32


def _poison(layer: int, inputs: Sequence[EngineInput]) -> None:
    if any(_x(item) == 3 for item in inputs):
        raise RuntimeError("cannot do 3")


def test_inputs_that_fail_at_once_teach_no_cost(bench: Bench) -> None:
    def fail_at_once(inputs: Sequence[EngineInput]) -> Run:
        raise RuntimeError("no")
        yield

    before = bench.cost.predict_s(1, 1)
    bench.engine.run = fail_at_once  # type: ignore[method-assign]
    for _ in range(100):
        bench.submit(1)
        bench.step()
    assert bench.cost.predict_s(1, 1) == before


def test_who_breaks_a_batch_pays_for_running_it_again(bench: Bench) -> None:
    bench.engine.during_layer = _poison
    for value in range(1, 9):
        bench.submit(value)
    bench.step()
    [run] = bench.runs
    shares = dict(zip(values(run.batch.works), run.shares_us, strict=True))
    whole_us = run.batch.predicted_s * 1e6
    assert sum(shares.values()) == round(run.execute_s * 1e6)
    assert all(share <= whole_us / 8 + 1 for value, share in shares.items() if value != 3)


def test_nobody_pays_alone_for_a_batch_that_was_too_large(bench: Bench) -> None:
    bench.engine.during_layer = _only_rows(4)
    for value in range(1, 9):
        bench.submit(value)
    bench.step()
    [run] = bench.runs
    assert max(run.shares_us) - min(run.shares_us) <= 1


def test_a_request_of_more_parts_than_its_queue_holds_is_refused_before_any_is_queued(bench: Bench) -> None:
    item = EngineInput(512, {"x": Tensor("FP32", np.zeros((512, 1), np.float32))})
    request = Request(None, 1, bench.clock.now, 4)
    header = infer(sla_class="batch", rows=512, max_batch_size=1, max_queue=256)
    [refusal] = bench.loop.submit([requests.cut(request, header, item, 64)])
    assert refusal is not None
    assert refusal.code == "invalid_request"
    assert refusal.numbers["parts"] == 512


def test_a_request_whose_parts_find_no_room_is_refused_as_a_whole(bench: Bench) -> None:
    for value in range(100):
        bench.submit(value, max_queue=256)
    item = EngineInput(200, {"x": Tensor("FP32", np.zeros((200, 1), np.float32))})
    request = Request(None, 1, bench.clock.now, 4)
    header = infer(sla_class="batch", tenant_id="tnt_batch", rows=200, max_batch_size=1, max_queue=256)
    [refusal] = bench.loop.submit([requests.cut(request, header, item, 64)])
    assert refusal is not None
    assert refusal.code == "queue_full"
    assert refusal.numbers["queued_requests"] == 100
    assert bench.loop.queued_rows == 100
