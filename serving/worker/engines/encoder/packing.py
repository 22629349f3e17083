"""Packing: rows of different lengths behind each other in one long sequence, without padding.

Rows are sorted by length, so that rows of equal length form one group and attention runs once per group
on a dense (rows, length) block. The total is padded to a step of a grid that grows coarser with size: few
distinct matrix shapes, which can be warmed up, so that no kernel is new to the device. Small batches, whose
time their callers notice, are not padded at all; from 256 tokens on it is 3 % at most.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

ALIGNMENT = 8
_STEPS = ((64, 1), (512, ALIGNMENT), (1024, 16), (2048, 32), (4096, 64))
"""(up to so many tokens, padded to multiples of this). About 150 sizes below 1,024 tokens, four or five
matrix products each: oneDNN remembers a thousand kernels."""
_COARSEST = 128


@dataclass(frozen=True, slots=True)
class Group:
    """`rows` rows of `length` tokens each, at `start` of the packed sequence."""

    start: int
    rows: int
    length: int

    @property
    def stop(self) -> int:
        return self.start + self.rows * self.length


@dataclass(frozen=True, slots=True)
class Packing:
    ids: np.ndarray
    """int64 [padded]: token ids, zeros behind the last row."""
    positions: np.ndarray
    """int64 [padded]: position of each token within its row."""
    groups: tuple[Group, ...]
    order: np.ndarray
    """int64 [rows]: which given row is the n-th packed one."""
    starts: np.ndarray
    """int64 [rows]: where the n-th packed row starts."""
    tokens: int
    """Without the padding at the end."""

    @property
    def rows(self) -> int:
        return len(self.order)

    @property
    def padded(self) -> int:
        return len(self.ids)

    @property
    def has_neighbours(self) -> bool:
        """Whether a row is beside anything, be it padding."""
        return self.rows > 1 or self.padded > self.tokens

    @property
    def lengths(self) -> np.ndarray:
        """int64 [rows]: tokens of the n-th packed row."""
        return np.diff(np.append(self.starts, self.tokens))


def padded_tokens(tokens: int) -> int:
    """What a packed batch of so many tokens is padded to."""
    step = next((step for limit, step in _STEPS if tokens <= limit), _COARSEST)
    return -(-tokens // step) * step


def grid(most: int) -> list[int]:
    """Every size up to `most` tokens that a batch may be padded to."""
    sizes = []
    size = padded_tokens(1)
    while size <= most:
        sizes.append(size)
        size = padded_tokens(size + 1)
    return sizes


def short_rows(tokens: int) -> list[int]:
    """Lengths of rows of a few tokens that make a batch of exactly so many: for warming up."""
    whole, rest = divmod(tokens, ALIGNMENT)
    return [ALIGNMENT] * whole + [rest] * (rest > 0)


def pack(ids: Sequence[np.ndarray], lengths: Sequence[int], size: int | None = None) -> Packing:
    """Pack rows given as flat id arrays (any integer type) whose rows have `lengths`, in order.

    `size`: what to pad to, no less than the tokens; by default the next size of the grid.
    """
    if len(lengths) == 1:
        return _pack_alone(ids[0], size)
    given = np.concatenate(ids) if len(ids) > 1 else ids[0]
    sizes = np.asarray(lengths, np.int64)
    order = np.argsort(sizes, kind="stable")
    tokens = int(sizes.sum())
    sorted_sizes = sizes[order]
    ends = np.cumsum(sorted_sizes)
    within = np.arange(tokens) - np.repeat(ends - sorted_sizes, sorted_sizes)
    starts = np.cumsum(sizes) - sizes
    padded = padded_tokens(tokens) if size is None else size
    flat, positions = np.zeros(padded, np.int64), np.zeros(padded, np.int64)
    flat[:tokens] = given[np.repeat(starts[order], sorted_sizes) + within]
    positions[:tokens] = within
    return Packing(flat, positions, _groups(sorted_sizes), order, ends - sorted_sizes, tokens)


def _pack_alone(ids: np.ndarray, size: int | None) -> Packing:
    """A lone row, whose caller would notice the dozen steps of sorting it."""
    tokens = len(ids)
    flat, positions = np.zeros((2, padded_tokens(tokens) if size is None else size), np.int64)
    flat[:tokens] = ids
    positions[:tokens] = np.arange(tokens)
    first = np.zeros(1, np.int64)
    return Packing(flat, positions, (Group(0, 1, tokens),), first, first, tokens)


def first_tokens(packing: Packing) -> tuple[np.ndarray, Packing]:
    """Which packed tokens are their row's first, padded to the grid, and how these alone are packed."""
    rows = packing.rows
    indices = np.zeros(padded_tokens(rows), np.int64)
    indices[:rows] = packing.starts
    alone = replace(
        packing,
        ids=packing.ids[indices],
        positions=packing.positions[indices],
        groups=(Group(0, rows, 1),),
        starts=np.arange(rows),
        tokens=rows,
    )
    return indices, alone


def _groups(sorted_sizes: np.ndarray) -> tuple[Group, ...]:
    lengths, counts = np.unique(sorted_sizes, return_counts=True)
    groups, start = [], 0
    for length, rows in zip(lengths.tolist(), counts.tolist(), strict=True):
        groups.append(Group(start, rows, length))
        start += rows * length
    return tuple(groups)
