"""A worker's promises on the wire, with the real intake, scheduler and loop around the echo engine."""

from __future__ import annotations

import stat
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import uvloop

from serving.wire import PREFIX, Kind, TensorHead, encode
from serving.worker.engines.contract import EngineInput, EngineOutput, Run, Tensor
from serving.worker.engines.echo import EchoEngine
from serving.worker.testing import EchoWorker
from tests.serving.worker.links import GatewayLink, amend, linked, request


class GatedEngine(EchoEngine):
    """Runs a batch only when the test opens the gate: what waits and what runs is then known."""

    def __init__(self) -> None:
        super().__init__(max_batch_rows=4)
        self.started = threading.Semaphore(0)
        self.gate = threading.Semaphore(0)

    def run(self, inputs: list[EngineInput]) -> Run:  # type: ignore[override]
        self.started.release()
        assert self.gate.acquire(timeout=10)
        return (yield from super().run(inputs))


class FragileEngine(EchoEngine):
    """Fails any batch that holds a negative number."""

    def run(self, inputs: list[EngineInput]) -> Run:  # type: ignore[override]
        if any((item.tensors["x"].array < 0).any() for item in inputs):
            raise RuntimeError("secret detail of the model")
        return (yield from super().run(inputs))


@pytest.fixture
def engine() -> Iterator[GatedEngine]:
    engine = GatedEngine()
    yield engine
    engine.gate.release(1000)


async def test_an_answer_holds_what_was_sent(link: GatewayLink) -> None:
    sent = np.arange(6, dtype=np.float32).reshape(2, 3)
    header, body = await link.answer(link.infer(sent))
    assert header.tensors == (TensorHead("y", "FP32", (2, 3), 24),)
    np.testing.assert_array_equal(np.frombuffer(body, np.float32).reshape(2, 3), sent)


def test_it_serves_on_uvloop_as_in_production(socket_path: str) -> None:
    async def scenario() -> None:
        async with linked(socket_path) as link:
            _, body = await link.answer(link.infer(np.ones((4, 100_000), np.float32)))
            assert len(body) == 1_600_000

    uvloop.run(scenario())


async def test_hello_says_who_answers_and_whether_it_accepts(socket_path: str) -> None:
    worker = EchoWorker(f"unix:{socket_path}", replica_id="rep_x", epoch=7, is_ready=False)
    async with worker, GatewayLink(socket_path) as link:
        hello = await link.hello()
        assert (hello.replica_id, hello.epoch, hello.is_accepting) == ("rep_x", 7, False)
        link.infer(np.zeros((1, 1), np.float32))
        assert (await link.failure()).code == "model_not_ready"
        worker.become_ready()
        assert (await link.hello()).is_accepting
        await link.answer(link.infer(np.zeros((1, 1), np.float32)))


async def test_the_socket_is_private(link: GatewayLink, socket_path: str) -> None:
    assert stat.S_IMODE(Path(socket_path).stat().st_mode) == 0o600


async def test_a_large_request_is_cut_and_answered_as_one(link: GatewayLink) -> None:
    sent = np.arange(50, dtype=np.float32).reshape(25, 2)
    header, body = await link.answer(link.infer(sent, max_batch_size=4))
    np.testing.assert_array_equal(np.frombuffer(body, np.float32).reshape(25, 2), sent)
    assert header.stages.batch_rows <= 4


async def test_the_stages_sum_to_the_time_in_the_worker(link: GatewayLink) -> None:
    header, _ = await link.answer(link.infer(np.zeros((3, 1), np.float32), max_batch_size=1))
    stages = header.stages
    parts = [stages.queue_us, stages.batch_wait_us, stages.execute_us, stages.interrupted_us, stages.post_us]
    assert min(parts) >= 0
    assert 0 < sum(parts) < 10_000_000
    assert stages.device_us >= 0
    assert stages.close in ("full", "due", "window", "idle", "drain")


