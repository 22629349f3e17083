"""Tensors survive the way through raw bytes, and malformed bytes are refused."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from serving.errors import InvalidTensor
from serving.wire import TensorHead
from serving.worker.engines.contract import Tensor
from serving.worker.engines.datatypes import NUMPY, decode, encode, of_numpy

SHAPES = arrays.array_shapes(min_dims=1, max_dims=3, min_side=0, max_side=5)


@given(st.data(), st.sampled_from(sorted(NUMPY)), SHAPES)
def test_numbers_come_back_bit_for_bit(data: st.DataObject, datatype: str, shape: tuple[int, ...]) -> None:
    array = data.draw(arrays.arrays(NUMPY[datatype], shape))
    head, raw = encode("t", Tensor(datatype, array))
    again = decode(head, bytes(raw))
    assert again.datatype == datatype
    assert again.array.shape == shape
    assert again.array.tobytes() == array.tobytes()


@given(st.lists(st.binary(max_size=20), max_size=10))
def test_bytes_come_back(items: list[bytes]) -> None:
    array = np.empty(len(items), object)
    array[:] = items
    head, raw = encode("t", Tensor("BYTES", array))
    assert decode(head, bytes(raw)).array.tolist() == items


@given(
    st.binary(max_size=60), st.lists(st.integers(-2, 1 << 40), max_size=3), st.sampled_from(["BYTES", "FP32"])
)
def test_arbitrary_bytes_are_a_tensor_or_refused(raw: bytes, shape: list[int], datatype: str) -> None:
    head = TensorHead("t", datatype, tuple(shape), len(raw))
    try:
        tensor = decode(head, raw)
    except InvalidTensor:
        return
    assert tensor.array.shape == tuple(shape)


def test_strided_arrays_are_sent_in_order() -> None:
    array = np.arange(12, dtype=np.int32).reshape(3, 4).T
    head, raw = encode("t", of_numpy(array))
    np.testing.assert_array_equal(decode(head, bytes(raw)).array, array)


def test_text_becomes_bytes_and_big_endian_becomes_little() -> None:
    assert of_numpy(np.array(["ä", "b"])).array.tolist() == ["ä".encode(), b"b"]
    assert of_numpy(np.array([1, 2], ">i4")).array.tobytes() == np.array([1, 2], "<i4").tobytes()


def test_a_dtype_the_protocol_does_not_know_is_refused() -> None:
    with pytest.raises(InvalidTensor, match="complex"):
        of_numpy(np.zeros(1, np.complex64))
