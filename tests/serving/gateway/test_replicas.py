"""Workers that die, drain, come back or are not who they should be."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import httpx
import pytest

from serving.wire import PROTOCOL_VERSION, FrameReader, Hello, Kind, encode
from serving.worker.testing import EchoWorker
from tests.serving.gateway.engines import HeldEngine
from tests.serving.gateway.harness import PATIENCE_S, Harness, echo_body, gateway, until


@contextlib.asynccontextmanager
async def workers(harness: Harness, count: int) -> AsyncIterator[list[tuple[EchoWorker, HeldEngine]]]:
    """Workers whose engines stand still until told."""
    harness.publish_model()
    harness.publish_replicas(*(harness.address(index) for index in range(count)))
    async with contextlib.AsyncExitStack() as stack:
        out = []
        for index in range(count):
            engine = HeldEngine()
            worker = EchoWorker(harness.address(index), engine, replica_id=f"rep_{index}")
            out.append((await stack.enter_async_context(worker), engine))
            stack.callback(engine.release.set)
        await harness.gateway.follower.poll()
        await harness.until_ready(count=count)
        yield out


def holder(pairs: list[tuple[EchoWorker, HeldEngine]]) -> tuple[EchoWorker, HeldEngine]:
    """The one that runs something."""
    return next(pair for pair in pairs if pair[1].started.is_set())


async def test_a_request_of_a_dead_worker_is_answered_by_another() -> None:
    async with gateway() as harness, workers(harness, 2) as pairs:
        request = asyncio.create_task(harness.infer())
        await until(lambda: any(engine.started.is_set() for _, engine in pairs))
        worker, engine = holder(pairs)
        for _, other in pairs:
            if other is not engine:
                other.release.set()
        await worker.kill()
        response = await request
        assert response.status_code == 200, response.text


async def test_survivors_of_a_dead_worker_run_alone() -> None:
    async with gateway() as harness, workers(harness, 2) as pairs:
        harness.publish_replicas(harness.address(0))
        await harness.gateway.follower.poll()
        await harness.until_ready(count=1)
        requests = [asyncio.create_task(harness.infer()) for _ in range(4)]
        dispatcher = harness.gateway.inference.dispatcher
        await until(lambda: dispatcher.in_flight == 4 and pairs[0][1].started.is_set())
        harness.publish_replicas(harness.address(0), harness.address(1))
        await harness.gateway.follower.poll()
        await harness.until_ready(count=2)
        pairs[1][1].release.set()
        await pairs[0][0].kill()
        answers = await asyncio.gather(*requests)
        assert [answer.status_code for answer in answers] == [200] * 4
        assert pairs[1][1].ran == [1, 1, 1, 1]


async def test_without_another_replica_the_request_is_refused_at_once() -> None:
    async with gateway() as harness, workers(harness, 1) as pairs:
        request = asyncio.create_task(harness.infer())
        await until(lambda: pairs[0][1].started.is_set())
        await pairs[0][0].kill()
        response = await request  # with another code when it had waited for its deadline
        assert (response.status_code, response.json()["code"]) == (503, "replica_lost")
        assert int(response.headers["retry-after"]) >= 1
        response = await harness.infer()
        assert (response.status_code, response.json()["code"]) == (503, "model_not_ready")


async def test_a_request_that_was_in_flight_in_two_deaths_is_poisoned() -> None:
    async with gateway() as harness, workers(harness, 3) as pairs:
        request = asyncio.create_task(harness.infer())
        for _ in range(2):
            await until(lambda: any(engine.started.is_set() for _, engine in pairs))
            worker, engine = holder(pairs)
            engine.started.clear()
            pairs.remove((worker, engine))
            await worker.kill()
        response = await request
        assert (response.status_code, response.json()["code"]) == (500, "poisoned_request")


async def test_a_restarted_worker_is_used_again_without_the_seam() -> None:
    async with gateway() as harness:
        harness.publish_model()
        harness.publish_replicas(harness.address())
        await harness.gateway.follower.poll()
        async with EchoWorker(harness.address(), replica_id="rep_0", epoch=1) as worker:
            await harness.until_ready()
            harness.seam.is_down = True
            await worker.kill()
            await until(lambda: not harness.gateway.inference.dispatcher.pool.is_ready("mv_echo"))
        async with EchoWorker(harness.address(), replica_id="rep_0", epoch=2):
            await harness.until_ready()
            assert (await harness.infer()).status_code == 200


async def test_a_worker_that_loads_gets_nothing_until_it_accepts() -> None:
    async with gateway() as harness:
        harness.publish_model()
        harness.publish_replicas(harness.address())
        await harness.gateway.follower.poll()
        async with EchoWorker(harness.address(), replica_id="rep_0", is_ready=False) as worker:
            await until(lambda: harness.gateway.inference.dispatcher.pool.replicas["rep_0"].epoch == 1)
            assert (await harness.infer()).json()["code"] == "model_not_ready"
            worker.become_ready()
            await harness.until_ready()
            assert (await harness.infer()).status_code == 200


async def test_a_draining_worker_finishes_and_the_next_request_goes_elsewhere() -> None:
    async with gateway() as harness, workers(harness, 2) as pairs:
        request = asyncio.create_task(harness.infer())
        await until(lambda: any(engine.started.is_set() for _, engine in pairs))
        worker, engine = holder(pairs)
        draining = asyncio.create_task(worker.drain())
        await harness.until_ready(count=1)
        for _, other in pairs:
            other.release.set()
        assert (await harness.infer()).status_code == 200
        assert (await request).status_code == 200
        assert engine.ran == [1]
        await draining


async def test_a_replica_that_is_no_longer_wanted_finishes_what_it_has() -> None:
    async with gateway() as harness, workers(harness, 1) as pairs:
        request = asyncio.create_task(harness.infer())
        await until(lambda: pairs[0][1].started.is_set())
        harness.publish_replicas()
        await harness.gateway.follower.poll()
        pairs[0][1].release.set()
        assert (await request).status_code == 200
        assert (await harness.infer()).json()["code"] == "model_not_ready"


async def test_a_client_that_leaves_cancels_what_it_asked_for() -> None:
    async with gateway() as harness, workers(harness, 1) as pairs:
        first = asyncio.create_task(harness.infer())
        await until(lambda: pairs[0][1].started.is_set())
        second = asyncio.create_task(harness.infer())
        worker = pairs[0][0]
        await until(lambda: worker.loop is not None and worker.loop.queued_rows == 1)
        second.cancel()
        await until(lambda: worker.loop is not None and worker.loop.queued_rows == 0)
        await until(lambda: harness.gateway.inference.dispatcher.in_flight == 1)
        pairs[0][1].release.set()
        assert (await first).status_code == 200
        usage = harness.gateway._usage
        assert sum(used.cancelled for used in usage._open.values()) == 1


async def test_device_time_of_a_cancelled_request_is_still_accounted() -> None:
    async with gateway() as harness, workers(harness, 1) as pairs:
        request = asyncio.create_task(harness.infer())
        await until(lambda: pairs[0][1].started.is_set())
        await asyncio.sleep(0.02)
        request.cancel()
        await until(lambda: harness.gateway.inference.dispatcher.in_flight == 0)
        pairs[0][1].release.set()
        replica = harness.gateway.inference.dispatcher.pool.replicas["rep_0"]
        await until(lambda: not replica.in_flight)
        usage = harness.gateway._usage
        used = [used for used in usage._open.values() if used.cancelled]
        assert len(used) == 1 and used[0].device_us > 10_000
        assert replica.outstanding_us == 0


async def test_a_wrong_output_is_refused_before_anything_runs() -> None:
    async with gateway() as harness, workers(harness, 1) as pairs:
        response = await harness.infer(echo_body(outputs=[{"name": "z"}]))
        assert response.status_code == 400
        assert not pairs[0][1].started.is_set()


async def test_a_deadline_that_passes_is_refused_and_cancelled() -> None:
    async with gateway() as harness, workers(harness, 1) as pairs:
        first = asyncio.create_task(harness.infer())
        await until(lambda: pairs[0][1].started.is_set())
        response = await harness.infer(x_tidegate_deadline_ms="100")
        assert (response.status_code, response.json()["code"]) == (503, "deadline_unattainable")
        pairs[0][1].release.set()
        assert (await first).status_code == 200


@pytest.mark.parametrize("value", ["0", "-5", "soon", "1.5", ""])
async def test_a_deadline_is_a_whole_number_of_milliseconds(echo: Harness, value: str) -> None:
    assert (await echo.infer(x_tidegate_deadline_ms=value)).status_code == 400


async def test_a_full_queue_is_refused_with_numbers() -> None:
    async with gateway() as harness, workers(harness, 1) as pairs:
        harness.publish_profile(max_queue=1)
        await harness.gateway.follower.poll()
        running = asyncio.create_task(harness.infer())
        await until(lambda: pairs[0][1].started.is_set())
        queued = asyncio.create_task(harness.infer())
        await until(lambda: pairs[0][0].loop is not None and pairs[0][0].loop.queued_rows == 1)
        response = await harness.infer()
        assert (response.status_code, response.json()["code"]) == (429, "queue_full")
        assert response.json()["numbers"]
        pairs[0][1].release.set()
        assert [r.status_code for r in await asyncio.gather(running, queued)] == [200, 200]


async def test_a_tenants_concurrency_is_bounded() -> None:
    async with gateway() as harness, workers(harness, 1) as pairs:
        harness.publish_tenant(max_concurrency=1)
        await harness.gateway.follower.poll()
        running = asyncio.create_task(harness.infer())
        await until(lambda: pairs[0][1].started.is_set())
        response = await harness.infer()
        assert (response.status_code, response.json()["code"]) == (429, "concurrency_exceeded")
        pairs[0][1].release.set()
        assert (await running).status_code == 200
        assert (await harness.infer()).status_code == 200


async def test_work_goes_to_the_less_loaded_replica() -> None:
    async with gateway() as harness, workers(harness, 2) as pairs:
        requests = [asyncio.create_task(harness.infer()) for _ in range(10)]
        dispatcher = harness.gateway.inference.dispatcher
        await until(lambda: dispatcher.in_flight == 10)
        counts = sorted(len(replica.in_flight) for replica in dispatcher.pool.replicas.values())
        assert counts == [5, 5]
        for _, engine in pairs:
            engine.release.set()
        answers: list[httpx.Response] = await asyncio.gather(*requests)
        assert {answer.status_code for answer in answers} == {200}


# ---------------------------------------------------------------- who answers at an address


class Impostor(asyncio.Protocol):
    """Says a hello of its own, and whatever else a test wants."""

    def __init__(self, hello: Hello, extra: bytes = b"") -> None:
        self._first = b"".join(bytes(piece) for piece in encode(Kind.HELLO, 0, hello)) + extra
        self.reader = FrameReader()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.write(self._first)  # type: ignore[attr-defined]


def hello(**fields: object) -> Hello:
    good = {
        "protocol": PROTOCOL_VERSION,
        "replica_id": "rep_0",
        "version_id": "mv_echo",
        "epoch": 5,
        "is_accepting": True,
        "max_batch_rows": 8,
    }
    return Hello(**(good | fields))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "wrong",
    [{"protocol": 99}, {"replica_id": "rep_9"}, {"version_id": "mv_other"}, {"epoch": 4}],
    ids=["protocol", "replica", "version", "older epoch"],
)
async def test_somebody_else_at_the_address_gets_nothing(wrong: dict[str, object]) -> None:
    async with gateway() as harness:
        harness.publish_model()
        harness.publish_replicas(harness.address())
        loop = asyncio.get_running_loop()
        server = await loop.create_unix_server(lambda: Impostor(hello()), harness.address()[5:])
        await harness.gateway.follower.poll()
        await harness.until_ready()
        server.close()
        replica = harness.gateway.inference.dispatcher.pool.replicas["rep_0"]
        assert replica.link is not None
        replica.link.close()
        met = asyncio.Event()

        def impostor() -> Impostor:
            met.set()
            return Impostor(hello(**wrong))

        server = await loop.create_unix_server(impostor, harness.address()[5:])
        await asyncio.wait_for(met.wait(), PATIENCE_S)
        await until(lambda: replica.link is None)
        assert not replica.is_accepting
        assert (await harness.infer()).json()["code"] == "model_not_ready"
        server.close()


async def test_a_worker_that_breaks_the_framing_is_dropped() -> None:
    async with gateway() as harness:
        harness.publish_model()
        harness.publish_replicas(harness.address())
        loop = asyncio.get_running_loop()
        broken = lambda: Impostor(hello(), b"\xff" * 64)  # noqa: E731
        server = await loop.create_unix_server(broken, harness.address()[5:])
        await harness.gateway.follower.poll()
        await asyncio.sleep(0.05)
        assert (await harness.infer()).json()["code"] == "model_not_ready"
        server.close()
