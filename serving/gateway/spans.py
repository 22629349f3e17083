"""What the gateway's spans say of a request. Called on the event loop, for recorded requests only.

Names follow OpenTelemetry's semantic conventions for HTTP and generative AI where they have one; the rest is
under `tidegate.`. Times are milliseconds, as in the receipt.
"""

from __future__ import annotations

import time

from serving.errors import DataPlaneError
from serving.gateway.pending import Answer
from serving.gateway.receipts import Spent
from serving.gateway.tracecontext import SAMPLED, begin
from serving.gateway.visit import Visit
from serving.telemetry.tracing import Attribute, Span, Tracing


class RequestSpans:
    def __init__(self, tracing: Tracing) -> None:
        self._tracing = tracing

    def choose(self, visit: Visit) -> None:
        """Decide once, for requests of a known tenant only, whether to record."""
        trace = visit.trace
        by_caller = trace.is_sampled if trace is not None and trace.parent_id else None
        if self._tracing.wants(by_caller, time.monotonic()):
            visit.trace = (trace or begin())._replace(flags=SAMPLED)
            visit.is_recorded = True

    def answered(self, visit: Visit, answer: Answer, spent: Spent, first_chunk_us: int | None = None) -> None:
        """The span of a good answer; `spent` as in its receipt, `first_chunk_us` of a streamed one."""
        stages, payload = answer.result.stages, visit.payload
        facts: dict[str, Attribute] = {
            "http.response.status_code": 200,
            "gen_ai.usage.input_tokens": 0 if payload is None else payload.tokens,
            "tidegate.rows": 0 if payload is None else payload.rows,
            "tidegate.gateway_ms": spent.gateway_us / 1000,
            "tidegate.queue_ms": stages.queue_us / 1000,
            "tidegate.batch_wait_ms": stages.batch_wait_us / 1000,
            "tidegate.execute_ms": stages.execute_us / 1000,
            "tidegate.interrupted_ms": stages.interrupted_us / 1000,
            "tidegate.post_ms": stages.post_us / 1000,
            "tidegate.device_ms": stages.device_us / 1000,
            "tidegate.predicted_ms": stages.predicted_us / 1000,
            "tidegate.batch.size": stages.batch_rows,
            "tidegate.batch.requests": stages.batch_requests,
            "tidegate.batch.close": stages.close,
        }
        if first_chunk_us is not None:
            facts["gen_ai.request.stream"] = True
            facts["gen_ai.response.time_to_first_chunk"] = first_chunk_us / 1e6
        self._record(visit, facts)

    def refused(self, visit: Visit, error: DataPlaneError) -> None:
        facts: dict[str, Attribute] = {"http.response.status_code": error.status}
        for name, value in list(error.numbers.items())[:8]:
            if isinstance(value, int | float | str):
                facts[f"tidegate.refusal.{name}"] = value
        self._record(visit, facts, error)

    def repeated(self, visit: Visit) -> None:
        """The span of an answer that was given before, under the same idempotency key."""
        self._record(visit, {"tidegate.replayed": True})

    def _record(self, visit: Visit, facts: dict[str, Attribute], error: DataPlaneError | None = None) -> None:
        visit.is_recorded, trace = False, visit.trace
        assert trace is not None
        now_ns = time.time_ns()
        start_ns = now_ns - visit.elapsed_us() * 1000
        name = visit.endpoint if visit.lane is None else f"{visit.endpoint} {visit.lane.model}"
        span = Span(name, trace.trace_id, trace.span_id, trace.parent_id, start_ns, now_ns, "server")
        span.state, span.attributes = trace.state, _identity(visit) | facts
        if error is not None:
            span.error, span.is_failed = error.code, error.status >= 500
        self._tracing.record(span)


def _identity(visit: Visit) -> dict[str, Attribute]:
    facts: dict[str, Attribute] = {
        "http.request.method": "POST",
        "gen_ai.operation.name": visit.endpoint,
        "gen_ai.provider.name": "tidegate",
        "tidegate.tenant.id": visit.tenant_id,
        "tidegate.request.id": visit.request_id,
    }
    lane = visit.lane
    if lane is not None:
        facts |= {
            "gen_ai.request.model": lane.model,
            "gen_ai.response.model": lane.model,
            "tidegate.version": lane.version.number,
            "tidegate.class": lane.profile.sla_class,
        }
    return facts
