"""Every model of the app, gathered where Django looks for them; each lives with its noun."""

from serving.control.alerts.channels.models import AlertChannel, AlertDelivery
from serving.control.alerts.models import (
    Alert,
    AlertGroup,
    AlertNotification,
    AlertRoute,
    AlertRule,
    AlertSilence,
    AlertTransition,
)
from serving.control.catalog.models import Artifact, Model, ModelAlias, ModelGrant, Version
from serving.control.fleet.models import Deployment, Host, Replica
from serving.control.pricing.models import Price, ReadyHour
from serving.control.profiles.models import ProfileBinding, SlaProfile
from serving.control.quotas.models import Quota
from serving.control.seam_tables import ConfigClock, ConfigEntry, ReportRow
from serving.control.task_outbox import TaskOutbox
from serving.control.telemetry.models import MetricSlice, MetricSpan, ReplicaSlice
from serving.control.tuning.models import TuningCandidate, TuningRun

__all__ = [
    "Alert",
    "AlertChannel",
    "AlertDelivery",
    "AlertGroup",
    "AlertNotification",
    "AlertRoute",
    "AlertRule",
    "AlertSilence",
    "AlertTransition",
    "Artifact",
    "ConfigClock",
    "ConfigEntry",
    "Deployment",
    "Host",
    "MetricSlice",
    "MetricSpan",
    "Model",
    "ModelAlias",
    "ModelGrant",
    "Price",
    "ProfileBinding",
    "Quota",
    "ReadyHour",
    "Replica",
    "ReplicaSlice",
    "ReportRow",
    "SlaProfile",
    "TaskOutbox",
    "TuningCandidate",
    "TuningRun",
    "Version",
]
