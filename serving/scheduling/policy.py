"""The scheduler's constants, each with the reason for its value. All are ratios, times or bounds."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Policy:
    """Tunables of one replica's scheduler. Sizes in tokens are never constants: the cost curve gives them."""

    quiet_after_s: float = 3.0
    """A class counts as active this long after its last arrival; batches are sized for it meanwhile."""
    throughput_share: float = 0.97
    """A throughput-optimal batch is the smallest that reaches this share of the asymptotic throughput."""
    least_throughput_share: float = 0.8
    """Batches are never made smaller than this share of throughput for the sake of latency."""
    pause_share: float = 1 / 10
    """One piece of a pre-emptible batch lasts at most this share of the tightest interactive target."""
    bound_share: float = 0.75
    """A batch that cannot be paused and the urgent one behind it fit in this share of that target."""
    urgent_share: float = 0.5
    """One urgent batch lasts at most this share of that target, unless the target is lost already."""
    standard_share: float = 0.5
    """A batch lasts at most this share of the tightest active standard target."""
    max_batch_tokens: int = 32_768
    max_queued: int = 16_384
    """Works queued in one replica, all tenants and classes together."""
    standard_min_share: float = 0.2
    """Device time promised to waiting standard work, whatever waits above it."""
    batch_min_share: float = 0.05
    """Device time promised to waiting batch work, whatever waits above it."""
    bucket_s: float = 0.15
    """Device seconds of interactive work a tenant may use at once beyond its rate."""
    recovered_share: float = 0.5
    """A tenant whose bucket is this full again gets its demoted works promoted back."""
    promotions: int = 8
    """Works promoted, and tenants looked at, in one decision: a bound on its cost."""
    seen_s: float = 2.0
    """Tenants seen within this time share the device's interactive rate by weight."""
    lift_after_s: float = 0.25
    """A tenant away for longer returns without the claims of its absence."""
    lookahead: int = 8
    """How far into a queue the batch builder looks for work that still fits."""
    probe_after_s: float = 1.0
    """An idle replica tries a request its cost model calls hopeless when it has not run one for so long."""
    max_accounts: int = 4096
    """Tenants remembered; idle ones are forgotten first."""
