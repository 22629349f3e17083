"""Who pays for a batch: device time shared out in integers that sum exactly, and its price."""

from __future__ import annotations

from collections.abc import Sequence

from serving.scheduling.work import Batch

_US_PER_HOUR = 3_600_000_000


def share_out_us(total_us: int, weights: Sequence[int]) -> list[int]:
    """Split `total_us` by weight, each share within a microsecond of fair; the shares sum to the total.

    Boundaries between neighbours are rounded up, not the shares. All-zero weights share evenly. Raises
    `ValueError` for a negative total or weight.
    """
    if total_us < 0 or (weights and min(weights) < 0):
        raise ValueError("negative share")
    whole = sum(weights)
    if whole == 0:
        weights, whole = [1] * len(weights), len(weights)
    shares = []
    passed = edge_us = 0
    for weight in weights:
        passed += weight
        next_us = -(-total_us * passed // whole)
        shares.append(next_us - edge_us)
        edge_us = next_us
    return shares


def share_batch_us(batch: Batch, execute_us: int) -> list[int]:
    """Each work's part of the batch's device time, by tokens (engines without tokens count rows as such)."""
    return share_out_us(execute_us, [work.tokens for work in batch.works])


def cost_micro(device_us: int, price_micro_per_device_hour: int) -> int:
    """Money for device time in micro-units of the currency, rounded half up."""
    return (device_us * price_micro_per_device_hour + _US_PER_HOUR // 2) // _US_PER_HOUR
