"""Command lines shown on pages: they work as they stand once the key is put in."""

from __future__ import annotations

import json
import shlex
from typing import Any, Literal
from urllib.parse import quote

from django.conf import settings

from serving.contract import TensorSpec
from serving.control.catalog.models import Engine, Model, Version

KEY_VARIABLE = "$TIDEGATE_KEY"
EXAMPLE_TEXT = "Where is my parcel?"


Way = Literal["embeddings", "generate", "infer"]


def answering_version(model: Model) -> Version | None:
    """The version that answers for a model, or the newest while none does."""
    active = [deployment.version for deployment in model.deployments.all() if deployment.is_active]
    return next(iter([*active, *model.versions.all()]), None)


def way_of(version: Version | None) -> Way:
    """The route that suits a version: by its signature once that is known, else by its engine."""
    if version is None:
        return "embeddings"
    takes, gives = version.input_specs(), version.output_specs()
    if not gives:
        return "embeddings" if version.engine == Engine.ENCODER else "infer"
    if takes_text(version) and any(spec.name == "embedding" and len(spec.shape) == 2 for spec in gives):
        return "embeddings"
    is_text = [spec.datatype for spec in (*takes, *gives)] == ["BYTES", "BYTES"]
    return "generate" if is_text else "infer"


def takes_text(version: Version | None) -> bool:
    """Whether its only input is one text per row."""
    specs = version.input_specs() if version else ()
    if version is None or not specs:
        return version is None or version.engine == Engine.ENCODER
    return len(specs) == 1 and specs[0].datatype == "BYTES" and len(specs[0].shape) == 1


def curl_for(model: str, version: Version | None, key: str = KEY_VARIABLE) -> str:
    """A request the version understands; without a version, the commonest one."""
    match way_of(version):
        case "embeddings":
            return curl_embeddings(model, key)
        case "generate":
            return _curl(
                f"/v2/models/{quote(model)}/generate_stream", {"text_input": EXAMPLE_TEXT}, key, "-iN"
            )
        case "infer":
            return curl_infer(model, example_inputs(version), key)


def curl_embeddings(model: str, key: str = KEY_VARIABLE, text: str | list[str] = EXAMPLE_TEXT) -> str:
    return _curl("/v1/embeddings", {"model": model, "input": text}, key)


def curl_infer(model: str, inputs: list[dict[str, Any]], key: str = KEY_VARIABLE) -> str:
    return _curl(f"/v2/models/{quote(model)}/infer", {"inputs": inputs}, key)


def python_openai(model: str, text: str | list[str] = EXAMPLE_TEXT) -> str:
    return (
        "import os\nfrom openai import OpenAI\n\n"
        f'client = OpenAI(base_url="{settings.GATEWAY_URL}/v1", api_key=os.environ["TIDEGATE_KEY"])\n'
        f"answer = client.embeddings.create(model={model!r}, input={text!r})\n"
        "print(len(answer.data[0].embedding))"
    )


def text_inputs(version: Version, lines: list[str]) -> list[dict[str, Any]]:
    """These texts, a row each, as the only input of a version that takes text."""
    name = version.input_specs()[0].name
    return [{"name": name, "datatype": "BYTES", "shape": [len(lines)], "data": lines}]


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


def _curl(path: str, body: dict[str, Any], key: str, flags: str = "-i") -> str:
    return (
        f"curl {flags} {settings.GATEWAY_URL}{path} \\\n"
        f'  -H "Authorization: Bearer {key}" \\\n'
        f"  -H 'Content-Type: application/json' \\\n"
        f"  -d {shlex.quote(json.dumps(body, ensure_ascii=False))}"
    )
