"""Text in, text out: `/generate` and `/generate_stream`."""

from __future__ import annotations

from typing import Any

import pytest

from tests.serving.gateway.harness import Harness
from tests.serving.gateway.streams import (
    Events,
    stream,
)


async def test_generate_answers_a_text_with_a_text(text: Harness) -> None:
    body = {"id": "7", "text_input": "to be or not", "parameters": {"temperature": 0.5}}
    response = await text.client.post("/v2/models/poet/generate", json=body, headers=text.auth)
    assert response.status_code == 200, response.text
    assert response.json() == {
        "model_name": "poet",
        "model_version": "1",
        "id": "7",
        "text_output": "to be or not",
    }
    assert "server-timing" in response.headers


async def test_generate_stream_sends_the_text_in_parts(text: Harness) -> None:
    path = "/v2/models/poet/versions/1/generate_stream"
    async with stream(text, {"text_input": "to be ö or not"}, path) as response:
        events = await Events(response).rest()
    assert [event["text_output"] for event in events] == ["to ", "be ", "ö ", "or ", "not", ""]
    assert events[-1]["receipt"]["chunks"] == 5


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({}, "invalid_request"),
        ({"text_input": 5}, "invalid_request"),
        ({"text_input": "a", "parameters": {"timeout": -1}}, "invalid_request"),
        ([], "invalid_request"),
    ],
)
async def test_a_wrong_generate_body_is_refused(text: Harness, body: Any, code: str) -> None:
    for path in ("generate", "generate_stream"):
        response = await text.client.post(f"/v2/models/poet/{path}", json=body, headers=text.auth)
        assert (response.status_code, response.json()["code"]) == (400, code)


async def test_a_model_without_text_does_not_generate(echo: Harness) -> None:
    response = await echo.client.post("/v2/models/echo/generate", json={"text_input": "a"}, headers=echo.auth)
    assert (response.status_code, response.json()["param"]) == (400, "model")
