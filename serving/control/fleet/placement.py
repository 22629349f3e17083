"""Which replicas should exist where: pure. Deployments, hosts and replicas in; what to create and remove out.

A switch of versions needs no state of its own: replicas of the wanted version are created beside the
old ones, and the old ones go once as many new ones are ready as are wanted (or one by one, where there
is no room for both).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from serving.contract import DeviceInfo, ReplicaState

MEMORY_SHARE = 0.9
"""Of a device's memory; the rest is the system's, and what validation could not see."""


@dataclass(frozen=True, slots=True)
class Wish:
    """A deployment: `count` replicas of `version_id`. A stopped one wishes for none."""

    deployment_id: str
    version_id: str
    count: int
    device: str = "cpu"
    memory_bytes: int = 0
    """Measured by validation, per replica."""


@dataclass(frozen=True, slots=True)
class Site:
    """A host that could run replicas."""

    host_id: str
    name: str
    is_live: bool
    devices: tuple[DeviceInfo, ...]


@dataclass(frozen=True, slots=True)
class Placed:
    """A replica that is wanted so far, or is still draining there."""

    replica_id: str
    deployment_id: str
    version_id: str
    host_id: str
    slot: int
    device: str
    state: ReplicaState
    is_wanted: bool = True
    memory_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Create:
    deployment_id: str
    version_id: str
    host_id: str
    slot: int
    device: str


@dataclass(frozen=True, slots=True)
class Remove:
    replica_id: str
    reason: str


@dataclass(slots=True)
class Decision:
    create: list[Create] = field(default_factory=list)
    remove: list[Remove] = field(default_factory=list)
    blocked: dict[str, str] = field(default_factory=dict)
    """Deployment id → why it cannot have what it wishes for, with the numbers."""


class _Room:
    """Memory left per (host, device), as placements are made."""

    def __init__(self, sites: Iterable[Site], placed: Iterable[Placed]) -> None:
        self.sites = [site for site in sites if site.is_live]
        self._free: dict[tuple[str, str], int] = {
            (site.host_id, device.name): int(device.memory_bytes * MEMORY_SHARE)
            for site in self.sites
            for device in site.devices
        }
        for replica in placed:
            self.take(replica.host_id, replica.device, replica.memory_bytes)

    def take(self, host_id: str, device: str, memory_bytes: int) -> None:
        if (host_id, device) in self._free:
            self._free[host_id, device] -= memory_bytes

    def candidates(self, wanted_device: str) -> list[tuple[str, str, int]]:
        """(host, device, free bytes) of every live device that fits the wish's device."""
        return [
            (site.host_id, device.name, self._free[site.host_id, device.name])
            for site in self.sites
            for device in site.devices
            if wanted_device in (device.name, device.kind)
        ]


def decide(wishes: Sequence[Wish], sites: Sequence[Site], placed: Sequence[Placed]) -> Decision:
    """Idempotent: applied to its own result it decides nothing more.

    Spreads a deployment over hosts first, then takes the device with most memory left. Replicas on silent
    hosts are replaced as soon as a live host has room, and kept otherwise: their agent may come back.
    """
    decision = Decision()
    room = _Room(sites, placed)
    live_hosts = {site.host_id for site in room.sites}
    known = {wish.deployment_id for wish in wishes}
    for replica in placed:
        if replica.is_wanted and replica.deployment_id not in known:
            decision.remove.append(Remove(replica.replica_id, "its deployment was stopped"))
    for wish in sorted(wishes, key=lambda wish: wish.deployment_id):
        mine = [replica for replica in placed if replica.deployment_id == wish.deployment_id]
        own = [replica for replica in mine if replica.is_wanted]
        _settle(wish, own, room, live_hosts, decision)
        if wish.deployment_id in decision.blocked and len(own) == len(mine):
            _make_room(wish, own, decision)
    return decision


