"""Samples a person gives: read, bounded, and checked against what the model takes."""

from __future__ import annotations

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.contract import TensorSpec
from serving.control.tuning import samples
from tenants.errors import Invalid

SPECS = (TensorSpec(name="x", datatype="FP32", shape=(-1, 2)),)


def body(**changed: object) -> str:
    tensor = {"name": "x", "datatype": "FP32", "shape": [2, 2], "data": [[1, 2.5], [3, 4]]} | changed
    return json.dumps({"inputs": [tensor]})


def test_texts_are_lines() -> None:
    assert samples.texts_of(" one \n\n two\r\n") == ("one", "two")


def test_tensors_are_read_nested_or_flat() -> None:
    (nested,) = samples.tensors_of(body(), SPECS)
    (flat,) = samples.tensors_of(body(data=[1, 2.5, 3, 4]), SPECS)
    assert nested == flat
    assert nested.data == (1, 2.5, 3, 4)


@pytest.mark.parametrize(
    ("raw", "word"),
    [
        ("{", "request body"),
        ('{"inputs": [], "more": 1}', "request body"),
        (body(name="y"), "takes the inputs x"),
        (body(datatype="FP64"), "must be FP32"),
        (body(shape=[4, 1], data=[1, 2, 3, 4]), "must have the shape"),
        (body(shape=[3, 2]), "do not make the shape"),
        (body(shape=[-2, -2]), "do not make the shape"),
        (body(shape=[0, 2], data=[]), "rows"),
        (body(data=[[1, None], [3, 4]]), "hold numbers"),
        (body(data=[[1, {"a": 1}], [3, 4]]), "hold numbers"),
        ("[" * 50_000, "request body"),
        (body(data=[0.0] * 40_000), "characters"),
    ],
)
def test_what_is_wrong_is_said_at_the_field(raw: str, word: str) -> None:
    with pytest.raises(Invalid) as caught:
        samples.tensors_of(raw, SPECS)
    assert word in caught.value.errors["samples"]


@pytest.mark.parametrize("texts", [["x"] * 257, ["x" * 8001], [" "], ["x" * 7000] * 10])
def test_texts_are_bounded(texts: list[str]) -> None:
    with pytest.raises(Invalid):
        samples.checked_texts(texts)


@given(st.text(max_size=300))
def test_no_text_breaks_the_readers(raw: str) -> None:
    samples.texts_of(raw)
    samples.is_json(raw)
    with contextlib.suppress(Invalid):
        samples.tensors_of(raw, SPECS)
