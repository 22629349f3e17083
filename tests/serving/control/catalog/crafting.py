"""Artifacts made by hand: honest ones, and ones that would run code or break out when they are handled."""

from __future__ import annotations

import io
import json
import os
import pickle
import struct
import tarfile
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

CONFIG = {"model_type": "bert", "hidden_size": 4, "architectures": ["BertModel"]}


class RunsOnLoad:
    """Its pickle calls `os.mkdir(path)` when it is loaded: harmless, and easy to see."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.path),)


def hostile_pickle(path: Path = Path("/nowhere"), protocol: int = 2) -> bytes:
    return pickle.dumps(RunsOnLoad(path), protocol)


def safetensors(
    tensors: Mapping[str, tuple[str, list[int], bytes]] | None = None, *, tail: bytes = b""
) -> bytes:
    """`tensors`: name → dtype, shape, bytes."""
    chosen = tensors if tensors is not None else {"weight": ("F32", [2, 2], bytes(16))}
    header, data = {}, b""
    for name, (dtype, shape, raw) in chosen.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    return safetensors_of(header, data) + tail


def safetensors_of(header: Mapping[str, Any], data: bytes) -> bytes:
    raw = json.dumps(header).encode()
    return struct.pack("<Q", len(raw)) + raw + data


def encoder(**changed: bytes | None) -> dict[str, bytes]:
    """Files of a small encoder directory; a file set to None is left out. `__` in a name stands for `.`."""
    files: dict[str, bytes] = {
        "config.json": json.dumps(CONFIG).encode(),
        "tokenizer.json": b'{"version":"1.0"}',
        "model.safetensors": safetensors(),
        "README.md": b"# a model",
    }
    given = {name.replace("__", "."): raw for name, raw in changed.items()}
    merged = files | {name: raw for name, raw in given.items() if raw is not None}
    return {name: raw for name, raw in merged.items() if given.get(name, b"") is not None}


def write_tree(root: Path, files: Mapping[str, bytes]) -> Path:
    for name, raw in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(raw)
    return root


def zip_of(files: Mapping[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive:
        for name, raw in files.items():
            archive.writestr(name, raw)
    return buffer.getvalue()


def zip_with_link(name: str, target: str) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        entry = zipfile.ZipInfo(name)
        entry.external_attr = 0o120777 << 16
        archive.writestr(entry, target)
    return buffer.getvalue()


def tar_of(files: Mapping[str, bytes], special: tarfile.TarInfo | None = None, mode: str = "w:gz") -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=mode) as archive:  # type: ignore[call-overload]
        for name, raw in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(raw)
            archive.addfile(entry, io.BytesIO(raw))
        if special is not None:
            archive.addfile(special)
    return buffer.getvalue()


def tar_entry(name: str, kind: bytes, target: str = "") -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.type, entry.linkname = kind, target
    return entry


# ---------------------------------------------------------------- torch.export archives

SYMBOL = "Symbol('s77', positive=True, integer=True)"


def tensor_meta(*sizes: int) -> dict[str, Any]:
    return {
        "dtype": 7,
        "sizes": [{"as_int": size} for size in sizes],
        "requires_grad": False,
        "device": {"type": "cpu", "index": None},
        "strides": [{"as_int": 1} for _ in sizes],
        "storage_offset": {"as_int": 0},
        "layout": 7,
    }


def program() -> dict[str, Any]:
    """`relu(x)` for x of shape (batch, 4), as torch 2.13 writes it."""
    batched = tensor_meta(1, 4)
    batched["sizes"][0] = {"as_expr": {"expr_str": SYMBOL, "hint": {"as_int": 2}}}
    node = {
        "target": "torch.ops.aten.relu.default",
        "inputs": [{"name": "self", "arg": {"as_tensor": {"name": "x"}}, "kind": 1}],
        "outputs": [{"as_tensor": {"name": "relu"}}],
        "metadata": {"torch_fn": "relu_1;builtin_function_or_method.relu"},
        "is_hop_single_tensor_return": None,
        "name": "relu",
    }
    leaf = {"type": None, "context": None, "children_spec": []}
    tree = {"type": "builtins.tuple", "context": "null", "children_spec": [leaf]}
    return {
        "graph_module": {
            "graph": {
                "inputs": [{"as_tensor": {"name": "x"}}],
                "outputs": [{"as_tensor": {"name": "relu"}}],
                "nodes": [node],
                "tensor_values": {"x": batched, "relu": batched},
                "sym_int_values": {},
                "sym_bool_values": {},
                "is_single_tensor_return": False,
                "custom_obj_values": {},
                "sym_float_values": {},
            },
            "signature": {
                "input_specs": [{"user_input": {"arg": {"as_tensor": {"name": "x"}}}}],
                "output_specs": [{"user_output": {"arg": {"as_tensor": {"name": "relu"}}}}],
            },
            "module_call_graph": [
                {
                    "fqn": "",
                    "signature": {
                        "inputs": [],
                        "outputs": [],
                        "in_spec": json.dumps([1, tree]),
                        "out_spec": json.dumps([1, tree]),
                        "forward_arg_names": ["x"],
                    },
                }
            ],
            "metadata": {},
            "treespec_namedtuple_fields": {},
        },
        "opset_version": {"aten": 10},
        "range_constraints": {"s77": {"min_val": 1, "max_val": 64}},
        "schema_version": {"major": 8, "minor": 20},
        "verifiers": ["TRAINING"],
        "torch_version": "2.13.0",
        "guards_code": [],
    }


def pt2(
    change: Callable[[dict[str, Any]], None] | None = None,
    *,
    weights: Mapping[str, Any] | None = None,
    samples: bytes = b"",
    members: Mapping[str, bytes] | None = None,
    method: int = zipfile.ZIP_STORED,
) -> bytes:
    """A `.pt2` archive of `program()`, after `change` has had its way with it."""
    document = program()
    if change is not None:
        change(document)
    files = {
        "archive_format": b"pt2",
        "archive_version": b"0",
        "byteorder": b"little",
        ".data/version": b"6\n",
        "models/model.json": json.dumps(document).encode(),
        "data/weights/model_weights_config.json": json.dumps({"config": weights or {}}).encode(),
        "data/constants/model_constants_config.json": b'{"config": {}}',
        "data/sample_inputs/model.pt": samples,
    }
    everything = files | dict(members or {})
    return zip_of({f"m/{name}": raw for name, raw in everything.items()}, method)


def torch_save(pickled: bytes, **members: bytes) -> bytes:
    """What `torch.save` writes around a pickle."""
    files = {"data.pkl": pickled, "version": b"3\n", "byteorder": b"little"} | members
    return zip_of({f"archive/{name}": raw for name, raw in files.items()}, zipfile.ZIP_STORED)


# ---------------------------------------------------------------- ONNX, as protobuf fields


def field(number: int, value: int | bytes) -> bytes:
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def varint(value: int) -> bytes:
    raw = bytearray()
    while True:
        value, low = value >> 7, value & 127
        raw.append(low | (128 if value else 0))
        if not value:
            return bytes(raw)


def onnx(*, graph: bytes = b"", node: bytes = b"", extra: bytes = b"") -> bytes:
    relu = field(1, b"x") + field(2, b"y") + field(4, b"Relu") + node
    return field(1, 10) + field(7, field(1, relu) + graph) + field(8, field(2, 21)) + extra
