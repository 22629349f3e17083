"""No body of either protocol crashes or hangs its parser, and each refusal is one of ours, in the protocol's shape."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import numpy as np
from hypothesis import strategies as st

from serving.contract import ProfileEntry, TensorSpec, VersionEntry
from serving.errors import DataPlaneError
from serving.gateway import tensors
from serving.gateway.inputs import Inputs, Texts, TokenLists
from serving.gateway.metrics import Metrics
from serving.gateway.pending import Answer, Payload
from serving.gateway.protocols import oip, openai
from serving.gateway.routing import Lane
from serving.wire import Result, Stages, TensorHead
from tests.fuzz.hunt import hunt
from tests.fuzz.mutations import mutated

STAGES = Stages(1, 2, 3, 0, 4, 5, 6, 7, 8, 9, 10, "idle")
DATATYPES = [*tensors.DATATYPES, "BF16", "BYTES"]


def version(datatype: str, shape: tuple[int, ...], engine: Any = "tensor") -> VersionEntry:
    spec = TensorSpec(name="x", datatype=datatype, shape=shape)
    return VersionEntry(
        id="mv",
        model="m",
        number=1,
        engine=engine,
        artifact_sha256="",
        artifact_path="",
        inputs=(spec,),
        outputs=(spec,),
    )


VERSIONS = [version(datatype, shape) for datatype in DATATYPES for shape in ((-1,), (-1, 3), (-1, -1, -1))]
TEXT = VersionEntry(
    id="mv",
    model="m",
    number=1,
    engine="encoder",
    artifact_sha256="",
    artifact_path="",
    outputs=(TensorSpec(name="embedding", datatype="FP32", shape=(-1, 4)),),
)
ANY = version("FP32", (-1,))
VERSIONS += [TEXT, msgspec.structs.replace(ANY, inputs=(), outputs=())]

scalars: st.SearchStrategy[Any] = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 3),
    st.sampled_from([2**31, 2**63, 2**64, -(2**63), 10**30, 1e308, 1e39, 3.4e38, 1e-320, 65504.0, 65536.0]),
    st.text(max_size=6),
)
junk = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)
shapes = st.lists(st.integers(0, 4), min_size=1, max_size=3) | st.lists(st.integers(-1, 2**40), max_size=10)


@st.composite
def datas(draw: st.DrawFn, shape: list[int]) -> Any:
    """Data of about this shape, flat or nested."""
    item = draw(
        st.sampled_from(
            [st.integers(-300, 300), st.floats(allow_nan=False), st.text(max_size=4), st.booleans(), scalars]
        )
    )
    if draw(st.booleans()) or len(shape) < 2:
        count = int(np.prod(shape[:3])) if shape and all(0 <= size <= 4 for size in shape) else 2
        return draw(st.lists(item, min_size=min(count, 64), max_size=min(count, 64)))
    return [draw(datas(shape[1:])) for _ in range(min(max(shape[0], 0), 4))]


@st.composite
def tensors_of(draw: st.DrawFn) -> dict[str, Any]:
    shape = draw(shapes)
    tensor = {
        "name": draw(st.sampled_from(["x", "x", "text", "y", ""])),
        "shape": shape,
        "datatype": draw(st.sampled_from(DATATYPES) | st.text(max_size=5)),
        "data": draw(datas(shape)),
    }
    if draw(st.booleans()):
        tensor["parameters"] = draw(
            junk | st.fixed_dictionaries({"binary_data_size": st.integers(-1, 40) | scalars})
        )
    for name in draw(st.lists(st.sampled_from(list(tensor)), max_size=1)):
        tensor[name] = draw(junk)
    return tensor


@st.composite
def oip_bodies(draw: st.DrawFn) -> tuple[bytes, bytes | None]:
    """A body, and its `Inference-Header-Content-Length` if it has one."""
    body: dict[str, Any] = {"inputs": draw(st.lists(tensors_of(), max_size=3))}
    if draw(st.booleans()):
        names = ["timeout", "priority", "sequence_id", "binary_data_output", "other"]
        body["parameters"] = draw(st.dictionaries(st.sampled_from(names), scalars, max_size=3) | junk)
    if draw(st.booleans()):
        wish = st.fixed_dictionaries(
            {"name": st.sampled_from(["x", "embedding", "y"])}, optional={"parameters": junk}
        )
        body["outputs"] = draw(st.lists(wish, max_size=3) | junk)
    if draw(st.booleans()):
        body["id"] = draw(st.text(max_size=6) | junk)
    text = json.dumps(body, ensure_ascii=draw(st.booleans())).encode(errors="surrogatepass")
    text = draw(mutated(st.just(text)))
    raw = draw(st.binary(max_size=48))
    length = draw(st.sampled_from([None, b"%d" % len(text), b"0", b"-1", b"1", b"9" * 30, b"\xb2"]))
    return text + (raw if length is not None else b""), length


def check_inputs(inputs: Inputs) -> None:
    """What goes on to the worker adds up."""
    if isinstance(inputs, Payload):
        assert sum(map(len, inputs.parts)) == sum(head.size_bytes for head in inputs.heads)
        assert inputs.rows >= 1
        for head in inputs.heads:
            size = tensors.item_bytes(head.datatype)
            assert size is None or head.size_bytes == size * int(np.prod(head.shape, dtype=object))
    elif isinstance(inputs, Texts):
        assert inputs.texts and all(isinstance(text, str) for text in inputs.texts)
    else:
        assert isinstance(inputs, TokenLists) and inputs.rows


def check_refusal(error: DataPlaneError, shape: Any) -> None:
    assert 400 <= error.status < 500, error
    assert json.loads(shape(error, "req"))["error"]


@hunt(oip_bodies(), st.sampled_from(VERSIONS), examples=150)
def test_an_inference_body_is_taken_or_refused(case: tuple[bytes, bytes | None], model: VersionEntry) -> None:
    content, length = case
    headers = {} if length is None else {oip.HEADER_LENGTH: length}
    try:
        call = oip.InferCall(headers, content)
        inputs = call.inputs(model)
    except DataPlaneError as error:
        check_refusal(error, oip.error)
        return
    check_inputs(inputs)
    assert call.timeout_us is None or call.timeout_us > 0
    if isinstance(inputs, Payload):
        check_echo(call, model, inputs)


def check_echo(call: oip.InferCall, model: VersionEntry, payload: Payload) -> None:
    """What was taken can be given back."""
    lane = Lane("tnt", model, ProfileEntry(id="p", name="p"), Metrics().unrouted("tnt", "infer"))
    body = memoryview(b"".join(payload.parts))
    try:
        head, content = call.answer(lane, Answer(Result(STAGES, payload.heads), body), payload)
    except DataPlaneError as error:
        check_refusal(error, oip.error)
        return
    if b"octet-stream" in head:
        length = int(head.split(b"content-length: ")[1].split(b"\r\n")[0])
        content = content[:length]
    answer = json.loads(content)
    assert {output["name"] for output in answer["outputs"]} <= {head.name for head in payload.heads}


@st.composite
def openai_bodies(draw: st.DrawFn) -> bytes:
    ids = st.lists(st.integers(-1, 2**32) | scalars, max_size=4)
    given = (
        st.text(max_size=8)
        | st.lists(st.text(max_size=6) | scalars, max_size=4)
        | ids
        | st.lists(ids, max_size=3)
        | junk
    )
    body = {"model": draw(st.just("m") | junk), "input": draw(given)}
    for name in draw(
        st.lists(st.sampled_from(["encoding_format", "dimensions", "user", "model", "input"]), max_size=2)
    ):
        body[name] = draw(st.sampled_from(["float", "base64", 4]) | junk)
    return json.dumps(body, ensure_ascii=draw(st.booleans())).encode(errors="surrogatepass")


@hunt(mutated(openai_bodies()), st.sampled_from([TEXT, ANY]), examples=150)
def test_an_embeddings_body_is_taken_or_refused(content: bytes, model: VersionEntry) -> None:
    try:
        call = openai.EmbeddingsCall(content)
        inputs = call.inputs(model)
    except DataPlaneError as error:
        check_refusal(error, openai.error)
        return
    check_inputs(inputs)
    lane = Lane("tnt", model, ProfileEntry(id="p", name="p"), Metrics().unrouted("tnt", "embeddings"))
    head = TensorHead("embedding", "FP32", (1, 4), 16)
    answer = Answer(Result(STAGES, (head,)), memoryview(np.zeros(4, "<f4").tobytes()))
    json.loads(call.answer(lane, answer, Payload(1, 1, (1,), (), []))[1])


@hunt(st.binary(max_size=120), st.binary(max_size=24) | st.none(), examples=150)
def test_noise_is_refused(content: bytes, length: bytes | None) -> None:
    headers = {} if length is None else {oip.HEADER_LENGTH: length}
    for parse, shape in (
        (lambda: oip.InferCall(headers, content).inputs(TEXT), oip.error),
        (lambda: openai.EmbeddingsCall(content).inputs(TEXT), openai.error),
    ):
        try:
            parse()
        except DataPlaneError as error:
            check_refusal(error, shape)
