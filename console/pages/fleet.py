"""The fleet: what is where, and what is about to fill up."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from django.http import HttpResponse

from console.pages.answers import page, show
from console.requests import ConsoleRequest
from serving.contract import DeviceInfo
from serving.control.fleet.access import visible_hosts, visible_replicas
from serving.control.fleet.models import Host, Replica
from serving.control.fleet.states import GONE
from tenants.access import require
from tenants.roles import Right

ROOMY_SHARE = 0.12


@dataclass(slots=True)
class Block:
    """One replica's memory on a device."""

    replica: Replica
    bytes: int
    share: float

    @property
    def width(self) -> str:
        """Percent of the device, for a style."""
        return f"{min(1.0, self.share) * 100:.2f}"

    @property
    def is_roomy(self) -> bool:
        """Wide enough for its name; a narrower one has it on hover, and in the table below."""
        return self.share >= ROOMY_SHARE


@dataclass(slots=True)
class DeviceView:
    info: DeviceInfo
    blocks: list[Block] = field(default_factory=list)

    @property
    def used_bytes(self) -> int:
        return sum(block.bytes for block in self.blocks)

    @property
    def share(self) -> float | None:
        return self.used_bytes / self.info.memory_bytes if self.info.memory_bytes else None


@dataclass(slots=True)
class HostView:
    host: Host
    is_live: bool
    devices: list[DeviceView]
    replicas: list[Replica]


@page("fleet")
def index(request: ConsoleRequest) -> HttpResponse:
    return show(request, "pages/fleet.html", **_context(request))


@page("fleet")
def state(request: ConsoleRequest) -> HttpResponse:
    """The page's inner part, polled: hosts and replicas move by themselves."""
    return show(request, "pages/fleet_state.html", **_context(request))


def _context(request: ConsoleRequest) -> dict[str, Any]:
    require(request.actor, Right.VIEW_PLATFORM)
    replicas = list(visible_replicas(request.actor).exclude(is_wanted=False, state__in=GONE))
    hosts = [
        _view(host, [r for r in replicas if r.host_id == host.pk]) for host in visible_hosts(request.actor)
    ]
    return {"hosts": hosts, "replica_count": len(replicas)}


def _view(host: Host, replicas: list[Replica]) -> HostView:
    devices = [DeviceView(info) for info in host.device_infos()]
    for replica in replicas:
        device = _device_of(replica, devices)
        size_bytes = replica.memory_bytes or replica.version.memory_bytes or 0
        if device is not None and device.info.memory_bytes:
            device.blocks.append(Block(replica, size_bytes, size_bytes / device.info.memory_bytes))
    return HostView(host, host.is_live(), devices, replicas)


def _device_of(replica: Replica, devices: list[DeviceView]) -> DeviceView | None:
    """The device a replica lies on: by kind, and by number where it names one."""
    kind, _, index = replica.device.partition(":")
    matching = [device for device in devices if device.info.kind == kind]
    number = int(index) if index.isdigit() else 0
    return matching[number] if number < len(matching) else None
