"""The program inside a `.pt2` archive: only known operators, plain names, sizes and trees."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from serving.control.catalog.scanning import symbolic
from tests.serving.control.catalog import crafting
from tests.serving.control.catalog.crafting import SYMBOL
from tests.serving.control.catalog.pt2_scanning import Change, node_of, refusal, scan


@pytest.mark.parametrize(
    "target",
    [
        "torch.hub.load",
        "torch.load",
        "torch.ops.load_library",
        "torch.utils.cpp_extension.load",
        "torch.serialization.os.system",
        "torch.ops.aten.from_file.default",
        "torch.ops.aten.save.default",
        "torch.ops.custom.op.default",
        "torch.ops.aten.relu",
        "torch.ops.aten.relu.default.__globals__",
        "torch.ops.higher_order.triton_kernel_wrapper_functional",
        "_operator.attrgetter",
        "_operator.methodcaller",
        "_operator.call",
        "math.__loader__.load_module",
        "#executorch:edge",
        "os.system",
    ],
)
def test_only_known_operators_may_be_called(tmp_path: Path, target: str) -> None:
    assert refusal(tmp_path, crafting.pt2(lambda d: node_of(d).update(target=target)))


@pytest.mark.parametrize(
    "target", ["torch.ops.aten.add.Tensor", "_operator.mul", "torch.sym_max", "math.trunc"]
)
def test_operators_of_exported_programs_pass(tmp_path: Path, target: str) -> None:
    scan(tmp_path, crafting.pt2(lambda d: node_of(d).update(target=target)))


@pytest.mark.parametrize(
    "name", ["x = __import__('os')", "x\n    import os", "x:int", "x)", "", "lambda", "über"]
)
def test_names_are_identifiers_because_they_become_source(tmp_path: Path, name: str) -> None:
    assert refusal(tmp_path, crafting.pt2(lambda d: node_of(d).update(name=name)))
    assert refusal(tmp_path, crafting.pt2(lambda d: d["graph_module"]["graph"]["tensor_values"].update(
        {name: crafting.tensor_meta(1)}
    )))  # fmt: skip


HOSTILE_EXPRESSIONS = [
    "__import__('os').system('id')",
    "Symbol('s77').__class__.__mro__",
    "lambdify([], '1')()",
    "sympify('1')",
    "Symbol(__import__('os').system('id'))",
    "Symbol('s77', positive=__import__('os'))",
    "Symbol('s77', **{})",
    "Symbol(*[])",
    "Integer(eval('1'))",
    "Add(1, *Symbol('s77').args)",
    "[x for x in ()]",
    "(lambda: 1)()",
    "'text'",
    "f'{1}'",
    "Symbol('s77'); 1",
    "Integer(10)**Integer(10)",
    "Pow(Integer(10), Integer(99999999))",
    "Pow(Pow(Pow(Integer(10), Integer(16)), Integer(16)), Integer(16))",
    "Pow(Integer(10), Symbol('s77'))",
    f"Integer({10**40})",
    "Float('__import__(1)', precision=53)",
    "(" * 5000,
    "Symbol('s77')" + " " * 9000,
]


@pytest.mark.parametrize("text", HOSTILE_EXPRESSIONS)
def test_a_size_that_is_code_is_refused(tmp_path: Path, text: str) -> None:
    def change(document: dict[str, Any]) -> None:
        values = document["graph_module"]["graph"]["tensor_values"]
        values["relu"]["sizes"][0] = {"as_expr": {"expr_str": text, "hint": {"as_int": 2}}}

    assert refusal(tmp_path, crafting.pt2(change))


@pytest.mark.parametrize(
    "text",
    [
        SYMBOL,
        f"Mul(Integer(4), {SYMBOL})",
        f"Add(Pow({SYMBOL}, Integer(2)), Integer(-1))",
        f"FloorDiv(Add(Integer(-1), {SYMBOL}), Integer(2))",
        f"Max(Integer(1), {SYMBOL})",
        f"Mul(Rational(1, 2), Pow({SYMBOL}, Integer(-1)))",
        f"Equality(Mod({SYMBOL}, Integer(2)), Integer(0))",
        f"ToFloat({SYMBOL})",
        "Float('1.5', precision=53)",
        "true",
    ],
)
def test_sizes_of_real_programs_pass(text: str) -> None:
    symbolic.check_size(text, "models/model.json")


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('id')",
        "L['x'].__class__",
        "L['x'].size().__class__",
        "L[__import__('os')].size()[0] == 1",
        "L['x'].tofile('/etc/passwd')",
        "math.__loader__",
        "L['x\"); import os; (\"'].size()[0] == 1",
        "(y := 1)",
        "print(1)",
    ],
)
def test_a_guard_that_is_code_is_refused(tmp_path: Path, text: str) -> None:
    assert refusal(tmp_path, crafting.pt2(lambda d: d.update(guards_code=[text])))


@pytest.mark.parametrize(
    "text", ["L['x'].size()[0] % 2 == 0", "2 <= L['x']['k'].size()[1] and not L['y'].dim() > 3", "-1 < 4"]
)
def test_guards_on_shapes_pass(text: str) -> None:
    symbolic.check_guard(text, "models/model.json")


def _tree(**changed: Any) -> str:
    return json.dumps([1, {"type": "builtins.dict", "context": '["x"]', "children_spec": []} | changed])


@pytest.mark.parametrize(
    "spec",
    [
        _tree(context='{"__enum__": true, "fqn": "antigravity:x", "name": "y"}'),
        _tree(context='[{"__enum__": true, "fqn": "antigravity:x", "name": "y"}]'),
        _tree(type="collections.defaultdict", context='{"default_factory_module": "os"}'),
        _tree(type="collections.namedtuple"),
        _tree(type="builtins.tuple", context='{"__enum__": true}'),
        _tree(context=json.dumps(['x"]); import os #'])),
        _tree(more=1),
        json.dumps([2, {}]),
        "[1, [",
    ],
)
def test_tree_specifications_that_would_import_are_refused(tmp_path: Path, spec: str) -> None:
    def change(document: dict[str, Any]) -> None:
        document["graph_module"]["module_call_graph"][0]["signature"]["in_spec"] = spec

    assert refusal(tmp_path, crafting.pt2(change))


@pytest.mark.parametrize(
    "change",
    [
        lambda d: d.update(unknown=1),
        lambda d: node_of(d).update(unknown=1),
        lambda d: node_of(d)["metadata"].update(unknown="x"),
        lambda d: node_of(d)["inputs"][0].update(arg={"as_custom_obj": {"name": "x", "class_fqn": "y"}}),
        lambda d: node_of(d)["inputs"][0].update(arg={"as_operator": "torch.load"}),
        lambda d: node_of(d)["inputs"][0].update(arg={"as_int": 1, "as_float": 2.0}),
        lambda d: node_of(d)["inputs"][0].update(arg={}),
        lambda d: d["graph_module"]["graph"]["custom_obj_values"].update(x={"name": "x", "class_fqn": "y"}),
        lambda d: d["graph_module"]["treespec_namedtuple_fields"].update({"os.system": {"field_names": []}}),
        lambda d: d["graph_module"]["module_call_graph"][0]["signature"].update(
            forward_arg_names=["x, y=1/0"]
        ),
        lambda d: d["range_constraints"].update({"__import__": {"min_val": 1, "max_val": 2}}),
        lambda d: d.update(verifiers=["evil"]),
        lambda d: d["schema_version"].update(major=9),
        lambda d: d["graph_module"]["signature"]["input_specs"].append({"custom_obj": {}}),
    ],
)
def test_fields_nobody_vouched_for_are_refused(tmp_path: Path, change: Change) -> None:
    assert refusal(tmp_path, crafting.pt2(change))


def test_a_hostile_operator_inside_a_nested_graph_is_found(tmp_path: Path) -> None:
    def change(document: dict[str, Any]) -> None:
        inner = crafting.program()["graph_module"]["graph"]
        inner["nodes"][0]["target"] = "torch.hub.load"
        node = node_of(document)
        node["target"] = "torch.ops.higher_order.cond"
        node["inputs"].append({"name": "f", "arg": {"as_graph": {"name": "g", "graph": inner}}, "kind": 1})

    assert "torch.hub.load" in refusal(tmp_path, crafting.pt2(change))
