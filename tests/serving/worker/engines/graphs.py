"""ONNX graphs for the tests, made by hand and saved to disk."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from onnx import TensorProto, helper

Value = tuple[str, int, list[Any]]
"""Name, `TensorProto` type, sizes."""


def save(
    path: Path, nodes: list[Any], inputs: list[Value], outputs: list[Value], constants: tuple = ()
) -> Path:
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(*value) for value in inputs],
        [helper.make_tensor_value_info(*value) for value in outputs],
        list(constants),
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    file = path / "model.onnx"
    file.write_bytes(model.SerializeToString())
    return file


def same(path: Path, kind: str, sizes: list[Any] | None = None) -> Path:
    """`y = x`."""
    value = (getattr(TensorProto, kind), ["n", "k"] if sizes is None else sizes)
    return save(path, [helper.make_node("Identity", ["x"], ["y"])], [("x", *value)], [("y", *value)])


def scored(path: Path) -> Path:
    """`scores = image · scale` and `total = Σ image`, as the tensor engine's program of that name."""
    axis = helper.make_tensor("axis", TensorProto.INT64, [1], [1])
    nodes = [
        helper.make_node("Unsqueeze", ["scale", "axis"], ["column"]),
        helper.make_node("Mul", ["image", "column"], ["scores"]),
        helper.make_node("ReduceSum", ["image", "axis"], ["total"], keepdims=0),
    ]
    real = TensorProto.FLOAT
    return save(
        path,
        nodes,
        [("image", real, ["n", 3]), ("scale", real, ["n"])],
        [("scores", real, ["n", 3]), ("total", real, ["n"])],
        (axis,),
    )


def of_one_row_too_few(path: Path) -> Path:
    """`y` is `x` without its first row."""
    constants = [
        helper.make_tensor(name, TensorProto.INT64, [1], [at]) for name, at in (("a", 1), ("b", 1 << 40))
    ]
    node = helper.make_node("Slice", ["x", "a", "b"], ["y"])
    real = TensorProto.FLOAT
    return save(path, [node], [("x", real, ["n", 2])], [("y", real, ["m", 2])], tuple(constants))


def looked_up(path: Path) -> Path:
    """Row `x` of a table of four: an index beyond it fails when the graph runs."""
    table = helper.make_tensor("table", TensorProto.FLOAT, [4], [0.0, 1.0, 2.0, 3.0])
    node = helper.make_node("Gather", ["table", "x"], ["y"])
    return save(path, [node], [("x", TensorProto.INT64, ["n"])], [("y", TensorProto.FLOAT, ["n"])], (table,))


def of_two_batches(path: Path) -> Path:
    nodes = [helper.make_node("Identity", [name], [f"{name}_out"]) for name in "ab"]
    real = TensorProto.FLOAT
    return save(
        path,
        nodes,
        [("a", real, ["n", 2]), ("b", real, ["m", 2])],
        [("a_out", real, ["n", 2]), ("b_out", real, ["m", 2])],
    )
