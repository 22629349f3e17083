"""What crosses the seam: config entries go down, reports come up.

Every struct here is frozen, versioned by its table row, and free of behaviour. Both planes import this
package and nothing of each other. Fields are only ever added, with a default, so that a data-plane
process one release behind still reads what a newer control plane publishes.

Units are in the names. Money is in micro-units of the platform currency (1 000 000 = 1.00). Times are
Unix seconds (float) unless a name says otherwise.
"""

from __future__ import annotations

import msgspec

from serving.contract.entries import (
    BindingEntry,
    ConfigBody,
    ConfigChange,
    CostCurve,
    DeploymentEntry,
    KeyEntry,
    ModelEntry,
    OptionValue,
    PriceEntry,
    ProfileEntry,
    QuotaEntry,
    ReplicaSpec,
    SampleTensor,
    TenantEntry,
    TensorSpec,
    TuningEntry,
    ValidationEntry,
    VersionEntry,
    WeightedVersion,
)
from serving.contract.reports import (
    Agreement,
    DeviceInfo,
    EventReport,
    HostReport,
    KeyMisuse,
    KeySeen,
    KeysReport,
    MeasuredPoint,
    ReplicaReport,
    Report,
    ReportBody,
    TuningReport,
    TuningRow,
    UsageReport,
    UsageRow,
    ValidationReport,
)
from serving.contract.words import (
    AddressClass,
    CloseReason,
    EngineName,
    Frozen,
    LatePolicy,
    QuotaResource,
    QuotaWindow,
    ReplicaState,
    SlaClass,
    VersionState,
)

__all__ = [
    "AddressClass",
    "Agreement",
    "BindingEntry",
    "CloseReason",
    "ConfigBody",
    "ConfigChange",
    "CostCurve",
    "DeploymentEntry",
    "DeviceInfo",
    "EngineName",
    "EventReport",
    "Frozen",
    "HostReport",
    "KeyEntry",
    "KeyMisuse",
    "KeySeen",
    "KeysReport",
    "LatePolicy",
    "MeasuredPoint",
    "ModelEntry",
    "OptionValue",
    "PriceEntry",
    "ProfileEntry",
    "QuotaEntry",
    "QuotaResource",
    "QuotaWindow",
    "ReplicaReport",
    "ReplicaSpec",
    "ReplicaState",
    "Report",
    "ReportBody",
    "SampleTensor",
    "SlaClass",
    "TenantEntry",
    "TensorSpec",
    "TuningEntry",
    "TuningReport",
    "TuningRow",
    "UsageReport",
    "UsageRow",
    "ValidationEntry",
    "ValidationReport",
    "VersionEntry",
    "VersionState",
    "WeightedVersion",
    "decode_config",
    "decode_report",
    "encode_body",
]

_encode = msgspec.json.Encoder().encode
_decode_config = msgspec.json.Decoder(ConfigBody).decode
_decode_report = msgspec.json.Decoder(ReportBody).decode


def encode_body(body: ConfigBody | ReportBody) -> bytes:
    """JSON with the struct's tag in `type`: readable in psql, and what the last-good file holds."""
    return _encode(body)


def decode_config(raw: bytes | str) -> ConfigBody:
    """Raises `msgspec.ValidationError` when the row is not one of ours."""
    return _decode_config(raw)


def decode_report(raw: bytes | str) -> ReportBody:
    """Raises `msgspec.ValidationError` when the row is not one of ours."""
    return _decode_report(raw)