@pytest.mark.parametrize(
    ("array", "changes", "code"),
    [
        (np.zeros((1, 1), np.float32), {"name": "z"}, "invalid_tensor"),
        (np.zeros((1, 1), np.float64), {"datatype": "FP64"}, "invalid_tensor"),
        (np.zeros((1, 1), np.float64), {"datatype": "FP32"}, "invalid_tensor"),
        (np.zeros((1, 1), np.float32), {"datatype": "COMPLEX"}, "invalid_tensor"),
        (np.zeros((5000, 1), np.float32), {}, "invalid_request"),
        (np.zeros((1, 1), np.float32), {"max_batch_size": 0}, "invalid_request"),
        (np.zeros((1, 1), np.float32), {"weight": 0.0}, "invalid_request"),
    ],
)
async def test_a_wrong_tensor_is_refused_and_the_link_lives(
    link: GatewayLink, array: np.ndarray, changes: dict, code: str
) -> None:
    assert (await link.failure(link.infer(array, **changes))).code == code
    await link.answer(link.infer(np.zeros((1, 1), np.float32)))


async def test_rows_must_match_the_first_dimension(link: GatewayLink) -> None:
    head = TensorHead("x", "FP32", (2, 1), 8)
    link.send(Kind.INFER, 9, request(tensors=(head,), rows=3), bytes(8))
    assert (await link.failure(9)).code == "invalid_tensor"


async def test_an_unattainable_deadline_is_refused_at_once(link: GatewayLink) -> None:
    link.infer(np.zeros((1, 1), np.float32), budget_us=0)
    assert (await link.failure()).code == "deadline_unattainable"


async def test_frames_may_arrive_in_any_pieces(link: GatewayLink) -> None:
    raw = np.ones((1, 2), np.float32).tobytes()
    head = TensorHead("x", "FP32", (1, 2), len(raw))
    stream = b"".join(encode(Kind.INFER, 1, request(tensors=(head,)), raw)) * 1
    for byte in stream:
        link.writer.write(bytes([byte]))
        await link.writer.drain()
    _, body = await link.answer(1)
    assert body == raw


async def test_ping_is_answered_with_the_same_id(link: GatewayLink) -> None:
    link.send(Kind.PING, 77)
    request_id, kind, _, _ = await link.next()
    assert (request_id, kind) == (77, Kind.PONG)


@pytest.mark.parametrize(
    "garbage",
    [
        PREFIX.pack(0xFFFFFFFF, 1, Kind.INFER, 0),
        PREFIX.pack(11, 1, 99, 0),
        PREFIX.pack(12, 1, Kind.INFER, 1) + b"\xc1",
    ],
    ids=["too long", "unknown kind", "no header"],
)
async def test_a_broken_frame_closes_only_its_link(
    socket_path: str, link: GatewayLink, garbage: bytes
) -> None:
    async with GatewayLink(socket_path) as other:
        await other.hello()
        other.writer.write(garbage)
        assert (await other.next())[1] == 0
    await link.answer(link.infer(np.zeros((1, 1), np.float32)))


async def test_a_request_id_in_use_closes_the_link(socket_path: str, engine: GatedEngine) -> None:
    async with linked(socket_path, engine) as link:
        for _ in range(2):
            link.infer(np.zeros((1, 1), np.float32), request_id=5)
        assert (await link.next())[1] == 0
        engine.gate.release(10)


async def test_cancelled_work_that_waits_never_runs(socket_path: str, engine: GatedEngine) -> None:
    async with linked(socket_path, engine) as link:
        first = link.infer(np.zeros((4, 1), np.float32))
        second = link.infer(np.zeros((4, 1), np.float32))
        await _until_running(link, engine)
        link.send(Kind.CANCEL, second)
        cancelled = await link.failure(second)
        assert (cancelled.code, cancelled.stages) == ("cancelled", None)
        engine.gate.release(1)
        await link.answer(first)
        assert not engine.started.acquire(blocking=False)


async def test_new_terms_reorder_what_waits(socket_path: str, engine: GatedEngine) -> None:
    async with linked(socket_path, engine) as link:
        running, first, second = (link.infer(np.zeros((4, 1), np.float32)) for _ in range(3))
        await _until_running(link, engine)
        link.send(Kind.AMEND, second, amend(sla_class="interactive"))
        link.send(Kind.AMEND, running, amend(sla_class="batch"))
        link.send(Kind.AMEND, 999, amend())
        await link.round_trip()
        engine.gate.release(3)
        for request_id in (running, second, first):
            await link.answer(request_id)


