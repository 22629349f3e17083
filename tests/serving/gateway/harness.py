"""A whole gateway on a loopback port inside the test's event loop, with workers and a seam of its own."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import httpx
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import TemplateProcessing

from serving.contract import (
    BindingEntry,
    CostCurve,
    DeploymentEntry,
    KeyEntry,
    ModelEntry,
    ProfileEntry,
    ReplicaSpec,
    TenantEntry,
    TensorSpec,
    VersionEntry,
    WeightedVersion,
)
from serving.gateway.gateway import Gateway, GatewaySettings
from serving.gateway.server import GatewayServer, listen
from serving.seam.memory import MemorySeam
from tenants.keys import digest_secret, new_token

PEPPER = b"test-pepper-test-pepper"
PATIENCE_S = 20.0
"""How long a test waits for what must come; nothing waits that long unless it is broken."""
ECHO_INPUTS = (TensorSpec(name="x", datatype="FP32", shape=(-1, -1)),)
ECHO_OUTPUTS = (TensorSpec(name="y", datatype="FP32", shape=(-1, -1)),)


has_hot_routes = True
"""How gateways of this module serve inference; the fixture `way` changes it."""


class Harness:
    """What a test talks to: `client` for HTTP, `seam` as the control plane, `gateway` for its insides."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.seam = MemorySeam()
        self.settings = GatewaySettings(
            name="gateway:test:0",
            state_dir=directory,
            key_pepper=PEPPER,
            poll_interval_s=0.02,
            has_hot_routes=has_hot_routes,
        )
        self.token = ""
        self.url = ""
        self.gateway: Gateway
        self.server: GatewayServer
        self.client: httpx.AsyncClient
        self._serving: asyncio.Task[None] | None = None

    # ------------------------------------------------------------ the control plane

    def publish_tenant(self, tenant_id: str = "tnt_a", **fields: Any) -> None:
        body = TenantEntry(**({"id": tenant_id, "slug": tenant_id[4:], "name": tenant_id} | fields))
        self.seam.put(tenant_id, body)

    def publish_key(self, tenant_id: str = "tnt_a", **fields: Any) -> str:
        """The token of a new key."""
        token = new_token()
        digest = digest_secret(token.secret, PEPPER)
        self.seam.put(
            token.id, KeyEntry(**({"id": token.id, "tenant_id": tenant_id, "digest": digest} | fields))
        )
        return token.token

    def publish_profile(self, **fields: Any) -> None:
        self.seam.put("pro_a", ProfileEntry(**({"id": "pro_a", "name": "a", "deadline_ms": 5000} | fields)))
        self.seam.put("bnd_a", BindingEntry(id="bnd_a", profile_id="pro_a"))

    def publish_model(
        self, name: str = "echo", *, version_id: str = "mv_echo", engine: Any = "echo", **fields: Any
    ) -> None:
        """A model with one deployed version of number 1."""
        version = {
            "id": version_id,
            "model": name,
            "number": 1,
            "engine": engine,
            "artifact_sha256": "",
            "artifact_path": "",
            "inputs": ECHO_INPUTS,
            "outputs": ECHO_OUTPUTS,
            "cost": CostCurve(a_ms=1.0, b_ms_per_row=0.1, c_ms_per_token=0.0),
            "price_micro_per_device_hour": 1_000_000,
        } | fields
        tenant_ids = version.pop("tenant_ids", None)
        self.seam.put(version_id, VersionEntry(**version))
        self.seam.put(
            name,
            ModelEntry(
                id=f"mdl_{name}",
                name=name,
                tenant_ids=tenant_ids,
                routes=(WeightedVersion(version_id=version_id, weight=100),),
                versions={"1": version_id},
                created_at=1_700_000_000.0,
            ),
        )

    def publish_replicas(
        self, *addresses: str, model: str = "echo", version_id: str = "mv_echo", first: int = 0
    ) -> None:
        """Replicas `rep_0` (or another first number) and so on."""
        replicas = tuple(
            ReplicaSpec(id=f"rep_{index}", version_id=version_id, host="test", address=address)
            for index, address in enumerate(addresses, first)
        )
        self.seam.put(f"dep_{model}", DeploymentEntry(id=f"dep_{model}", model=model, replicas=replicas))

    def publish_encoder(self, name: str = "mini", **options: Any) -> None:
        """The text model `mini` with a small tokenizer of its own, on one replica."""
        write_tokenizer(self.directory / "mini")
        self.publish_model(
            name,
            version_id="mv_mini",
            engine="encoder",
            artifact_path=str(self.directory / "mini"),
            inputs=(TensorSpec(name="text", datatype="BYTES", shape=(-1,)),),
            outputs=(TensorSpec(name="embedding", datatype="FP32", shape=(-1, 4)),),
            options={"max_tokens": 8, "truncate": True} | options,
        )
        self.publish_replicas(self.address(), model=name, version_id="mv_mini")

    def address(self, index: int = 0) -> str:
        return f"unix:{self.directory}/r{index}"

    # ------------------------------------------------------------ the gateway

    async def start(self) -> None:
        sock = listen("127.0.0.1", 0, is_shared=False)
        self.url = f"http://127.0.0.1:{sock.getsockname()[1]}"
        self.gateway = Gateway(self.seam, self.settings)
        await self.gateway.start()
        self.server = GatewayServer(self.gateway)
        self._serving = asyncio.create_task(self.server.serve([sock]))
        # Plain HTTP: reading the authorities' certificates would take longer than most tests.
        self.client = httpx.AsyncClient(base_url=self.url, timeout=PATIENCE_S, verify=False)
        await until(lambda: self.server.started)

    async def stop(self) -> None:
        await self.client.aclose()
        in_flight = self.gateway.inference.dispatcher.in_flight
        if self._serving is not None:
            if not self.server.should_exit:
                self._abandon(self._serving)
            await asyncio.wait([self._serving])
        await self.gateway.stop()
        self._check_counts(in_flight)

    def _check_counts(self, in_flight: int) -> None:
        """Whatever a test did: what came in was counted once more, as an answer, a failure or a repetition."""
        metrics = self.gateway._metrics
        ended = sum(counts.answered + sum(counts.failed.values()) for _, counts in metrics.totals())
        assert metrics.received - in_flight <= ended + metrics.replayed <= metrics.received

    def _abandon(self, serving: asyncio.Task[None]) -> None:
        """A graceful stop looks for its end ten times a second, which is long for every test."""
        for listener in self.server.servers:
            listener.close()
        for connection in list(self.server.server_state.connections):
            connection.transport.abort()
        serving.cancel()

    async def until_ready(self, version_id: str = "mv_echo", count: int = 1) -> None:
        pool = self.gateway.inference.dispatcher.pool
        await until(lambda: len(pool.of(version_id).accepting) >= count)

    @property
    def auth(self) -> dict[str, str]:
        return {"authorization": f"Bearer {self.token}"}

    async def infer(self, body: Any = None, *, model: str = "echo", **headers: str) -> httpx.Response:
        """POST a JSON body to /infer; by default one good row."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        content = echo_body() if body is None else body
        return await self.client.post(f"/v2/models/{model}/infer", json=content, headers=self.auth | named)


def echo_body(values: list[float] | None = None, **fields: Any) -> dict[str, Any]:
    values = values or [1.0, 2.0, 3.0]
    tensor = {"name": "x", "shape": [1, len(values)], "datatype": "FP32", "data": values}
    return {"inputs": [tensor]} | fields


async def until(is_true: Callable[[], Any], timeout_s: float = PATIENCE_S) -> None:
    """Poll until a condition holds; fails after `timeout_s`."""
    give_up = time.monotonic() + timeout_s
    while not is_true():
        assert time.monotonic() < give_up, "the condition never held"
        await asyncio.sleep(0.005)


@contextlib.asynccontextmanager
async def gateway(*, is_started: bool = True) -> AsyncIterator[Harness]:
    """A gateway with one tenant, one key and no model."""
    # Socket paths are short; pytest's own directories are not.
    with tempfile.TemporaryDirectory(prefix="tg", dir="/tmp") as directory:
        harness = Harness(Path(directory))
        harness.publish_tenant()
        harness.publish_profile()
        harness.token = harness.publish_key()
        if is_started:
            await harness.start()
        try:
            yield harness
        finally:
            if is_started:
                await harness.stop()


def write_tokenizer(directory: Path, first: int = 0) -> None:
    """Whole words `w0` … `w99` as ids 3 … 102, between [CLS] and [SEP]; anything else is [UNK].

    `first` is added to every id.
    """
    words = ["[UNK]", "[CLS]", "[SEP]", *(f"w{index}" for index in range(100))]
    vocabulary = {word: first + index for index, word in enumerate(words)}
    tokenizer = Tokenizer(WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", first + 1), ("[SEP]", first + 2)]
    )
    directory.mkdir(exist_ok=True)
    tokenizer.save(str(directory / "tokenizer.json"))
