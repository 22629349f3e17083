"""Words that entries and reports share, and the base of everything that crosses the seam."""

from __future__ import annotations

from typing import Literal

import msgspec

SlaClass = Literal["interactive", "standard", "batch"]
LatePolicy = Literal["refuse", "degrade", "run"]
ReplicaState = Literal["pending", "starting", "loading", "warming", "ready", "draining", "stopped", "failed"]
VersionState = Literal["registered", "validating", "ready", "failed", "archived"]
EngineName = Literal["encoder", "tensor", "onnx", "python", "echo"]
CloseReason = Literal["full", "due", "window", "idle", "drain"]
QuotaResource = Literal["requests", "tokens", "device_us", "cost_micro", "concurrency", "queue"]
QuotaWindow = Literal["", "second", "minute", "hour", "day", "month"]
AddressClass = Literal["loopback", "private", "public", "unknown"]


class Frozen(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Base of everything that crosses the seam: immutable, keyword-only, unknown fields ignored."""
