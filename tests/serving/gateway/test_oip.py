"""The Open Inference Protocol as clients see it: good requests, bad ones, metadata and health."""

from __future__ import annotations

import json
import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.contract import TensorSpec, VersionEntry
from serving.errors import DataPlaneError
from serving.gateway.pending import Payload
from serving.gateway.protocols.oip import InferCall
from serving.gateway.tensors import DATATYPES, encode_json, encode_json_politely
from tests.serving.gateway.engines import fake_embedding
from tests.serving.gateway.harness import Harness, echo_body

X = {"name": "x", "shape": [1, 2], "datatype": "FP32", "data": [1, 2]}


def tensor(**fields: Any) -> dict[str, Any]:
    return {"inputs": [X | fields]}


BAD_BODIES: list[tuple[str, Any, str]] = [
    ("not json", b"{", "invalid_json"),
    ("not utf-8", b'{"inputs":[{"name":"\xff"}]}', "invalid_json"),
    ("empty", b"", "invalid_json"),
    ("NaN", b'{"inputs":[{"name":"x","shape":[1,1],"datatype":"FP32","data":[NaN]}]}', "invalid_json"),
    ("deep", b'{"inputs":' + b"[" * 5000 + b"]" * 5000 + b"}", "invalid_"),
    ("an array", [], "invalid_request"),
    ("no inputs", {}, "invalid_request"),
    ("inputs empty", {"inputs": []}, "invalid_request"),
    ("inputs not a list", {"inputs": {}}, "invalid_request"),
    ("input without name", {"inputs": [{"shape": [1], "datatype": "FP32", "data": [1]}]}, "invalid_request"),
    ("same name twice", {"inputs": [X, X]}, "invalid_request"),
    ("wrong name", tensor(name="z"), "invalid_tensor"),
    ("one too many", {"inputs": [X, X | {"name": "z"}]}, "invalid_tensor"),
    ("wrong datatype", tensor(datatype="INT64"), "invalid_tensor"),
    ("unknown datatype", tensor(datatype="FLOAT"), "invalid_tensor"),
    ("wrong rank", tensor(shape=[2]), "invalid_tensor"),
    ("no shape", tensor(shape=[]), "invalid_tensor"),
    ("negative shape", tensor(shape=[-1, 2]), "invalid_tensor"),
    ("shape not integers", tensor(shape=[1.5, 2]), "invalid_request"),
    ("no rows", tensor(shape=[0, 2], data=[]), "invalid_request"),
    ("too many rows", tensor(shape=[5000, 2]), "invalid_request"),
    ("too few values", tensor(data=[1]), "invalid_tensor"),
    ("too many values", tensor(data=[1, 2, 3]), "invalid_tensor"),
    ("ragged", tensor(shape=[2, 2], data=[[1, 2], [3]]), "invalid_tensor"),
    ("nested wrongly", tensor(shape=[2, 1], data=[[1, 2]]), "invalid_tensor"),
    ("nested too deep", tensor(data=[[[1, 2]]]), "invalid_tensor"),
    ("a string", tensor(data=["1", "2"]), "invalid_tensor"),
    ("a boolean", tensor(data=[True, 1]), "invalid_tensor"),
    ("null", tensor(data=[None, 1]), "invalid_tensor"),
    ("data missing", {"inputs": [{k: v for k, v in X.items() if k != "data"}]}, "invalid_tensor"),
    ("data not a list", tensor(data=5), "invalid_tensor"),
    ("out of range", tensor(data=[1e300, 1]), "invalid_tensor"),
    ("binary without bytes", tensor(parameters={"binary_data_size": 8}), "invalid_tensor"),
    ("binary size negative", tensor(parameters={"binary_data_size": -8}), "invalid_tensor"),
    ("binary size text", tensor(parameters={"binary_data_size": "8"}), "invalid_tensor"),
    ("unknown output", echo_body(outputs=[{"name": "z"}]), "invalid_request"),
    (
        "classification",
        echo_body(outputs=[{"name": "y", "parameters": {"classification": 2}}]),
        "invalid_request",
    ),
    ("a sequence", echo_body(parameters={"sequence_id": 7}), "invalid_request"),
    ("timeout text", echo_body(parameters={"timeout": "1"}), "invalid_request"),
    ("timeout negative", echo_body(parameters={"timeout": -1}), "invalid_request"),
]


@pytest.mark.parametrize(("body", "code"), [case[1:] for case in BAD_BODIES], ids=[c[0] for c in BAD_BODIES])
async def test_a_bad_request_is_refused_with_a_reason(echo: Harness, body: Any, code: str) -> None:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    response = await echo.client.post("/v2/models/echo/infer", content=content, headers=echo.auth)
    answer = response.json()
    assert response.status_code == 400, answer
    assert answer["code"].startswith(code), answer
    assert answer["error"] and isinstance(answer["error"], str)
    assert answer["request_id"] == response.headers["x-request-id"]


