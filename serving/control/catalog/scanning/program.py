"""The program of a `torch.export` archive (`models/model.json`), field by field.

torch turns many of its texts into something that runs, so each has a rule (here and in `program_schema.py`):

    operator targets       looked up with getattr from the torch module on              → allow-list
    names of values        become names in generated Python source, which is exec'd     → identifiers
    sizes, guards          evaluated, compiled (see `symbolic.py`)                       → grammar
    tree specifications    enum values and default factories import modules by name      → plain containers
    custom objects         unpickled                                                     → refused
"""

from __future__ import annotations

import json
import keyword
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TypeVar

import msgspec

from serving.control.catalog.refusal import Refused
from serving.control.catalog.scanning import plain_json, symbolic
from serving.control.catalog.scanning.program_schema import (
    ExportedProgram,
    Graph,
    GraphArgument,
    PayloadConfig,
    SymExpr,
    SymValue,
    TensorMeta,
    TreeSpec,
)

_Struct = TypeVar("_Struct", bound=msgspec.Struct)

OPERATORS = frozenset(
    {f"_operator.{name}" for name in (
        "add", "sub", "mul", "floordiv", "truediv", "mod", "pow", "neg", "pos", "and_", "or_", "lshift", "rshift",
        "eq", "ne", "lt", "le", "gt", "ge", "getitem",
    )}
    | {f"math.{name}" for name in ("trunc", "ceil", "floor", "sqrt")}
    | {f"torch.sym_{name}" for name in ("not", "int", "float", "ite", "max", "min", "sqrt")}
    | {f"torch.ops.higher_order.{name}" for name in ("wrap_with_set_grad_enabled", "wrap_with_autocast", "cond")}
)  # fmt: skip


def scan(raw: bytes, member: str) -> ExportedProgram:
    """The program, when everything in it is harmless to load. Raises `Refused`."""
    program = _convert(plain_json.parse_object(raw, member), ExportedProgram, member)
    for graph in _graphs(program.graph_module.graph):
        _check_graph(graph, member)
    for entry in program.graph_module.module_call_graph:
        if entry.signature is not None:
            _check_tree(entry.signature.in_spec, member)
            _check_tree(entry.signature.out_spec, member)
    for guard in program.guards_code:
        symbolic.check_guard(guard, member)
    return program


def scan_payload(raw: bytes, member: str) -> PayloadConfig:
    """Which tensors live in which member. Pickled ones are refused."""
    config = _convert(plain_json.parse_object(raw, member), PayloadConfig, member)
    for name, payload in config.config.items():
        if payload.use_pickle or payload.tensor_meta is None:
            raise Refused(f"{name} is stored as a pickle: loading one can run code", member)
        _check_meta(payload.tensor_meta, member)
    return config


def _convert(document: object, kind: type[_Struct], member: str) -> _Struct:
    try:
        return msgspec.convert(document, kind)
    except (msgspec.ValidationError, RecursionError) as error:
        raise Refused(f"not the torch.export program this platform can vouch for: {error}", member) from error


def _graphs(graph: Graph) -> Iterator[Graph]:
    pending = [graph]
    while pending:
        graph = pending.pop()
        yield graph
        arguments = [named.arg for node in graph.nodes for named in node.inputs]
        pending.extend(a.as_graph.graph for a in arguments if isinstance(a.as_graph, GraphArgument))


def _check_graph(graph: Graph, member: str) -> None:
    for node in graph.nodes:
        _check_target(node.target, member)
    for name in (*graph.tensor_values, *(node.name for node in graph.nodes if node.name)):
        if keyword.iskeyword(name):
            raise Refused(f"a value named {name!r}", member)
    for meta in graph.tensor_values.values():
        _check_meta(meta, member)
    for values in (graph.sym_int_values, graph.sym_bool_values, graph.sym_float_values):
        for value in values.values():
            _check_value(value, member)


def _check_target(target: str, member: str) -> None:
    namespace, _, operator = target.partition("torch.ops.aten.")
    if target in OPERATORS or (
        not namespace and operator.split(".")[0] in _aten() and operator.count(".") == 1
    ):
        return
    raise Refused(f"it calls {target}, which is not among the operators accepted from an artifact", member)


def _check_meta(meta: TensorMeta, member: str) -> None:
    for value in (*meta.sizes, *meta.strides, meta.storage_offset):
        _check_value(value, member)


def _check_value(value: SymValue, member: str) -> None:
    if isinstance(value.as_expr, SymExpr):
        symbolic.check_size(value.as_expr.expr_str, member)


def _check_tree(text: str, member: str) -> None:
    """`[1, {"type", "context", "children_spec"}]`; the context of a dictionary is the list of its keys."""
    match plain_json.parse(text.encode(), member):
        case [1, dict(document)]:
            pending = [_convert(document, TreeSpec, member)]
        case _:
            raise Refused("a tree specification of an unknown version", member)
    while pending:
        spec = pending.pop()
        _check_context(spec, member)
        pending.extend(spec.children_spec)


def _check_context(spec: TreeSpec, member: str) -> None:
    context = None if spec.context is None else plain_json.parse(spec.context.encode(), member)
    is_keyed = spec.type in ("builtins.dict", "collections.OrderedDict")
    keys = context if is_keyed and isinstance(context, list) else []
    if not is_keyed and context is not None:
        raise Refused("a tree specification with a context that plain containers do not have", member)
    if is_keyed and not isinstance(context, list):
        raise Refused("a dictionary whose keys are not a list", member)
    for key in keys:
        if isinstance(key, bool) or not (
            isinstance(key, int) or (isinstance(key, str) and symbolic.is_key(key))
        ):
            raise Refused(f"a dictionary key that is not a plain name: {json.dumps(key)[:80]}", member)


@cache
def _aten() -> frozenset[str]:
    lines = Path(__file__).with_name("aten.txt").read_text().splitlines()
    return frozenset(" ".join(line for line in lines if not line.startswith("#")).split())
