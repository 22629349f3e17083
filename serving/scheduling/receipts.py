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


def share_batch_us(batch: Batch, execute_us: int, culprits: Sequence[int] = ()) -> list[int]:
    """Each work's part of the batch's device time, by tokens (engines without tokens count rows as such).

    What a batch took beyond its prediction because some of its works failed is for these, at the positions
    `culprits`, alone.
    """
    tokens = [work.tokens for work in batch.works]
    if not culprits:
        return share_out_us(execute_us, tokens)
    usual_us = min(execute_us, round(batch.predicted_s * 1e6))
    shares_us = share_out_us(usual_us, tokens)
    extra_us = share_out_us(execute_us - usual_us, [tokens[position] for position in culprits])
    for position, us in zip(culprits, extra_us, strict=True):
        shares_us[position] += us
    return shares_us


class Departures:
    """Device time of a batch whose works end one by one: each stretch is paid by those still in it."""

    __slots__ = ("_is_open", "_passed_us", "_shares_us", "_weights", "open_count")

    def __init__(self, batch: Batch) -> None:
        self._weights = [work.tokens for work in batch.works]
        self._is_open = [True] * len(self._weights)
        self._shares_us = [0] * len(self._weights)
        self._passed_us = 0
        self.open_count = len(self._weights)

    def leave(self, position: int, execute_us: int) -> int:
        """The final share of the work at `position`, which ends when the batch has run for `execute_us`.

        Raises `ValueError` for one that left before, and for the last one: it stays until `close`.
        """
        if not self._is_open[position] or self.open_count == 1:
            raise ValueError(f"work {position} does not leave now")
        self._share_until(execute_us)
        self._is_open[position] = False
        self.open_count -= 1
        return self._shares_us[position]

    def close(self, execute_us: int) -> list[int]:
        """All shares, in the batch's order; they sum to `execute_us`."""
        self._share_until(execute_us)
        return self._shares_us

    def _share_until(self, execute_us: int) -> None:
        stretch_us, self._passed_us = max(0, execute_us - self._passed_us), max(execute_us, self._passed_us)
        staying = [position for position, is_open in enumerate(self._is_open) if is_open]
        shares = share_out_us(stretch_us, [self._weights[position] for position in staying])
        for position, share_us in zip(staying, shares, strict=True):
            self._shares_us[position] += share_us


def cost_micro(device_us: int, price_micro_per_device_hour: int) -> int:
    """Money for device time in micro-units of the currency, rounded half up."""
    return (device_us * price_micro_per_device_hour + _US_PER_HOUR // 2) // _US_PER_HOUR