def _settle(wish: Wish, own: list[Placed], room: _Room, live_hosts: set[str], decision: Decision) -> None:
    current = [replica for replica in own if replica.version_id == wish.version_id]
    older = [replica for replica in own if replica.version_id != wish.version_id]
    reachable = [replica for replica in current if replica.host_id in live_hosts]
    silent = [replica for replica in current if replica.host_id not in live_hosts]

    created = _create(wish, own, wish.count - len(reachable), len(silent), room, decision)
    surplus = max(0, len(reachable) + len(silent) + created - wish.count)
    for replica in silent[:surplus]:
        decision.remove.append(Remove(replica.replica_id, "its host is silent"))
    for replica in _least_useful(reachable)[: max(0, len(reachable) - wish.count)]:
        decision.remove.append(Remove(replica.replica_id, "fewer replicas are wanted"))
    if sum(replica.state == "ready" for replica in reachable) >= wish.count:
        decision.remove += [Remove(replica.replica_id, "its version was replaced") for replica in older]


def _make_room(wish: Wish, own: list[Placed], decision: Decision) -> None:
    """A switch without room for both versions goes one replica at a time, and never takes the last ready one.

    Called only while none of the deployment's replicas is leaving: what leaves holds its memory until it is gone.
    """
    older = [replica for replica in own if replica.version_id != wish.version_id]
    if older and sum(replica.state == "ready" for replica in own) > 1:
        decision.remove.append(
            Remove(_least_useful(older)[0].replica_id, "it makes room for the new version")
        )


def _create(
    wish: Wish, own: list[Placed], missing: int, replaceable: int, room: _Room, decision: Decision
) -> int:
    """Place up to `missing` replicas, of which `replaceable` exist on silent hosts; returns how many."""
    per_host: dict[str, int] = {}
    for replica in own:
        per_host[replica.host_id] = per_host.get(replica.host_id, 0) + 1
    taken = {replica.slot for replica in own}
    for done in range(missing):
        spot = _best(wish, per_host, room)
        if spot is None:
            if missing - done > replaceable:
                decision.blocked[wish.deployment_id] = _why_not(wish, missing - done, room)
            return done
        host_id, device = spot
        slot = next(number for number in range(1, len(taken) + 2) if number not in taken)
        taken.add(slot)
        per_host[host_id] = per_host.get(host_id, 0) + 1
        room.take(host_id, device, wish.memory_bytes)
        decision.create.append(Create(wish.deployment_id, wish.version_id, host_id, slot, device))
    return max(0, missing)


def _best(wish: Wish, per_host: dict[str, int], room: _Room) -> tuple[str, str] | None:
    fitting = [spot for spot in room.candidates(wish.device) if spot[2] >= wish.memory_bytes]
    if not fitting:
        return None
    host_id, device, _ = min(fitting, key=lambda spot: (per_host.get(spot[0], 0), -spot[2], spot[0], spot[1]))
    return host_id, device


def _why_not(wish: Wish, missing: int, room: _Room) -> str:
    if not room.sites:
        return "No host is connected: start an agent."
    candidates = room.candidates(wish.device)
    if not candidates:
        return f"No connected host has the device “{wish.device}”."
    most = max(free for _, _, free in candidates)
    return (
        f"{missing} more replica(s) need {_mib(wish.memory_bytes)} each; "
        f"the most that is free on one “{wish.device}” device is {_mib(max(0, most))}."
    )


def _mib(size_bytes: int) -> str:
    return f"{size_bytes / 2**20:,.0f} MiB"


def _least_useful(replicas: Iterable[Placed]) -> list[Placed]:
    """Those that are not ready first, then the newest slots."""
    return sorted(replicas, key=lambda replica: (replica.state == "ready", -replica.slot))


def after(decision: Decision, placed: Sequence[Placed], memory_bytes: dict[str, int]) -> list[Placed]:
    """The replicas once `decision` is carried out: for previews and for tests."""
    removed = {removal.replica_id for removal in decision.remove}
    kept = [replace(r, is_wanted=False) if r.replica_id in removed else r for r in placed]
    created = [
        Placed(
            replica_id=f"new-{number}-{create.deployment_id}-{create.slot}",
            deployment_id=create.deployment_id,
            version_id=create.version_id,
            host_id=create.host_id,
            slot=create.slot,
            device=create.device,
            state="pending",
            memory_bytes=memory_bytes.get(create.deployment_id, 0),
        )
        for number, create in enumerate(decision.create)
    ]
    return kept + created
