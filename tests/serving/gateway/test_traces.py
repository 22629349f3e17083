"""A trace goes through the gateway to the worker, and comes back with every answer."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import AsyncIterator
from typing import Any

import pytest

from serving.contract import VersionEntry
from serving.gateway.spans import RequestSpans
from serving.telemetry.tracing import Tracing
from serving.worker.spans import WorkerSpans
from serving.worker.testing import EchoWorker
from tests.serving.gateway.harness import Harness, echo_body, gateway, until
from tests.serving.gateway.test_http import BODY, Raw, post

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
SAMPLED, UNSAMPLED = f"00-{TRACE}-{SPAN}-01", f"00-{TRACE}-{SPAN}-00"


async def test_an_answer_names_the_span_of_the_gateway(echo: Harness) -> None:
    response = await echo.infer(traceparent=SAMPLED)
    version, trace, span, flags = response.headers["traceparent"].split("-")
    assert (response.status_code, version, trace, flags) == (200, "00", TRACE, "01")
    assert span != SPAN


async def test_a_refusal_names_it_too(echo: Harness) -> None:
    for response in (
        await echo.infer({"inputs": 1}, traceparent=SAMPLED),
        await echo.infer(model="nothing", traceparent=SAMPLED),
        await echo.client.post("/v1/embeddings", headers={"traceparent": SAMPLED}),
        await echo.client.get("/nowhere", headers={"traceparent": SAMPLED}),
    ):
        assert response.status_code >= 400
        assert response.headers["traceparent"].split("-")[1] == TRACE


async def test_a_malformed_one_begins_a_new_trace_and_none_begins_none(echo: Harness) -> None:
    response = await echo.infer(traceparent="nonsense")
    assert response.status_code == 200
    assert response.headers["traceparent"].split("-")[1] != TRACE
    assert "traceparent" not in (await echo.infer()).headers


async def test_one_sent_twice_is_malformed(echo: Harness) -> None:
    headers = [*echo.auth.items(), ("traceparent", SAMPLED), ("traceparent", SAMPLED)]
    response = await echo.client.post("/v2/models/echo/infer", json=echo_body(), headers=headers)
    assert response.headers["traceparent"].split("-")[1] != TRACE


# ---------------------------------------------------------------- recorded


class Recorded:
    """A gateway and a worker whose spans end up in memory."""

    def __init__(self, harness: Harness, spans: Any, worker_spans: Any) -> None:
        self.harness = harness
        self._exporters = spans, worker_spans

    def spans(self) -> list[dict[str, Any]]:
        """Those of the gateway, then those of the worker."""
        made = [one for exporter in self._exporters for one in exporter.get_finished_spans()]
        return [
            {
                "name": one.name,
                "trace": f"{one.context.trace_id:032x}",
                "id": f"{one.context.span_id:016x}",
                "is_failed": not one.status.is_unset,
                "parent": f"{one.parent.span_id:016x}" if one.parent else "",
                "ms": (one.end_time - one.start_time) / 1e6,
                **one.attributes,
            }
            for one in made
        ]


@pytest.fixture
async def traced() -> AsyncIterator[Recorded]:
    export = pytest.importorskip("opentelemetry.sdk.trace.export", reason="requirements-otel.txt")
    memory = pytest.importorskip("opentelemetry.sdk.trace.export.in_memory_span_exporter")
    exporters = memory.InMemorySpanExporter(), memory.InMemorySpanExporter()
    tracings = [
        Tracing(export.SimpleSpanProcessor(one), "tidegate-test", "one", sample=0.0) for one in exporters
    ]
    async with gateway(is_started=False) as harness:
        harness.settings = dataclasses.replace(harness.settings, valkey_url=os.environ["VALKEY_URL"])
        await harness.start()
        harness.publish_model()
        harness.publish_replicas(harness.address())
        harness.gateway.inference.spans = RequestSpans(tracings[0])
        async with EchoWorker(harness.address(), replica_id="rep_0") as worker:
            version = VersionEntry(
                id="mv_echo", model="echo", number=1, engine="echo", artifact_sha256="", artifact_path=""
            )
            worker.intake.spans = WorkerSpans(tracings[1], version, "rep_0")
            await harness.until_ready()
            yield Recorded(harness, *exporters)
        await harness.stop()


async def test_a_request_is_one_tree_of_spans_from_caller_to_engine(traced: Recorded) -> None:
    response = await traced.harness.infer(traceparent=SAMPLED, tracestate="vendor=1")
    request, work, wait, execute = traced.spans()
    assert [one["name"] for one in (request, work, wait, execute)] == [
        "infer echo",
        "work echo",
        "wait",
        "execute",
    ]
    assert {one["trace"] for one in (request, work, wait, execute)} == {TRACE}
    assert request["id"] == response.headers["traceparent"].split("-")[2]
    assert (request["parent"], work["parent"]) == (SPAN, request["id"])
    assert wait["parent"] == execute["parent"] == work["id"]
    assert work["ms"] <= request["ms"] + 1
    assert request["tidegate.tenant.id"] == "tnt_a"
    assert request["tidegate.request.id"] == response.headers["x-request-id"]
    assert (request["tidegate.class"], request["tidegate.version"]) == ("standard", 1)
    assert (request["tidegate.batch.size"], work["tidegate.batch.size"]) == (1, 1)
    assert f"{request['tidegate.device_ms']:.3f}" == response.headers["x-tidegate-device-ms"]
    assert (work["tidegate.replica"], work["tidegate.engine"]) == ("rep_0", "echo")


async def test_every_request_of_a_connection_is_recorded(traced: Recorded) -> None:
    raw = await Raw.open(traced.harness)
    traceparent = b"\r\ntraceparent: " + SAMPLED.encode()
    for body, status in ((BODY, 200), (BODY, 200), (BODY, 200), (b"{", 400)):
        # The same head again and again: it is not parsed again.
        raw.writer.write(
            post(traced.harness, body).replace(b"\r\nhost: test", b"\r\nhost: test" + traceparent)
        )
        assert (await raw.answer())[0] == status
    raw.close()
    spans = [one for one in traced.spans() if one["parent"] == SPAN]
    assert [one["http.response.status_code"] for one in spans] == [200, 200, 200, 400]


async def test_a_refusal_is_a_span_with_its_code(traced: Recorded) -> None:
    await traced.harness.infer(echo_body([1.0], parameters={"timeout": -1}), traceparent=SAMPLED)
    [request] = traced.spans()
    assert (request["error.type"], request["http.response.status_code"]) == ("invalid_request", 400)
    assert not request["is_failed"]  # the client's mistake


async def test_a_refusal_of_ours_is_a_failed_span(traced: Recorded) -> None:
    harness = traced.harness
    harness.publish_model("idle", version_id="mv_idle")
    await until(lambda: "idle" in harness.gateway._snapshot.models)
    await harness.infer(model="idle", traceparent=SAMPLED)
    [request] = traced.spans()
    assert (request["error.type"], request["is_failed"]) == ("model_not_ready", True)


async def test_a_repetition_is_a_span_without_a_worker(traced: Recorded) -> None:
    key = f"{os.urandom(8).hex()}"
    for _ in range(2):
        await traced.harness.infer(traceparent=SAMPLED, idempotency_key=key)
    gateway_spans = [one for one in traced.spans() if one["name"] == "infer echo"]
    assert [one.get("tidegate.replayed", False) for one in gateway_spans] == [False, True]
    assert len(traced.spans()) == 2 + 3  # the worker was asked once


async def test_what_the_caller_does_not_record_is_not_recorded_here(traced: Recorded) -> None:
    await traced.harness.infer(traceparent=UNSAMPLED)
    await traced.harness.infer()
    await traced.harness.infer(traceparent="nonsense")
    await traced.harness.client.post("/v2/models/echo/infer", headers={"traceparent": SAMPLED})  # no key
    assert traced.spans() == []


async def test_a_trace_that_begins_here_is_told_to_the_client(traced: Recorded) -> None:
    spans = traced.harness.gateway.inference.spans
    assert spans is not None
    spans._tracing._sample = 1.0
    response = await traced.harness.infer()
    request = traced.spans()[0]
    assert response.headers["traceparent"] == f"00-{request['trace']}-{request['id']}-01"
    assert request["parent"] == ""


async def test_no_span_holds_a_key(traced: Recorded) -> None:
    """However it was sent: in its place, as an id, as a model's name, in a body that is refused."""
    harness, token = traced.harness, traced.harness.token
    await harness.infer(traceparent=SAMPLED, x_request_id=token, x_tidegate_priority=token, user_agent=token)
    await harness.infer(traceparent=SAMPLED, x_request_id=token, user_agent=token)
    await harness.infer(model=token, traceparent=SAMPLED)
    await harness.infer({"inputs": token, token: token}, traceparent=SAMPLED)
    spans = repr(traced.spans())
    assert len(traced.spans()) >= 4 and token[-24:-1] not in spans