@pytest.mark.parametrize("path", ["", "/versions/1"])
async def test_a_version_may_be_pinned(echo: Harness, path: str) -> None:
    response = await echo.client.post(f"/v2/models/echo{path}/infer", json=echo_body(), headers=echo.auth)
    assert response.status_code == 200


async def test_an_unknown_version_is_not_found(echo: Harness) -> None:
    response = await echo.client.post("/v2/models/echo/versions/9/infer", json=echo_body(), headers=echo.auth)
    assert (response.status_code, response.json()["code"]) == (404, "model_not_found")


async def test_a_model_that_is_not_deployed_is_not_ready(echo: Harness) -> None:
    echo.publish_model("cold", version_id="mv_cold")
    await echo.gateway.follower.poll()
    response = await echo.infer(model="cold")
    assert (response.status_code, response.json()["code"]) == (503, "model_not_ready")
    assert int(response.headers["retry-after"]) >= 1
    assert int(response.headers["retry-after-ms"]) >= 1


async def test_binary_tensors_go_in_and_come_out(echo: Harness) -> None:
    raw = np.arange(6, dtype="<f4").tobytes()
    head = json.dumps(
        {
            "inputs": [
                {"name": "x", "shape": [2, 3], "datatype": "FP32", "parameters": {"binary_data_size": 24}}
            ],
            "parameters": {"binary_data_output": True},
        }
    ).encode()
    headers = echo.auth | {
        "inference-header-content-length": str(len(head)),
        "content-type": "application/octet-stream",
    }
    response = await echo.client.post("/v2/models/echo/infer", content=head + raw, headers=headers)
    assert response.status_code == 200, response.text
    length = int(response.headers["inference-header-content-length"])
    answer = json.loads(response.content[:length])
    assert response.headers["content-type"] == "application/octet-stream"
    assert answer["outputs"] == [
        {"name": "y", "datatype": "FP32", "shape": [2, 3], "parameters": {"binary_data_size": 24}}
    ]
    assert response.content[length:] == raw


async def test_one_output_may_be_asked_for_raw(echo: Harness) -> None:
    wish = {"name": "y", "parameters": {"binary_data": True}}
    response = await echo.infer(echo_body([1.0], outputs=[wish]))
    length = int(response.headers["inference-header-content-length"])
    assert response.content[length:] == struct.pack("<f", 1.0)


@pytest.mark.parametrize("length", ["x", "-1", "9999999", "99999999999999999999999"])
async def test_a_wrong_header_length_is_refused(echo: Harness, length: str) -> None:
    response = await echo.infer(inference_header_content_length=length)
    assert (response.status_code, response.json()["code"]) == (400, "invalid_request")


async def test_bytes_that_belong_to_no_input_are_refused(echo: Harness) -> None:
    head = json.dumps(echo_body()).encode()
    headers = echo.auth | {"inference-header-content-length": str(len(head))}
    response = await echo.client.post("/v2/models/echo/infer", content=head + b"more", headers=headers)
    assert response.status_code == 400


async def test_text_is_tokenised_and_answered(encoder: Harness) -> None:
    body = {"inputs": [{"name": "text", "shape": [2], "datatype": "BYTES", "data": ["w0 w1", "w5"]}]}
    response = await encoder.infer(body, model="mini")
    assert response.status_code == 200, response.text
    output = response.json()["outputs"][0]
    assert output["shape"] == [2, 4]
    assert output["data"] == fake_embedding([1, 3, 4, 2]) + fake_embedding([1, 8, 2])


async def test_text_may_come_raw_and_in_a_column(encoder: Harness) -> None:
    raw = struct.pack("<I", 5) + b"w0 w1" + struct.pack("<I", 2) + b"w5"
    head = json.dumps(
        {
            "inputs": [
                {
                    "name": "text",
                    "shape": [2, 1],
                    "datatype": "BYTES",
                    "parameters": {"binary_data_size": len(raw)},
                }
            ]
        }
    ).encode()
    headers = encoder.auth | {"inference-header-content-length": str(len(head))}
    response = await encoder.client.post("/v2/models/mini/infer", content=head + raw, headers=headers)
    assert response.status_code == 200, response.text
    assert response.json()["outputs"][0]["data"][:4] == fake_embedding([1, 3, 4, 2])


async def test_a_raw_single_input_needs_no_json(encoder: Harness) -> None:
    raw = struct.pack("<I", 2) + b"w5"
    headers = encoder.auth | {"inference-header-content-length": "0"}
    response = await encoder.client.post("/v2/models/mini/infer", content=raw, headers=headers)
    assert response.status_code == 200, response.text
    length = int(response.headers["inference-header-content-length"])
    assert np.frombuffer(response.content[length:], "<f4").tolist() == fake_embedding([1, 8, 2])


