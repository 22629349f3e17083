"""Command lines shown on pages: they work as they stand once the key is put in."""

from __future__ import annotations

import json
import shlex
from typing import Any

from django.conf import settings

from serving.contract import TensorSpec
from serving.control.catalog.models import Engine, Version

KEY_VARIABLE = "$TIDEGATE_KEY"
EXAMPLE_TEXT = "Where is my parcel?"


def curl_for(model: str, version: Version | None) -> str:
    """A request the version understands; without a version, the commonest one."""
    if version is None or version.engine in (Engine.ENCODER, Engine.ECHO):
        return curl_embeddings(model)
    return curl_infer(model, example_inputs(version))


def curl_embeddings(model: str, key: str = KEY_VARIABLE, text: str = EXAMPLE_TEXT) -> str:
    return _curl("/v1/embeddings", {"model": model, "input": text}, key)


def curl_infer(model: str, inputs: list[dict[str, Any]], key: str = KEY_VARIABLE) -> str:
    return _curl(f"/v2/models/{model}/infer", {"inputs": inputs}, key)


def python_openai(model: str, text: str = EXAMPLE_TEXT) -> str:
    return (
        "import os\nfrom openai import OpenAI\n\n"
        f'client = OpenAI(base_url="{settings.GATEWAY_URL}/v1", api_key=os.environ["TIDEGATE_KEY"])\n'
        f"answer = client.embeddings.create(model={model!r}, input={text!r})\n"
        "print(len(answer.data[0].embedding))"
    )


def example_inputs(version: Version | None) -> list[dict[str, Any]]:
    """One row of zeros for every input the version declares."""
    specs = version.input_specs() if version else ()
    return [_example(spec) for spec in specs] or [
        {"name": "x", "datatype": "FP32", "shape": [1, 4], "data": [0.0, 0.0, 0.0, 0.0]}
    ]


def _example(spec: TensorSpec) -> dict[str, Any]:
    shape = [1, *(size if size > 0 else 4 for size in spec.shape[1:])]
    count = 1
    for size in shape:
        count *= size
    value: Any = EXAMPLE_TEXT if spec.datatype == "BYTES" else 0.0 if spec.datatype.startswith("FP") else 0
    return {"name": spec.name, "datatype": spec.datatype, "shape": shape, "data": [value] * min(count, 64)}


def _curl(path: str, body: dict[str, Any], key: str) -> str:
    return (
        f"curl -i {settings.GATEWAY_URL}{path} \\\n"
        f'  -H "Authorization: Bearer {key}" \\\n'
        f"  -H 'Content-Type: application/json' \\\n"
        f"  -d {shlex.quote(json.dumps(body, ensure_ascii=False))}"
    )
