"""Fits the cost curve `L = a + b·rows + c·tokens` to measured points. Pure.

Errors are relative (a 5 ms batch matters as much as a 100 ms one) and robust: points far off the curve are
weighed down by Huber's rule, so that a noisy neighbour during one measurement does not bend it. Rows and
tokens grow together in practice, so `b` is held near zero unless the points insist.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from serving.contract import CostCurve, MeasuredPoint

_ROUNDS = 20
_OUTLIER = 0.1
"""Relative error from which a point counts less."""
_PRIOR_OF_ROWS = 0.3
"""Weight of the belief that a row costs nothing beside its tokens."""


def fit(points: Sequence[MeasuredPoint]) -> CostCurve:
    """Coefficients are never negative. Raises `ValueError` without points."""
    if not points:
        raise ValueError("no points to fit")
    rows = np.array([point.rows for point in points], float)
    tokens = np.array([point.tokens for point in points], float)
    measured = np.array([max(point.execute_ms, 1e-3) for point in points])
    columns = np.stack([np.ones_like(rows), rows, tokens], axis=1)
    a, b, c = _solve(columns, measured)
    residuals = np.abs(columns @ np.array([a, b, c]) - measured)
    return CostCurve(
        a_ms=round(float(a), 6),
        b_ms_per_row=round(float(b), 6),
        c_ms_per_token=round(float(c), 6),
        residual_p95_ms=round(float(np.quantile(residuals, 0.95)), 6),
    )


def _solve(columns: np.ndarray, measured: np.ndarray) -> np.ndarray:
    trust = np.ones_like(measured)
    solution = np.zeros(3)
    for _ in range(_ROUNDS):
        solution = _non_negative(columns, measured, trust / measured)
        errors = np.abs(columns @ solution - measured) / measured
        trust = np.sqrt(np.minimum(1.0, _OUTLIER / np.maximum(errors, 1e-9)))
    return solution


def _non_negative(columns: np.ndarray, measured: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Weighted least squares over the columns that stay positive: the worst offender leaves first."""
    active = [0, 1, 2] if np.ptp(columns[:, 1] - columns[:, 2]) else [0, 2]
    weighted, target = columns * weights[:, None], measured * weights
    while True:
        prior = np.zeros((1, len(active)))
        if 1 in active:
            prior[0, active.index(1)] = _PRIOR_OF_ROWS * np.linalg.norm(weighted[:, 1])
        system = np.vstack([weighted[:, active], prior])
        solved, *_ = np.linalg.lstsq(system, np.append(target, 0.0), rcond=None)
        if solved.min() >= 0.0 or len(active) == 1:
            break
        active.pop(int(solved.argmin()))
    solution = np.zeros(3)
    solution[active] = np.maximum(solved, 0.0)
    return solution
