"""The live frame: what one process counted in one second. Lost frames cost a second of a chart, never a bill.

Gateways send request series, workers send replica gauges, on the Valkey channel `FRAMES_CHANNEL`. The
collector (controller) merges them and publishes what the console streams.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from serving.contract import SlaClass
from serving.telemetry.histogram import Histogram

FRAMES_CHANNEL = "tidegate:frames"
STAGES = ("gateway", "queue", "batch_wait", "execute", "post", "total")
"""Fixed order and palette everywhere. `execute` includes interruptions by urgent batches."""
STREAM_STAGES = ("first_chunk", "chunk_gap")
"""Of streamed answers besides: until the first chunk left, and the mean time between two."""
HISTOGRAMS = (*STAGES, *STREAM_STAGES, "batch_rows")
"""Everything a series has a histogram of: microseconds by stage, and the rows of each answer's batch."""
SUM = 2047
"""The slot, beyond every bucket, that holds the sum of the values themselves."""
FIRST_SLOT = {name: number * (SUM + 1) for number, name in enumerate(HISTOGRAMS)}
"""All histograms of a series are one dictionary, which merges in one pass: slot = first slot + bucket."""


def slots_of(histograms: Iterable[tuple[str, Histogram]]) -> dict[int, int]:
    """Histograms by name → the slots of a series or tally."""
    out: dict[int, int] = {}
    for name, histogram in histograms:
        if histogram.counts:
            first = FIRST_SLOT[name]
            for bucket, count in histogram.counts.items():
                out[first + bucket] = count
            out[first + SUM] = histogram.sum
    return out


class Series(msgspec.Struct, array_like=True, gc=False):
    """One tenant × model × version × endpoint × class, since the last frame."""

    tenant_id: str
    model: str
    version_id: str
    endpoint: str
    sla_class: SlaClass
    target_us: int
    answered: int
    failed: dict[str, int]
    """Refusals and errors by code."""
    kept: int
    """Answers within the profile's target."""
    rows: int
    tokens: int
    device_us: int
    cost_micro: int
    shared: int
    """Answers whose batch held more than one request."""
    closes: dict[str, int]
    slots: dict[int, int]
    """Its histograms (`slots_of`)."""
    pending: int = 0
    """Requests in flight in this gateway now."""
    executed_us: int = 0
    """Execution of each answer's batch, and what was predicted of it; streams left out."""
    predicted_us: int = 0
    misjudged_us: int = 0
    """By how much the two differ, added up without signs."""
    batch_tokens: int = 0
    """Of each answer's batch, and what the device worked on for it, padding included, where the engine says."""
    executed_tokens: int = 0


class ReplicaGauge(msgspec.Struct, array_like=True):
    """State of one replica, reported by its worker."""

    replica_id: str
    model: str
    version_id: str
    epoch: int
    queued_rows: int
    running_rows: int
    busy_us: int
    """Device time used since the last frame."""
    batches: int
    rows: int
    tokens: int
    cost_error_p95: float | None = None
    """Relative error of predicted execution times, 95th percentile."""
    memory_bytes: int = 0
    executed_tokens: int = 0
    """Of `tokens`, what the device worked on, padding included."""


class LiveFrame(msgspec.Struct, array_like=True):
    process: str
    epoch: int
    sequence: int
    at: float
    window_s: float
    series: tuple[Series, ...] = ()
    replicas: tuple[ReplicaGauge, ...] = ()


encode_frame = msgspec.msgpack.Encoder().encode
decode_frame = msgspec.msgpack.Decoder(LiveFrame).decode
