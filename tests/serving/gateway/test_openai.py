"""`/v1/embeddings` and `/v1/models` as the OpenAI API has them."""

from __future__ import annotations

import base64
import json
from typing import Any

import numpy as np
import pytest

from tests.serving.gateway.engines import fake_embedding
from tests.serving.gateway.harness import Harness


async def embed(harness: Harness, body: Any) -> Any:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return await harness.client.post("/v1/embeddings", content=content, headers=harness.auth)


@pytest.mark.parametrize(
    ("given", "rows"),
    [
        ("w0 w1", [[1, 3, 4, 2]]),
        (["w0 w1", "w5"], [[1, 3, 4, 2], [1, 8, 2]]),
        ([5, 6, 7], [[5, 6, 7]]),
        ([[5, 6], [7]], [[5, 6], [7]]),
    ],
)
async def test_every_form_of_input_is_embedded(encoder: Harness, given: Any, rows: list[list[int]]) -> None:
    response = await embed(encoder, {"model": "mini", "input": given})
    assert response.status_code == 200, response.text
    tokens = sum(map(len, rows))
    assert response.json() == {
        "object": "list",
        "data": [
            {"object": "embedding", "index": index, "embedding": fake_embedding(ids)}
            for index, ids in enumerate(rows)
        ],
        "model": "mini",
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
    }


async def test_base64_is_little_endian_float32(encoder: Harness) -> None:
    body = {"model": "mini", "input": "w0", "encoding_format": "base64"}
    data = (await embed(encoder, body)).json()["data"]
    assert np.frombuffer(base64.b64decode(data[0]["embedding"]), "<f4").tolist() == fake_embedding([1, 3, 2])


async def test_the_models_own_dimensions_may_be_named(encoder: Harness) -> None:
    assert (await embed(encoder, {"model": "mini", "input": "w0", "dimensions": 4})).status_code == 200


async def test_a_long_text_is_truncated_where_the_version_says_so(encoder: Harness) -> None:
    response = await embed(encoder, {"model": "mini", "input": " ".join(["w0"] * 50)})
    assert response.json()["usage"]["prompt_tokens"] == 8


async def test_a_long_text_is_refused_with_numbers_where_it_does_not(encoder: Harness) -> None:
    encoder.publish_encoder("mini", truncate=False)
    await encoder.gateway.follower.poll()
    await encoder.until_ready("mv_mini")
    response = await embed(encoder, {"model": "mini", "input": ["w0", " ".join(["w0"] * 50)]})
    error = response.json()["error"]
    assert (response.status_code, error["code"]) == (400, "input_too_long")
    assert error["numbers"] == {"index": 1, "tokens": 52, "max_tokens": 8}


BAD_BODIES: list[tuple[str, Any, str, str | None]] = [
    ("not json", b"{", "invalid_json", None),
    ("no model", {"input": "w0"}, "invalid_request", "model"),
    ("model not text", {"model": 1, "input": "w0"}, "invalid_request", "model"),
    ("no input", {"model": "mini"}, "invalid_request", "input"),
    ("input empty", {"model": "mini", "input": []}, "invalid_request", "input"),
    ("input empty text", {"model": "mini", "input": ["w0", ""]}, "invalid_request", "input"),
    ("input a number", {"model": "mini", "input": 5}, "invalid_request", "input"),
    ("input null", {"model": "mini", "input": None}, "invalid_request", "input"),
    ("input an object", {"model": "mini", "input": {}}, "invalid_request", "input"),
    ("input mixed", {"model": "mini", "input": ["w0", 5]}, "invalid_request", "input"),
    ("no tokens", {"model": "mini", "input": [[]]}, "invalid_request", "input"),
    ("token negative", {"model": "mini", "input": [-1]}, "invalid_request", "input"),
    ("token unknown", {"model": "mini", "input": [103]}, "invalid_request", "input"),
    ("token a float", {"model": "mini", "input": [1.5]}, "invalid_request", "input"),
    ("token huge", {"model": "mini", "input": [10**30]}, "invalid_request", "input"),
    ("too many", {"model": "mini", "input": ["w0"] * 5000}, "invalid_request", "input"),
    (
        "encoding",
        {"model": "mini", "input": "w0", "encoding_format": "hex"},
        "invalid_request",
        "encoding_format",
    ),
    ("dimensions", {"model": "mini", "input": "w0", "dimensions": 2}, "invalid_request", "dimensions"),
    ("surrogate", b'{"model":"mini","input":"\\ud800"}', "invalid_", None),
]


@pytest.mark.parametrize(
    ("body", "code", "param"), [case[1:] for case in BAD_BODIES], ids=[case[0] for case in BAD_BODIES]
)
async def test_a_bad_request_is_refused_in_the_apis_own_shape(
    encoder: Harness, body: Any, code: str, param: str | None
) -> None:
    response = await embed(encoder, body)
    error = response.json()["error"]
    assert response.status_code == 400, error
    assert error["type"] == "invalid_request_error"
    assert error["code"].startswith(code)
    assert param is None or error["param"] == param
    assert response.headers["x-should-retry"] == "false"


async def test_an_unknown_model_is_not_found(encoder: Harness) -> None:
    response = await embed(encoder, {"model": "nothing", "input": "w0"})
    assert (response.status_code, response.json()["error"]["code"]) == (404, "model_not_found")
    assert response.json()["error"]["param"] == "model"


async def test_a_model_without_text_makes_no_embeddings(echo: Harness) -> None:
    response = await embed(echo, {"model": "echo", "input": "w0"})
    assert (response.status_code, response.json()["error"]["param"]) == (400, "model")


async def test_models_are_listed(encoder: Harness) -> None:
    listed = (await encoder.client.get("/v1/models", headers=encoder.auth)).json()
    card = {"id": "mini", "object": "model", "created": 1_700_000_000, "owned_by": "tidegate"}
    assert listed == {"object": "list", "data": [card]}
    assert (await encoder.client.get("/v1/models/mini", headers=encoder.auth)).json() == card


async def test_too_many_requests_are_refused_with_when_to_come_back(encoder: Harness) -> None:
    encoder.publish_tenant(requests_per_s=0.5, burst=1)
    await encoder.gateway.follower.poll()
    assert (await embed(encoder, {"model": "mini", "input": "w0"})).status_code == 200
    response = await embed(encoder, {"model": "mini", "input": "w0"})
    error = response.json()["error"]
    assert (response.status_code, error["type"], error["code"]) == (
        429,
        "rate_limit_error",
        "rate_limit_exceeded",
    )
    assert error["reason"] == "rate_limited"
    assert 1 <= int(response.headers["retry-after"]) <= 2
    assert 1000 <= int(response.headers["retry-after-ms"]) <= 2000
    assert "x-should-retry" not in response.headers
