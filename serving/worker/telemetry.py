"""The worker's live frame, once a second, on Valkey. Losing it costs a second of a chart, nothing else."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import redis.asyncio as redis
import structlog

from serving.scheduling.cost import CostModel
from serving.telemetry.frames import FRAMES_CHANNEL, LiveFrame, ReplicaGauge, encode_frame
from serving.worker import memory
from serving.worker.loop import Counters
from serving.worker.spec import WorkerSpec

log = structlog.get_logger(__name__)

PERIOD_S = 1.0
MAX_BACK_OFF_S = 10.0


def gauge(spec: WorkerSpec, counters: Counters, cost: CostModel, memory_bytes: int) -> ReplicaGauge:
    return ReplicaGauge(
        replica_id=spec.replica_id,
        model=spec.version.model,
        version_id=spec.version.id,
        epoch=spec.epoch,
        queued_rows=counters.queued_rows,
        running_rows=counters.running_rows,
        busy_us=counters.busy_us,
        batches=counters.batches,
        rows=counters.rows,
        tokens=counters.tokens,
        cost_error_p95=cost.error_p95,
        memory_bytes=memory_bytes,
        executed_tokens=counters.executed_tokens,
    )


async def publish(
    valkey_url: str, spec: WorkerSpec, cost: CostModel, take_counters: Callable[[], Counters]
) -> None:
    """Publish a frame each second until cancelled; an unreachable Valkey is retried ever more rarely."""
    client = redis.Redis.from_url(valkey_url, socket_timeout=1.0, socket_connect_timeout=1.0)
    sequence, pause_s = 0, PERIOD_S
    last = time.monotonic()
    try:
        while True:
            await asyncio.sleep(pause_s)
            now, sequence = time.monotonic(), sequence + 1
            replica = gauge(spec, take_counters(), cost, memory.resident_bytes())
            frame = LiveFrame(
                f"worker:{spec.replica_id}", spec.epoch, sequence, time.time(), now - last, (), (replica,)
            )
            last = now
            try:
                await client.publish(FRAMES_CHANNEL, encode_frame(frame))
                pause_s = PERIOD_S
            except (redis.RedisError, OSError) as error:
                pause_s = min(MAX_BACK_OFF_S, pause_s * 2)
                log.info("valkey.unreachable", error=str(error), retry_in_s=pause_s)
    finally:
        await client.aclose()
