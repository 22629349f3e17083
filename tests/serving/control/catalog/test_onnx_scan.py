"""An ONNX file passes only when it is whole in itself and uses standard operators."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.control.catalog.refusal import Refused
from serving.control.catalog.scanning import onnx
from tests.serving.control.catalog import crafting
from tests.serving.control.catalog.crafting import field


def scan(tmp_path: Path, raw: bytes) -> None:
    file = tmp_path / "model.onnx"
    file.write_bytes(raw)
    onnx.scan(file)


def refusal(tmp_path: Path, raw: bytes) -> str:
    with pytest.raises(Refused) as caught:
        scan(tmp_path, raw)
    return str(caught.value)


def external(location: bytes) -> bytes:
    entry = field(1, b"location") + field(2, location)
    return field(5, field(13, entry) + field(14, 1))


def test_a_plain_model_passes(tmp_path: Path) -> None:
    scan(tmp_path, crafting.onnx())


def test_a_model_of_the_onnx_library_passes(tmp_path: Path) -> None:
    helper = pytest.importorskip("onnx.helper")
    kinds = pytest.importorskip("onnx").TensorProto
    shape = ["n", 4]
    weight = helper.make_tensor("w", kinds.FLOAT, [4], [1.0, 2.0, 3.0, 4.0])
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "w"], ["y"])],
        "add",
        [helper.make_tensor_value_info("x", kinds.FLOAT, shape)],
        [helper.make_tensor_value_info("y", kinds.FLOAT, shape)],
        [weight],
    )
    scan(tmp_path, helper.make_model(graph).SerializeToString())


@pytest.mark.parametrize("location", [b"../../etc/passwd", b"/etc/passwd", b"weights.bin"])
def test_weights_outside_the_file_are_refused(tmp_path: Path, location: bytes) -> None:
    assert "another file" in refusal(tmp_path, crafting.onnx(graph=external(location)))


def test_outside_weights_inside_an_attributes_graph_are_found(tmp_path: Path) -> None:
    inner = field(5, field(6, external(b"../../etc/passwd")))
    assert "another file" in refusal(tmp_path, crafting.onnx(node=inner))


def test_operators_of_a_custom_domain_are_refused(tmp_path: Path) -> None:
    assert "com.evil" in refusal(tmp_path, crafting.onnx(node=field(7, b"com.evil")))


def test_operator_sets_of_a_custom_domain_are_refused(tmp_path: Path) -> None:
    assert "com.evil" in refusal(tmp_path, crafting.onnx(extra=field(8, field(1, b"com.evil") + field(2, 1))))


def test_model_local_functions_are_refused(tmp_path: Path) -> None:
    assert "function" in refusal(tmp_path, crafting.onnx(extra=field(25, b"")))


def test_graphs_nested_without_end_are_refused(tmp_path: Path) -> None:
    node = b""
    for _ in range(200):
        node = field(5, field(6, field(1, node)))
    assert "nested" in refusal(tmp_path, crafting.onnx(node=node))


def test_a_pickle_named_onnx_is_refused(tmp_path: Path) -> None:
    refusal(tmp_path, crafting.hostile_pickle())


@given(raw=st.binary(max_size=200))
def test_any_bytes_are_refused_or_walked(raw: bytes, tmp_path_factory: pytest.TempPathFactory) -> None:
    with pytest.raises(Refused):
        scan(tmp_path_factory.mktemp("o"), raw)
