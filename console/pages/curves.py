"""A version's measured speed, in the form its chart draws: points, and the line the scheduler believes."""

from __future__ import annotations

from typing import Any

from serving.control.catalog.models import Version


def curve_of(version: Version) -> dict[str, Any] | None:
    """Points by tokens (or by rows, where there are none), each with the fitted time beside it."""
    points, cost = version.measured_points(), version.cost_curve()
    if cost is None or not points:
        return None
    by_tokens = any(point.tokens > point.rows for point in points)
    ordered = sorted(points, key=lambda point: (point.tokens if by_tokens else point.rows, point.rows))
    fitted = [cost.a_ms + cost.b_ms_per_row * p.rows + cost.c_ms_per_token * p.tokens for p in ordered]
    return {
        "axis": "tokens" if by_tokens else "rows",
        "x": [point.tokens if by_tokens else point.rows for point in ordered],
        "rows": [point.rows for point in ordered],
        "measured": [round(point.execute_ms, 4) for point in ordered],
        "fitted": [round(value, 4) for value in fitted],
    }
