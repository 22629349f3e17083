"""A gateway and a worker as they run in production, configured by a last-good file instead of a database.

Everything on the request path is on: authentication, admission, routing, receipts, metrics, usage. Absent
are the control plane, PostgreSQL and Valkey, which that path never touches.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from benchmarks import model, processes
from serving.agent.launchers.allocation import allocation
from serving.contract import (
    BindingEntry,
    ConfigBody,
    CostCurve,
    DeploymentEntry,
    KeyEntry,
    ModelEntry,
    ProfileEntry,
    ReplicaSpec,
    SlaClass,
    TenantEntry,
    TensorSpec,
    VersionEntry,
    WeightedVersion,
)
from serving.digests import digest
from serving.gateway.snapshot import KINDS
from serving.seam.follower import ConfigFollower
from serving.seam.memory import MemorySeam
from serving.worker.spec import WorkerSpec
from tenants.keys import digest_secret, new_token

PEPPER = "benchmark-pepper-benchmark-pepper"
GATEWAY_CORE, WORKER_CORE = 0, 1
WEIGHTS = {"one": 1.0, "two": 2.0, "four": 4.0}
CAPACITY = 1_000_000
"""Bounds that no benchmark is meant to meet."""

INTERACTIVE = ("chat", "calm", "mild", "greedy")


def _profile(
    slug: str, sla_class: SlaClass, target_ms: float, deadline_ms: float, weight: float = 1.0
) -> ProfileEntry:
    return ProfileEntry(
        id=f"pro_{slug}",
        name=slug,
        sla_class=sla_class,
        target_p95_ms=target_ms,
        deadline_ms=deadline_ms,
        max_queue=4096,
        weight=weight,
    )


PROFILES = {
    **{slug: _profile(slug, "interactive", 50, 1000) for slug in INTERACTIVE},
    **{slug: _profile(slug, "batch", 10_000, 60_000, weight) for slug, weight in WEIGHTS.items()},
    "main": _profile("main", "standard", 250, 30_000),
    "archive": _profile("archive", "batch", 10_000, 60_000),
}
"""Tenant slug → the profile it is bound to."""


@dataclass(slots=True)
class Stack:
    """Ports, keys and processes of one running gateway and worker."""

    port: int
    keys: dict[str, str]
    gateway: subprocess.Popen[str] | None = None
    worker: subprocess.Popen[str] | None = None
    ready_s: float = 0.0
    pids: dict[str, int] = field(default_factory=dict)

    def authorization(self, tenant: str) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.keys[tenant]}"}


def minilm(curve: CostCurve | None, dtype: str) -> VersionEntry:
    return VersionEntry(
        id="mv_minilm",
        model=model.NAME,
        number=1,
        engine="encoder",
        artifact_sha256=digest(model.directory()).sha256,
        artifact_path=str(model.directory()),
        options={"dtype": dtype, "max_tokens": model.MAX_TOKENS, "truncate": True},
        inputs=(TensorSpec(name="text", datatype="BYTES", shape=(-1,)),),
        outputs=(TensorSpec(name="embedding", datatype="FP32", shape=(-1, 384)),),
        cost=curve,
        price_micro_per_device_hour=1_000_000,
    )


def echo() -> VersionEntry:
    return VersionEntry(
        id="mv_echo",
        model="echo",
        number=1,
        engine="echo",
        artifact_sha256="0" * 64,
        artifact_path="/",
        inputs=(TensorSpec(name="x", datatype="INT64", shape=(-1,)),),
        outputs=(TensorSpec(name="x", datatype="INT64", shape=(-1,)),),
        cost=CostCurve(a_ms=0.05, b_ms_per_row=0.001, c_ms_per_token=0.0),
        price_micro_per_device_hour=1_000_000,
    )


@contextlib.contextmanager
def serving(version: VersionEntry, directory: Path, gateways: int = 1) -> Iterator[Stack]:
    """Start worker and gateways, wait until the model answers. Raises `StartFailed`."""
    directory.mkdir(mode=0o700, parents=True)
    address = f"unix:{directory}/worker.sock"
    stack = Stack(port=processes.free_port(), keys={})
    entries = _entries(version, address, stack)
    for index in range(gateways):
        place = directory / (f"gateway-{index}" if index else "gateway")
        place.mkdir(mode=0o700)
        asyncio.run(_write_configuration(entries, place))
    spec = directory / "spec.json"
    spec.write_bytes(msgspec.json.encode(_spec(version, address)))
    worker_command = processes.python("-m", "serving.worker", "--spec", str(spec))
    with (
        processes.started(
            "worker",
            worker_command,
            core=WORKER_CORE,
            log_dir=directory,
            environment=allocation(os.environ),
        ) as stack.worker,
        contextlib.ExitStack() as others,
    ):
        stack.pids = {"worker": stack.worker.pid}
        started = [
            others.enter_context(_gateway(directory, stack, index, gateways)) for index in range(gateways)
        ]
        stack.gateway = started[0]
        for index, process in enumerate(started):
            stack.pids[f"gateway-{index}" if index else "gateway"] = process.pid
        stack.ready_s = processes.wait_until(
            lambda: _is_ready(stack, version.model), stack.gateway, "gateway", directory
        )
        yield stack


def _gateway(
    directory: Path, stack: Stack, index: int, count: int
) -> contextlib.AbstractContextManager[subprocess.Popen[str]]:
    numbers = {"TIDEGATE_GATEWAY_INDEX": str(index), "TIDEGATE_GATEWAY_COUNT": str(count)}
    return processes.started(
        f"gateway-{index}" if index else "gateway",
        processes.python("-m", "serving.gateway"),
        core=GATEWAY_CORE,
        log_dir=directory,
        environment=_environment(directory, stack) | numbers,
    )


def _spec(version: VersionEntry, address: str) -> WorkerSpec:
    return WorkerSpec(
        version=version, replica_id="rep_benchmark", epoch=1, address=address, cpu_core=WORKER_CORE
    )


def _environment(directory: Path, stack: Stack) -> dict[str, str]:
    return {
        "TIDEGATE_STATE_DIR": str(directory),
        "TIDEGATE_KEY_PEPPER": PEPPER,
        "TIDEGATE_GATEWAY_PORT": str(stack.port),
        "DATABASE_URL": "postgresql://nobody@127.0.0.1:1/absent",
        "VALKEY_URL": "",
    }


async def _write_configuration(entries: list[ConfigBody], directory: Path) -> None:
    """Publish into a seam in memory and let a follower write the file a gateway starts from."""
    seam = MemorySeam()
    for body in entries:
        seam.put(body.name if isinstance(body, ModelEntry) else body.id, body)
    follower = ConfigFollower(seam, KINDS, directory / "last-good.json", lambda changes: None)
    await follower.start()
    await follower.stop()


def _entries(version: VersionEntry, address: str, stack: Stack) -> list[ConfigBody]:
    replica = ReplicaSpec(id="rep_benchmark", version_id=version.id, host="benchmark", address=address)
    entries: list[ConfigBody] = [
        version,
        ModelEntry(
            id="mdl_benchmark",
            name=version.model,
            routes=(WeightedVersion(version_id=version.id, weight=100),),
            versions={"1": version.id},
        ),
        DeploymentEntry(id="dep_benchmark", model=version.model, replicas=(replica,)),
    ]
    for slug, profile in PROFILES.items():
        entries += _tenant(slug, profile, stack)
    return entries


def _tenant(slug: str, profile: ProfileEntry, stack: Stack) -> list[ConfigBody]:
    token = new_token()
    stack.keys[slug] = token.token
    return [
        TenantEntry(
            id=f"tnt_{slug}", slug=slug, name=slug, max_concurrency=CAPACITY, requests_per_s=CAPACITY
        ),
        KeyEntry(id=token.id, tenant_id=f"tnt_{slug}", digest=digest_secret(token.secret, PEPPER.encode())),
        profile,
        BindingEntry(id=f"bnd_{slug}", profile_id=profile.id, tenant_id=f"tnt_{slug}"),
    ]


def _is_ready(stack: Stack, name: str) -> bool:
    request = urllib.request.Request(
        f"http://127.0.0.1:{stack.port}/v2/models/{name}/ready", headers=stack.authorization("main")
    )
    try:
        with urllib.request.urlopen(request, timeout=1) as answer:
            return answer.status == 200
    except (urllib.error.URLError, OSError):
        return False
