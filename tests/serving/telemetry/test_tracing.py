"""Spans reach a collector over OTLP, and a process without one imports nothing of OpenTelemetry."""

from __future__ import annotations

import http.server
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from serving.telemetry.tracing import MAX_SPANS_PER_S, Rate, Span, Tracing, from_environment, sample_ratio

pytest.importorskip("opentelemetry.sdk", reason="pip install -r requirements-otel.txt")

from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

TRACE, SPAN, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7", "b7ad6b7169203331"


class Collector(http.server.ThreadingHTTPServer):
    """An OTLP/HTTP collector that remembers what it was sent."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Receiver)
        self.paths: list[str] = []
        self.bodies: list[bytes] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Receiver(http.server.BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        server: Any = self.server
        server.paths.append(self.path)
        server.bodies.append(self.rfile.read(int(self.headers["content-length"])))
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *arguments: Any) -> None: ...


@pytest.fixture
def collector() -> Iterator[Collector]:
    server = Collector()
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()


def in_memory(sample: float = 1.0) -> tuple[Tracing, InMemorySpanExporter]:
    exporter = InMemorySpanExporter()
    return Tracing(SimpleSpanProcessor(exporter), "tidegate-test", "one", sample=sample), exporter


def span(**fields: Any) -> Span:
    return Span("infer echo", TRACE, SPAN, PARENT, 1_000, 5_000, **fields)


def test_a_span_is_recorded_under_the_ids_that_were_told_to_others() -> None:
    tracing, exporter = in_memory()
    tracing.record(span(kind="server", state="a=1", attributes={"tidegate.rows": 2}))
    [made] = exporter.get_finished_spans()
    assert (made.name, made.start_time, made.end_time) == ("infer echo", 1_000, 5_000)
    assert made.context is not None and made.parent is not None
    assert (made.context.trace_id, made.context.span_id) == (int(TRACE, 16), int(SPAN, 16))
    assert (made.parent.span_id, made.parent.is_remote) == (int(PARENT, 16), True)
    assert made.context.trace_state.to_header() == "a=1"
    assert dict(made.attributes or {}) == {"tidegate.rows": 2}
    assert made.resource.attributes["service.name"] == "tidegate-test"
    assert made.status.is_unset


def test_a_trace_that_begins_here_has_no_parent() -> None:
    tracing, exporter = in_memory()
    tracing.record(Span("infer", TRACE, SPAN, "", 1, 2, error="engine_failed", is_failed=True))
    [made] = exporter.get_finished_spans()
    assert made.parent is None
    assert made.context is not None and made.context.trace_id == int(TRACE, 16)
    assert (made.attributes or {})["error.type"] == "engine_failed"
    assert not made.status.is_ok and not made.status.is_unset


def test_the_caller_decides_and_else_the_ratio() -> None:
    tracing, _ = in_memory(sample=0.25)
    assert tracing.wants(True, 0.0, lambda: 0.99)
    assert not tracing.wants(False, 0.0, lambda: 0.0)
    assert tracing.wants(None, 0.0, lambda: 0.2)
    assert not tracing.wants(None, 0.0, lambda: 0.25)


def test_a_caller_that_samples_everything_is_bounded() -> None:
    tracing, _ = in_memory()
    wanted = sum(tracing.wants(True, second / 1000) for second in range(2000))
    assert wanted <= MAX_SPANS_PER_S * 3


def test_the_rate_refills_with_time_and_never_backwards() -> None:
    rate = Rate(2.0)
    assert [rate.take(0.0), rate.take(0.0), rate.take(0.0)] == [True, True, False]
    assert rate.take(0.5)
    assert not rate.take(0.4)


def test_spans_arrive_at_a_collector(collector: Collector, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
    environ = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, "TIDEGATE_TRACES_SAMPLE": "1"}
    tracing = from_environment("tidegate-test", "one", environ)
    assert tracing is not None
    tracing.record(span())
    tracing.close()
    assert collector.paths == ["/v1/traces"]
    assert b"infer echo" in collector.bodies[0] and bytes.fromhex(TRACE) in collector.bodies[0]


def test_a_collector_that_is_away_delays_nothing_but_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("serving.telemetry.tracing.EXPORT_TIMEOUT_S", 0.2)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    tracing = from_environment("tidegate-test", "one", {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"})
    assert tracing is not None
    for _ in range(10_000):  # more than the queue holds
        tracing.record(span())
    tracing.close()


@pytest.mark.parametrize("ratio", ["-0.1", "1.1", "all", "nan"])
def test_a_ratio_that_is_none_is_named(ratio: str) -> None:
    with pytest.raises(ValueError, match="TIDEGATE_TRACES_SAMPLE"):
        sample_ratio({"TIDEGATE_TRACES_SAMPLE": ratio})


def test_without_a_collector_nothing_is_imported() -> None:
    code = (
        "import sys\n"
        "import serving.gateway.spans, serving.worker.spans\n"
        "from serving.telemetry.tracing import from_environment\n"
        "assert from_environment('a', 'b', {}) is None\n"
        "assert not [name for name in sys.modules if name.startswith('opentelemetry')]\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
