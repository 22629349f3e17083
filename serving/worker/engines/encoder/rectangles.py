"""Rectangles: rows of similar length run together, so that padding stays small. Pure.

Rows are sorted by length and cut into runs; each run becomes a rectangle of its rows and the length of its
longest row, rounded up to a bucket. Cutting costs a call, not cutting costs padding: a dynamic program over
the buckets that occur finds the cheapest cuts, with a call priced in tokens.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

_STEPS = ((64, 8), (128, 16), (256, 32), (512, 64))
"""(up to so many tokens, rounded up to multiples of this)."""
_COARSEST = 128
CALL_TOKENS = 16
"""What one call costs beside its tokens: `a ÷ c` of a measured curve (3.5 ms ÷ 0.225 ms)."""
MOST_CELLS = 8192
"""A rectangle of more cells is cut, so that urgent work does not wait long between two of them."""


@dataclass(frozen=True, slots=True)
class Rectangle:
    rows: np.ndarray
    """int64: which given rows, shortest first."""
    length: int

    @property
    def cells(self) -> int:
        return len(self.rows) * self.length


def bucket(length: int) -> int:
    """The length that a row is padded to when it is the longest of its rectangle."""
    step = next((step for limit, step in _STEPS if length <= limit), _COARSEST)
    return -(-length // step) * step


def cut(lengths: Sequence[int], most_length: int) -> list[Rectangle]:
    """Rectangles that hold every row once, shortest first; buckets end at `most_length`."""
    buckets = [min(bucket(length), most_length) for length in lengths]
    found, counts = np.unique(np.asarray(buckets, np.int64), return_counts=True)
    return _dealt(lengths, _cheapest(found.tolist(), counts.tolist()))


def cut_exactly(lengths: Sequence[int]) -> list[Rectangle]:
    """Rectangles without any padding, for models whose results depend on it."""
    found, counts = np.unique(np.asarray(lengths, np.int64), return_counts=True)
    return _dealt(lengths, list(zip(counts.tolist(), found.tolist(), strict=True)))


def filled(
    rectangle: Rectangle, given: np.ndarray, sizes: np.ndarray, padding_id: int, least_rows: int = 1
) -> tuple[np.ndarray, np.ndarray]:
    """Token ids and mask, int64 [rows, length], of a rectangle; `given` are the flat ids of rows of `sizes`.

    Fewer rows than `least_rows` are repeated.
    """
    rows, columns = rectangle.rows, np.arange(rectangle.length)
    if len(rows) < least_rows:
        rows = np.repeat(rows, least_rows)
    is_token = columns < sizes[rows][:, None]
    starts = np.cumsum(sizes) - sizes
    sources = np.minimum(starts[rows][:, None] + columns, len(given) - 1)
    return np.where(is_token, given[sources], padding_id).astype(np.int64), is_token.astype(np.int64)


def _dealt(lengths: Sequence[int], runs: Sequence[tuple[int, int]]) -> list[Rectangle]:
    """The rows, shortest first, dealt to runs of (rows, length)."""
    order = np.argsort(np.asarray(lengths, np.int64), kind="stable")
    rectangles, start = [], 0
    for rows, length in runs:
        for first, stop in _pieces(start, start + rows, length):
            rectangles.append(Rectangle(order[first:stop], length))
        start += rows
    return rectangles


def _cheapest(lengths: list[int], counts: list[int]) -> list[tuple[int, int]]:
    """(rows, length) of each run, for bucket lengths that rise and how many rows each holds."""
    ends = np.cumsum([0, *counts]).tolist()
    best: list[tuple[float, int]] = [(0.0, 0)]
    for stop in range(1, len(ends)):
        rows_to_stop, length = ends[stop], lengths[stop - 1]
        costs = [
            (best[start][0] + CALL_TOKENS + (rows_to_stop - ends[start]) * length, start)
            for start in range(stop)
        ]
        best.append(min(costs))
    runs, stop = [], len(counts)
    while stop:
        start = best[stop][1]
        runs.append((ends[stop] - ends[start], lengths[stop - 1]))
        stop = start
    return runs[::-1]


def _pieces(start: int, stop: int, length: int) -> list[tuple[int, int]]:
    """Equal parts of a run, none beyond `MOST_CELLS`."""
    rows = stop - start
    parts = -(-rows * length // MOST_CELLS)
    edges = [start + rows * part // parts for part in range(parts + 1)]
    return [(first, last) for first, last in itertools.pairwise(edges) if last > first]