@pytest.mark.parametrize("raw", [b"\x05", b"\x05\0\0\0ab", b"\x01\0\0\0\xff", b"\x01\0\0\0a\x01\0\0\0b"])
async def test_malformed_raw_text_is_refused(encoder: Harness, raw: bytes) -> None:
    headers = encoder.auth | {"inference-header-content-length": "0"}
    response = await encoder.client.post("/v2/models/mini/infer", content=raw, headers=headers)
    assert (response.status_code, response.json()["code"]) == (400, "invalid_tensor")


async def test_metadata_says_what_a_model_takes(echo: Harness) -> None:
    server = await echo.client.get("/v2")
    assert server.json()["name"] == "tidegate" and "binary_tensor_data" in server.json()["extensions"]
    for path in ("/v2/models/echo", "/v2/models/echo/versions/1"):
        model = (await echo.client.get(path, headers=echo.auth)).json()
        assert model == {
            "name": "echo",
            "versions": ["1"],
            "platform": "tidegate_echo",
            "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, -1]}],
            "outputs": [{"name": "y", "datatype": "FP32", "shape": [-1, -1]}],
        }


async def test_health_and_readiness(echo: Harness) -> None:
    for path in ("/livez", "/v2/health/live"):
        assert (await echo.client.get(path)).json() == {"live": True}
    for path in ("/readyz", "/v2/health/ready"):
        assert (await echo.client.get(path)).status_code == 200
    ready = await echo.client.get("/v2/models/echo/ready", headers=echo.auth)
    assert (ready.status_code, ready.json()) == (200, {"name": "echo", "ready": True})
    echo.publish_replicas()
    await echo.gateway.follower.poll()
    ready = await echo.client.get("/v2/models/echo/ready", headers=echo.auth)
    assert (ready.status_code, ready.json()) == (503, {"name": "echo", "ready": False})


# ---------------------------------------------------------------- round trips, without a network

SHAPES = st.lists(st.integers(1, 4), min_size=1, max_size=3)


@st.composite
def arrays(draw: st.DrawFn) -> tuple[str, np.ndarray[Any, Any]]:
    name = draw(st.sampled_from(sorted(DATATYPES)))
    kind, shape = DATATYPES[name], draw(SHAPES)
    raw = draw(st.binary(min_size=4 * 64 * 8, max_size=4 * 64 * 8))
    array = np.frombuffer(raw, kind.dtype if name != "BOOL" else "u1")[: int(np.prod(shape))].reshape(shape)
    array = (array % 2).astype(bool) if name == "BOOL" else array
    return name, np.nan_to_num(array, nan=0.5, posinf=1.0, neginf=-1.0) if kind.is_float else array


def version_of(name: str, array: np.ndarray[Any, Any]) -> VersionEntry:
    spec = TensorSpec(name="x", datatype=name, shape=(-1,) * array.ndim)
    return VersionEntry(
        id="mv_x", model="m", number=1, engine="tensor", artifact_sha256="", artifact_path="", inputs=(spec,)
    )


@given(case=arrays(), is_nested=st.booleans())
def test_json_and_binary_carry_the_same_bytes(
    case: tuple[str, np.ndarray[Any, Any]], is_nested: bool
) -> None:
    name, array = case
    data = array.tolist() if is_nested else array.ravel().tolist()
    plain = {"name": "x", "shape": list(array.shape), "datatype": name}
    as_json = json.dumps({"inputs": [plain | {"data": data}]}).encode()
    head = json.dumps({"inputs": [plain | {"parameters": {"binary_data_size": array.nbytes}}]}).encode()
    length = {b"inference-header-content-length": b"%d" % len(head)}
    version = version_of(name, array)
    one = InferCall({}, as_json).inputs(version)
    other = InferCall(length, head + array.tobytes()).inputs(version)
    assert isinstance(one, Payload) and isinstance(other, Payload)
    assert one.heads == other.heads
    assert b"".join(one.parts) == b"".join(other.parts) == array.tobytes()
    assert one.rows == array.shape[0]


@given(case=arrays())
def test_outputs_read_back_as_they_were(case: tuple[str, np.ndarray[Any, Any]]) -> None:
    name, array = case
    values = json.loads(encode_json(name, memoryview(array.tobytes())))
    assert np.array_equal(np.array(values, array.dtype).reshape(array.shape), array)


async def test_a_large_output_reads_the_same_in_slices() -> None:
    values = np.arange(100_000, dtype="<f4")
    raw = memoryview(values.tobytes())
    assert await encode_json_politely("FP32", raw) == encode_json("FP32", raw)


@given(raw=st.binary(max_size=300), length=st.none() | st.binary(max_size=4))
def test_no_bytes_crash_the_parser(raw: bytes, length: bytes | None) -> None:
    headers = {} if length is None else {b"inference-header-content-length": length}
    try:
        InferCall(headers, raw).inputs(version_of("FP32", np.zeros((1, 1))))
    except DataPlaneError as error:
        assert error.status == 400
