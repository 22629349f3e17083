"""The straight way for the commonest tensor request gives what the general way gives, or nothing."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.contract import ProfileEntry, TensorSpec, VersionEntry
from serving.errors import DataPlaneError
from serving.gateway.metrics import Metrics
from serving.gateway.pending import Answer, Payload
from serving.gateway.protocols.oip import InferCall
from serving.gateway.routing import Lane
from serving.gateway.tensors import DATATYPES, encode_json
from serving.wire import Result, TensorHead
from tests.serving.gateway.test_counting import stages

SPEC = TensorSpec(name="x", datatype="FP32", shape=(-1, 2))


def version(datatype: str) -> VersionEntry:
    spec = TensorSpec(name="x", datatype=datatype, shape=(-1, 2))
    return VersionEntry(
        id="mv_x", model="m", number=1, engine="tensor", artifact_sha256="", artifact_path="", inputs=(spec,)
    )


numbers = st.one_of(
    st.integers(-300, 300),
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.booleans(),
    st.none(),
)
datas = st.one_of(
    st.lists(numbers, max_size=5), st.lists(st.lists(numbers, max_size=2), max_size=2), st.text(max_size=3)
)


def outcome(call: InferCall, datatype: str) -> object:
    try:
        got = call.inputs(version(datatype))
    except DataPlaneError as error:
        return error.code, error.message, error.param, error.numbers
    assert isinstance(got, Payload)
    return got._replace(parts=[bytes(part) for part in got.parts])


@given(
    datatype=st.sampled_from([*DATATYPES, "BYTES"]),
    sent_as=st.sampled_from(["same", "FP32", "INT64"]),
    shape=st.sampled_from([[1, 2], [2, 1], [2, 2], [0, 2], [-1, -2], [2], [], [1, 2**40], [5000, 2]]),
    data=datas,
    name=st.sampled_from(["x", "x", "y"]),
)
def test_inputs_are_the_same(datatype: str, sent_as: str, shape: list[int], data: object, name: str) -> None:
    sent = datatype if sent_as == "same" else sent_as
    body = json.dumps({"inputs": [{"name": name, "shape": shape, "datatype": sent, "data": data}]}).encode()
    plain, general = InferCall({}, body), InferCall({}, body)
    general._is_plain = False
    assert outcome(plain, datatype) == outcome(general, datatype)


@given(datatype=st.sampled_from(list(DATATYPES)), count=st.integers(0, 80), seed=st.integers(0, 2**32 - 1))
def test_answers_are_the_same(datatype: str, count: int, seed: int) -> None:
    kind = DATATYPES[datatype]
    raw = np.random.default_rng(seed).bytes(count * kind.size_bytes)
    if datatype == "BOOL":
        raw = bytes(byte & 1 for byte in raw)
    profile = ProfileEntry(id="pro_a", name="a")
    lane = Lane("tnt_a", version(datatype), profile, Metrics().unrouted("tnt_a", "infer"))
    head = TensorHead('y"', datatype, (count,), len(raw))
    answer = Answer(Result(stages(), (head,)), memoryview(raw + b"behind"))
    body = json.dumps(
        {"inputs": [{"name": "x", "shape": [1, 2], "datatype": datatype, "data": [1, 2]}]}
    ).encode()
    plain, general = InferCall({}, body), InferCall({}, body)
    general._is_plain = False
    payload = Payload(1, 1, (), (head,), [raw])
    assert plain.answer(lane, answer, payload) == general.answer(lane, answer, payload)


@pytest.mark.parametrize("datatype", [name for name, kind in DATATYPES.items() if kind.element is int])
def test_few_integers_are_written_like_many(datatype: str) -> None:
    dtype = DATATYPES[datatype].dtype
    values = np.array([0, 1, 7, np.iinfo(dtype).min, np.iinfo(dtype).max], dtype)
    few = encode_json(datatype, memoryview(values.tobytes()))
    many = encode_json(datatype, memoryview(np.tile(values, 200).tobytes()))
    assert many.startswith(few[:-1] + b",") and json.loads(few) == values.tolist()
