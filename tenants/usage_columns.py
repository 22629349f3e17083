"""Columns of the ledger, for whoever writes its SQL; knows no Django."""

from __future__ import annotations

DIMENSIONS = ("tenant_id", "key_id", "model", "version_id", "sla_class")
"""What a row is about, besides its time."""
IDLE_CLASS = "idle"
"""In the place of an SLA class: device time that stood ready for somebody and was not used."""
PLATFORM_DIMENSIONS = ("model", "version_id", "sla_class")
"""What is left of them in sums over every tenant."""
NAMES = ("tenant_name", "key_name")
COUNTS = (
    "requests",
    "failed",
    "cancelled",
    "rows",
    "tokens",
    "device_us",
    "cancelled_us",
    "cost_micro",
)
