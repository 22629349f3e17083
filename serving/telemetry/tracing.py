"""OpenTelemetry spans, where an installation wants them (`requirements-otel.txt`).

Off unless `OTEL_EXPORTER_OTLP_ENDPOINT` names a collector: nothing of OpenTelemetry is imported then. Spans are
built after the fact, from times that were measured anyway, and are handed to the SDK's batch processor, whose
own thread sends them; what it cannot get rid of, it drops. A span costs some 50 µs, so their rate is bounded.
"""

from __future__ import annotations

import importlib
import os
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import structlog

log = structlog.get_logger("tidegate.tracing")

SAMPLE_VARIABLE = "TIDEGATE_TRACES_SAMPLE"
ENDPOINT_VARIABLES = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
DEFAULT_SAMPLE = 0.01
MAX_SPANS_PER_S = 100.0
"""Of traces begun here or elsewhere: a caller that samples everything must not cost everybody."""
EXPORT_TIMEOUT_S = 3.0
INSTALL = "pip install -r requirements-otel.txt"

Attribute = str | int | float | bool


@dataclass(slots=True)
class Span:
    """One finished span; ids in hexadecimal, times in Unix nanoseconds."""

    name: str
    trace_id: str
    span_id: str
    parent_id: str
    """Empty where the trace begins."""
    start_ns: int
    end_ns: int
    kind: Literal["server", "internal"] = "internal"
    state: str = ""
    """W3C `tracestate` of the caller."""
    error: str = ""
    """Code of what went wrong."""
    is_failed: bool = False
    """Whether that was on this side: a client's mistake is none of the server's (HTTP semantic conventions)."""
    attributes: dict[str, Attribute] = field(default_factory=dict)


class Rate:
    """A token bucket with a second's worth of room. `now` in seconds of any one clock."""

    __slots__ = ("_at", "_left", "_per_s")

    def __init__(self, per_s: float) -> None:
        self._per_s = self._left = per_s
        self._at = 0.0

    def take(self, now: float) -> bool:
        self._left = min(self._per_s, self._left + max(0.0, now - self._at) * self._per_s)
        self._at = now
        if self._left < 1.0:
            return False
        self._left -= 1.0
        return True


class _Preset:
    """The ids of the next span: they are chosen, and told to others, before the span exists."""

    def __init__(self) -> None:
        self.trace_id = self.span_id = 1

    def generate_trace_id(self) -> int:
        return self.trace_id

    def generate_span_id(self) -> int:
        return self.span_id

    def is_trace_id_random(self) -> bool:
        return False


class Tracing:
    """Records spans of one process, from one thread."""

    def __init__(
        self, processor: Any, service: str, instance: str, *, sample: float = DEFAULT_SAMPLE
    ) -> None:
        """`processor` is a `SpanProcessor` of the SDK; tests bring one around an in-memory exporter."""
        sdk = importlib.import_module("opentelemetry.sdk.trace")
        resources = importlib.import_module("opentelemetry.sdk.resources")
        sampling = importlib.import_module("opentelemetry.sdk.trace.sampling")
        self._api = importlib.import_module("opentelemetry.trace")
        self._ids = _Preset()
        self._sample = sample
        self._rate = Rate(MAX_SPANS_PER_S)
        named = os.environ.get("OTEL_SERVICE_NAME") or service
        self._provider = sdk.TracerProvider(
            sampler=sampling.ALWAYS_ON,  # what comes here was chosen
            resource=resources.Resource.create({"service.name": named, "service.instance.id": instance}),
            id_generator=self._ids,
            shutdown_on_exit=False,
        )
        self._provider.add_span_processor(processor)
        self._tracer = self._provider.get_tracer("tidegate")
        self._kinds = {"server": self._api.SpanKind.SERVER, "internal": self._api.SpanKind.INTERNAL}

    def wants(
        self, is_sampled_by_caller: bool | None, now: float, draw: Callable[[], float] = random.random
    ) -> bool:
        """Whether to record a request: as its caller does, else so many of all. `now` in monotonic seconds."""
        if is_sampled_by_caller is None:
            is_sampled_by_caller = draw() < self._sample
        return is_sampled_by_caller and self._rate.take(now)

    def record(self, span: Span) -> None:
        """Never blocks: the processor's queue is bounded and drops what does not fit."""
        self._ids.trace_id, self._ids.span_id = int(span.trace_id, 16), int(span.span_id, 16)
        made = self._tracer.start_span(
            span.name,
            context=self._context(span),
            kind=self._kinds[span.kind],
            attributes=span.attributes,
            start_time=span.start_ns,
        )
        if span.error:
            made.set_attribute("error.type", span.error)
        if span.is_failed:
            made.set_status(self._api.StatusCode.ERROR)
        made.end(end_time=span.end_ns)

    def close(self) -> None:
        """Send what waits; takes up to `EXPORT_TIMEOUT_S` when the collector does not answer."""
        self._provider.shutdown()

    def _context(self, span: Span) -> Any:
        if not span.parent_id:
            return None
        parent = self._api.SpanContext(
            int(span.trace_id, 16),
            int(span.parent_id, 16),
            is_remote=True,
            trace_flags=self._api.TraceFlags(1),
            trace_state=self._api.TraceState.from_header([span.state]) if span.state else None,
        )
        return self._api.set_span_in_context(self._api.NonRecordingSpan(parent))


def from_environment(service: str, instance: str, environ: Mapping[str, str] = os.environ) -> Tracing | None:
    """None where no collector is named. Raises `ValueError` for a ratio that is none.

    Without the packages it says so in the log and serves without spans: what is only watched goes on.
    """
    if not any(environ.get(name) for name in ENDPOINT_VARIABLES):
        return None
    sample = sample_ratio(environ)
    try:
        export = importlib.import_module("opentelemetry.sdk.trace.export")
        otlp = importlib.import_module("opentelemetry.exporter.otlp.proto.http.trace_exporter")
    except ImportError:
        log.error("tracing.unavailable", reason=f"OpenTelemetry is not installed: {INSTALL}")
        return None
    exporter = otlp.OTLPSpanExporter(timeout=EXPORT_TIMEOUT_S)
    processor = export.BatchSpanProcessor(exporter, export_timeout_millis=EXPORT_TIMEOUT_S * 1000)
    log.info("tracing.on", service=service, sample=sample)
    return Tracing(processor, service, instance, sample=sample)


def sample_ratio(environ: Mapping[str, str]) -> float:
    """Raises `ValueError` naming the variable."""
    text = environ.get(SAMPLE_VARIABLE, "")
    try:
        ratio = float(text) if text else DEFAULT_SAMPLE
    except ValueError:
        ratio = -1.0
    if not 0.0 <= ratio <= 1.0:
        raise ValueError(f"{SAMPLE_VARIABLE} is a ratio from 0 to 1, not {text!r}")
    return ratio
