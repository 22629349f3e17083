"""How long slices are kept, by resolution. Whole days are dropped."""

from __future__ import annotations

from datetime import datetime

from django.conf import settings

from serving.control.telemetry.models import RESOLUTIONS_S, MetricSpan, ReplicaSlice
from serving.control.telemetry.partitions import drop_days


def kept_s(resolution_s: int) -> int:
    """Seconds that slices of a resolution can be read back."""
    kept = {
        10: settings.METRICS_10S_KEPT_HOURS * 3600,
        60: settings.METRICS_1M_KEPT_DAYS * 86_400,
        3600: settings.METRICS_1H_KEPT_DAYS * 86_400,
    }
    return int(kept[resolution_s])


def prune(now: datetime) -> dict[str, int]:
    """Drop what is older; returns how many days of slices went."""
    dropped = 0
    for resolution_s in RESOLUTIONS_S:
        before = int(now.timestamp()) - kept_s(resolution_s)
        dropped += drop_days(resolution_s, before)
        ReplicaSlice.objects.filter(resolution_s=resolution_s, start__lt=before).delete()
        MetricSpan.objects.filter(resolution_s=resolution_s, start__lt=before).delete()
    return {"metric_days": dropped}
