"""Real clients, unmodified, against a real server: the openai SDK and tritonclient."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import tritonclient.http as triton

from serving.gateway.protocols.oip import SERVER
from tests.serving.gateway.engines import fake_embedding
from tests.serving.gateway.harness import Harness

if TYPE_CHECKING:
    import openai


def sdk(harness: Harness, token: str | None = None) -> openai.AsyncOpenAI:
    import openai  # takes over a second, which every process that collects tests would spend

    return openai.AsyncOpenAI(base_url=f"{harness.url}/v1", api_key=token or harness.token, max_retries=0)


async def test_openai_embeds(encoder: Harness) -> None:
    async with sdk(encoder) as client:
        answer = await client.embeddings.create(model="mini", input=["w0 w1", "w5"])
        assert [item.embedding for item in answer.data] == [
            fake_embedding([1, 3, 4, 2]),
            fake_embedding([1, 8, 2]),
        ]
        assert answer.usage.prompt_tokens == 7
        floats = await client.embeddings.create(model="mini", input="w5", encoding_format="float")
        assert floats.data[0].embedding == fake_embedding([1, 8, 2])


async def test_openai_reads_receipts(encoder: Harness) -> None:
    async with sdk(encoder) as client:
        raw = await client.embeddings.with_raw_response.create(model="mini", input="w5")
        assert raw.headers["x-tidegate-model-version"] == "1"
        assert raw.headers["x-request-id"].startswith("req_")
        assert "total;dur=" in raw.headers["server-timing"]


async def test_openai_lists_models(encoder: Harness) -> None:
    async with sdk(encoder) as client:
        assert [model.id async for model in client.models.list()] == ["mini"]
        assert (await client.models.retrieve("mini")).owned_by == "tidegate"


async def test_openai_understands_our_refusals(encoder: Harness) -> None:
    import openai

    async with sdk(encoder) as client:
        with pytest.raises(openai.NotFoundError) as missing:
            await client.embeddings.create(model="nothing", input="w5")
        assert missing.value.code == "model_not_found"
        assert missing.value.request_id
        with pytest.raises(openai.BadRequestError) as bad:
            await client.embeddings.create(model="mini", input="w5", dimensions=3)
        assert bad.value.param == "dimensions"
    async with sdk(encoder, "wrong") as client:
        with pytest.raises(openai.AuthenticationError) as unknown:
            await client.models.list()
        assert unknown.value.code == "invalid_api_key"


async def test_openai_comes_back_when_told(encoder: Harness) -> None:
    encoder.publish_tenant(requests_per_s=5.0, burst=1)
    await encoder.gateway.follower.poll()
    async with sdk(encoder).with_options(max_retries=2) as client:
        for _ in range(3):
            assert (await client.embeddings.create(model="mini", input="w5")).data


def on_triton(harness: Harness, work: Any) -> Any:
    """Run blocking work with a client of its own in a thread."""

    def run() -> Any:
        with triton.InferenceServerClient(harness.url[7:]) as client:
            return work(client, harness.auth)

    return asyncio.to_thread(run)


@pytest.mark.parametrize("is_binary", [True, False])
async def test_triton_infers(echo: Harness, is_binary: bool) -> None:
    values = np.array([[1.5, 2.0], [3.0, 4.25]], np.float32)

    def work(client: Any, auth: dict[str, str]) -> Any:
        given = triton.InferInput("x", list(values.shape), "FP32")
        given.set_data_from_numpy(values, binary_data=is_binary)
        wanted = triton.InferRequestedOutput("y", binary_data=is_binary)
        return client.infer(
            "echo", [given], outputs=[wanted], request_id="mine", headers=auth, timeout=2_000_000
        )

    result = await on_triton(echo, work)
    assert np.array_equal(result.as_numpy("y"), values)
    assert result.get_response()["id"] == "mine"


async def test_triton_sends_text(encoder: Harness) -> None:
    def work(client: Any, auth: dict[str, str]) -> Any:
        given = triton.InferInput("text", [2], "BYTES")
        given.set_data_from_numpy(np.array([b"w0 w1", b"w5"], np.object_))
        return client.infer("mini", [given], model_version="1", headers=auth)

    result = await on_triton(encoder, work)
    assert result.as_numpy("embedding").tolist() == [fake_embedding([1, 3, 4, 2]), fake_embedding([1, 8, 2])]


async def test_triton_reads_metadata_and_health(echo: Harness) -> None:
    def work(client: Any, auth: dict[str, str]) -> Any:
        assert client.is_server_live() and client.is_server_ready()
        assert client.is_model_ready("echo", headers=auth)
        assert not client.is_model_ready("nothing", headers=auth)
        return client.get_server_metadata(), client.get_model_metadata("echo", headers=auth)

    server, model = await on_triton(echo, work)
    assert server == SERVER
    assert model["inputs"][0]["name"] == "x"


async def test_triton_understands_our_refusals(echo: Harness) -> None:
    def work(client: Any, auth: dict[str, str]) -> Any:
        given = triton.InferInput("x", [1, 2], "INT32")
        given.set_data_from_numpy(np.zeros((1, 2), np.int32))
        with pytest.raises(triton.InferenceServerException) as refused:
            client.infer("echo", [given], headers=auth)
        return refused.value

    refused = await on_triton(echo, work)
    assert (refused.status(), refused.message()) == ("400", "input 'x' is INT32, the model takes FP32")
