"""The worker's part of a trace, built from a request's stages when it is over. Called on the event loop."""

from __future__ import annotations

import random
import time

from serving.contract import VersionEntry
from serving.telemetry.tracing import Attribute, Span, Tracing
from serving.wire import Stages

_SAMPLED_END = "-01"


def is_recorded(traceparent: str) -> bool:
    """Whether the gateway records this request: only then its worker does."""
    return traceparent.endswith(_SAMPLED_END)


class WorkerSpans:
    def __init__(self, tracing: Tracing, version: VersionEntry, replica_id: str) -> None:
        self._tracing = tracing
        self._name = f"work {version.model}"
        self._identity: dict[str, Attribute] = {
            "tidegate.version": version.number,
            "tidegate.replica": replica_id,
            "tidegate.engine": version.engine,
        }

    def settled(self, traceparent: str, stages: Stages, error: str = "") -> None:
        """A span for the request's time here, with its wait and its execution inside."""
        parts = traceparent.split("-")
        if len(parts) != 4:
            return
        end_ns = time.time_ns()
        wait_us = stages.queue_us + stages.batch_wait_us
        run_us = stages.execute_us + stages.interrupted_us
        start_ns = end_ns - (wait_us + run_us + stages.post_us) * 1000
        run_ns = start_ns + wait_us * 1000
        whole = Span(
            self._name, parts[1], _span_id(), parts[2], start_ns, end_ns, error=error, is_failed=bool(error)
        )
        whole.attributes = self._identity | _facts(stages)
        self._tracing.record(whole)
        for name, begun_ns, over_ns in (
            ("wait", start_ns, run_ns),
            ("execute", run_ns, run_ns + run_us * 1000),
        ):
            self._tracing.record(Span(name, parts[1], _span_id(), whole.span_id, begun_ns, over_ns))


def _facts(stages: Stages) -> dict[str, Attribute]:
    return {
        "tidegate.batch.id": stages.batch_id,
        "tidegate.batch.size": stages.batch_rows,
        "tidegate.batch.requests": stages.batch_requests,
        "tidegate.batch.tokens": stages.batch_tokens,
        "tidegate.batch.close": stages.close,
        "tidegate.device_ms": stages.device_us / 1000,
        "tidegate.predicted_ms": stages.predicted_us / 1000,
        "tidegate.interrupted_ms": stages.interrupted_us / 1000,
    }


def _span_id() -> str:
    return f"{random.getrandbits(64) or 1:016x}"