@pytest.mark.parametrize("changes", [{"max_batch_size": 0}, {"weight": 0.0}, {"weight": float("nan")}])
async def test_terms_that_are_none_close_the_link(
    socket_path: str, link: GatewayLink, changes: dict[str, float]
) -> None:
    async with GatewayLink(socket_path) as other:
        await other.hello()
        other.send(Kind.AMEND, 1, amend(**changes))
        assert (await other.next())[1] == 0
    await link.answer(link.infer(np.zeros((1, 1), np.float32)))


async def test_cancelled_work_on_the_device_is_still_answered(socket_path: str, engine: GatedEngine) -> None:
    async with linked(socket_path, engine) as link:
        running = link.infer(np.zeros((4, 1), np.float32))
        await _until_running(link, engine)
        link.send(Kind.CANCEL, running)
        await link.round_trip()
        engine.gate.release(1)
        header, _ = await link.answer(running)
        assert header.stages.device_us > 0


async def test_a_lost_link_takes_its_waiting_work_along(socket_path: str, engine: GatedEngine) -> None:
    async with EchoWorker(f"unix:{socket_path}", engine) as worker, GatewayLink(socket_path) as link:
        await link.hello()
        async with GatewayLink(socket_path) as leaver:
            await leaver.hello()
            for _ in range(3):
                leaver.infer(np.zeros((4, 1), np.float32))
            await leaver.round_trip()
            await _until_running(leaver, engine)
        while worker.loop.queued_rows:  # noqa: ASYNC110
            await link.round_trip()
        engine.gate.release(2)
        await link.answer(link.infer(np.zeros((1, 1), np.float32)))


async def test_draining_refuses_new_work_and_finishes_the_old(socket_path: str, engine: GatedEngine) -> None:
    async with EchoWorker(f"unix:{socket_path}", engine) as worker, GatewayLink(socket_path) as link:
        await link.hello()
        old = [link.infer(np.zeros((4, 1), np.float32)) for _ in range(3)]
        await _until_running(link, engine)
        worker.intake.drain()
        assert not (await link.hello()).is_accepting
        assert (await link.failure(link.infer(np.zeros((1, 1), np.float32)))).code == "draining"
        engine.gate.release(3)
        await worker.drain()
        assert [(await link.next())[0] for _ in old] == old
        assert (await link.next())[1] == 0


async def test_one_bad_item_in_a_batch_fails_alone(socket_path: str) -> None:
    async with linked(socket_path, FragileEngine()) as link:
        bad = link.infer(np.full((1, 1), -1, np.float32))
        good = [link.infer(np.full((1, 1), value, np.float32)) for value in range(9)]
        outcomes = {}
        for _ in range(10):
            request_id, kind, header, _ = await link.next()
            outcomes[request_id] = (kind, header)
        assert outcomes[bad][0] == Kind.ERROR
        assert outcomes[bad][1].code == "engine_failed"
        assert "secret" not in outcomes[bad][1].message
        assert outcomes[bad][1].stages is not None
        assert all(outcomes[request_id][0] == Kind.RESULT for request_id in good)


async def test_parts_that_do_not_fit_together_fail_their_request_only(socket_path: str) -> None:
    class GrowingEngine(EchoEngine):
        width = 0

        def run(self, inputs: list[EngineInput]) -> Run:  # type: ignore[override]
            yield from ()
            self.width += 1
            shape = (inputs[0].rows, self.width)
            return [EngineOutput({"y": Tensor("FP32", np.zeros(shape, np.float32))}) for _ in inputs]

    async with linked(socket_path, GrowingEngine()) as link:
        failure = await link.failure(link.infer(np.zeros((4, 1), np.float32), max_batch_size=2))
        assert failure.code == "engine_failed"
        await link.answer(link.infer(np.zeros((1, 1), np.float32)))


async def test_outputs_are_not_mixed_up_across_many_requests(link: GatewayLink) -> None:
    sent = {link.infer(np.full((1 + value % 3, 2), value, np.float32)): value for value in range(500)}
    for _ in range(500):
        request_id, kind, header, body = await link.next()
        assert kind == Kind.RESULT
        value = sent.pop(request_id)
        assert set(np.frombuffer(body, np.float32).tolist()) == {float(value)}
        assert header.tensors[0].shape == (1 + value % 3, 2)
    assert not sent


async def _until_running(link: GatewayLink, engine: GatedEngine) -> None:
    await link.round_trip()
    assert engine.started.acquire(timeout=10)
