"""The tensor engine: a `torch.export` program with named tensors and a batch dimension.

The batch dimension is the first one of every input and output. A program exported with a dynamic batch
runs whatever comes, within its bounds; one exported with a fixed batch size is padded to that size.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.utils import _pytree as pytree

from serving.contract import TensorSpec
from serving.worker.artifact import only_file
from serving.worker.engines import batching, datatypes, torch_device
from serving.worker.engines.contract import EngineInput, LoadFailed, Run, Signature, Tensor

DEFAULT_MAX_BATCH_ROWS = 64

_DATATYPES = {
    torch.bool: "BOOL",
    torch.uint8: "UINT8",
    torch.uint16: "UINT16",
    torch.uint32: "UINT32",
    torch.uint64: "UINT64",
    torch.int8: "INT8",
    torch.int16: "INT16",
    torch.int32: "INT32",
    torch.int64: "INT64",
    torch.float16: "FP16",
    torch.float32: "FP32",
    torch.float64: "FP64",
    torch.bfloat16: "BF16",
}


class BatchRange(NamedTuple):
    """Rows that the program takes in one call."""

    least: int
    most: int


class TensorEngine:
    can_yield = False
    max_tokens = 0

    def __init__(
        self,
        path: Path,
        options: Mapping[str, str | int | float | bool],
        *,
        device: str = "cpu",
        threads: int = 1,
    ) -> None:
        self._path, self._options = path, options
        self._device_name, self._threads = device, threads
        self.max_batch_rows = int(options.get("max_batch_rows", DEFAULT_MAX_BATCH_ROWS))
        self._signature = Signature((), ())
        self._range = BatchRange(1, self.max_batch_rows)
        self._in_spec: Any = None
        self._run_program: Any = None
        self._device: torch.device

    def load(self) -> None:
        self._device = torch_device.open_device(self._device_name, self._threads)
        with torch_device.translated_errors():
            program = _read(only_file(self._path, ".pt2", "tensor engine runs one torch.export program"))
            inputs = [_placeholder(program, name) for name in program.graph_signature.user_inputs]
            outputs = [_output(program, name) for name in program.graph_signature.user_outputs]
            self._range = _batch_range(program, [*inputs, *outputs])
            self._signature = Signature(
                tuple(map(_spec, program.graph_signature.user_inputs, inputs)),
                tuple(map(_spec, _output_names(program, len(outputs)), outputs)),
            )
            self._in_spec = program.module_call_graph[0].signature.in_spec
            self._run_program = self._placed(program)
        self.max_batch_rows = min(self.max_batch_rows, self._range.most)

    def warm_up(self) -> None:
        for rows in batching.buckets(self.max_batch_rows):
            self._forward(self.sample(rows, rows).tensors, rows)

    def signature(self) -> Signature:
        return self._signature

    def check(self, item: EngineInput) -> None:
        batching.check(item, self._signature.inputs)

    def run(self, inputs: Sequence[EngineInput]) -> Run:
        return (yield from batching.run_by_shape(inputs, self._forward))

    def executed_tokens(self, inputs: Sequence[EngineInput]) -> int:
        return batching.executed_tokens(inputs, self._range.least)

    def notes(self) -> tuple[str, ...]:
        return ()

    def sample(self, rows: int, tokens: int) -> EngineInput:
        return batching.sample(self._signature.inputs, rows, datatypes.NUMPY)

    def _placed(self, program: torch.export.ExportedProgram) -> Any:
        if self._device.type != "cpu":
            from torch.export.passes import move_to_device_pass

            program = move_to_device_pass(program, self._device)
        module = program.module()
        return torch.compile(module) if self._options.get("compile") else module

    def _forward(self, tensors: batching.Batch, rows: int) -> batching.Batch:
        with torch_device.translated_errors(), torch.inference_mode():
            flat = [self._input(tensors[spec.name], rows) for spec in self._signature.inputs]
            positional, named = pytree.tree_unflatten(flat, self._in_spec)
            results, _ = pytree.tree_flatten(self._run_program(*positional, **named))
            return {
                spec.name: Tensor(spec.datatype, _to_numpy(result)[:rows])
                for spec, result in zip(self._signature.outputs, results, strict=True)
            }

    def _input(self, tensor: Tensor, rows: int) -> torch.Tensor:
        missing = max(rows, self._range.least) - rows
        padding = ((0, missing),) + ((0, 0),) * (tensor.array.ndim - 1)
        array = np.pad(tensor.array, padding) if missing else np.array(tensor.array)  # torch wants to own it
        if tensor.datatype == "BF16":
            return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16).to(self._device)
        return torch.from_numpy(array).to(self._device)


def _to_numpy(result: torch.Tensor) -> np.ndarray:
    result = result.detach().cpu().contiguous()
    if result.dtype == torch.bfloat16:
        return result.view(torch.int16).numpy().view(np.uint16)
    return result.numpy()


# ---------------------------------------------------------------- reading a program


def _read(file: Path) -> torch.export.ExportedProgram:
    # Only reached for artifacts whose archive the control plane has searched for executable content.
    try:
        return torch.export.load(file)
    except MemoryError:
        raise
    except Exception as error:  # whatever a damaged archive makes of the reader
        text = (str(error).splitlines() or [""])[0][:200]
        raise LoadFailed(f"{file.name} is not a readable torch.export program: {text}") from error


def _placeholder(program: torch.export.ExportedProgram, name: str) -> torch.Tensor:
    node = next(node for node in program.graph.nodes if node.op == "placeholder" and node.name == name)
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor):
        raise LoadFailed(f"input {name} is not a tensor: export the program with tensors only")
    return value


def _output(program: torch.export.ExportedProgram, name: str) -> torch.Tensor:
    node = next((node for node in program.graph.nodes if node.name == name), None)
    value = node.meta.get("val") if node is not None else None
    if not isinstance(value, torch.Tensor):
        raise LoadFailed(f"output {name} is not a tensor: the program must return tensors only")
    return value


def _output_names(program: torch.export.ExportedProgram, count: int) -> list[str]:
    """A dict's keys, where the program returns one; else `output`, or `output_0`, `output_1` …"""
    spec = program.module_call_graph[0].signature.out_spec
    keys = spec.context if spec.type is dict and spec.num_leaves == spec.num_children else None
    if keys is not None and all(isinstance(key, str) for key in keys):
        return list(keys)
    return ["output"] if count == 1 else [f"output_{index}" for index in range(count)]


