"""The measurement of what quotas cost measures what it says."""

from __future__ import annotations

import pytest

from benchmarks import quotas


async def test_leased_limits_ask_nobody_and_budgets_are_asked_for_one_by_one(
    valkey_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quotas, "TURNS", 3)
    monkeypatch.setattr(quotas, "ALONE", 3)
    costs = await quotas.measure(valkey_url)
    assert [cost.limits for cost in costs] == [
        "one leased limit",
        "three leased limits",
        "one budget",
        "three budgets",
    ]
    assert all(cost.headers_us > 0 and 0 < cost.p50_us <= cost.p99_us for cost in costs)
