"""What the book calls the device a replica runs on."""

from __future__ import annotations

import re
from collections.abc import Iterable

from serving.contract import DeviceInfo
from serving.control.fleet.models import Host, Replica

CPU = "cpu"
_NOT_PLAIN = re.compile(r"[^a-z0-9.]+")
_MAX_CHARS = 63


def class_of(device: str, infos: Iterable[DeviceInfo]) -> str:
    """`cpu`, the maker's name (`nvidia-h200`), or `cuda` where the host does not say more."""
    if device == CPU:
        return CPU
    product = next((info.product for info in infos if info.name == device), "")
    return _NOT_PLAIN.sub("-", product.lower()).strip("-.")[:_MAX_CHARS] or device.partition(":")[0]


def classes_of(replicas: Iterable[Replica]) -> dict[str, str]:
    """Replica id → device class. The replicas carry their hosts."""
    return {row.pk: class_of(row.device, row.host.device_infos()) for row in replicas}


def known_classes() -> list[str]:
    """Of every host that was ever heard of."""
    found = {CPU}
    for host in Host.objects.all():
        infos = host.device_infos()
        found |= {class_of(info.name, infos) for info in infos}
    return sorted(found)