def _spec(name: str, value: torch.Tensor) -> TensorSpec:
    datatype = _DATATYPES.get(value.dtype)
    if datatype is None:
        raise LoadFailed(f"{name} has dtype {value.dtype}, which no client can send")
    sizes = tuple(size if isinstance(size, int) else -1 for size in value.shape[1:])
    return TensorSpec(name=name, datatype=datatype, shape=(-1, *sizes))


def _batch_range(program: torch.export.ExportedProgram, values: Sequence[torch.Tensor]) -> BatchRange:
    if any(not value.shape for value in values):
        raise LoadFailed("every input and output needs a batch dimension (the first one)")
    sizes = {str(value.shape[0]): value.shape[0] for value in values}
    if len(sizes) != 1:
        raise LoadFailed(f"the first dimensions differ ({', '.join(sizes)}): one batch size must fit all")
    size: Any = next(iter(sizes.values()))  # an int, or a symbol
    if isinstance(size, int):
        return BatchRange(size, size)
    bounds = program.range_constraints.get(size.node.expr)
    if bounds is None:
        raise LoadFailed(f"the batch dimension must be free, not computed ({size})")
    most = float(bounds.upper) if bounds.upper.is_number else math.inf
    return BatchRange(max(1, int(bounds.lower)), int(most) if most < 1 << 31 else 1 << 31)
