"""A `.pt2` archive passes only when nothing that torch does with it could run code."""

from __future__ import annotations

import contextlib
import io
import json
import pickle
import zipfile
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.control.catalog.refusal import Refused
from serving.control.catalog.scanning import pickles, pt2, symbolic
from tests.serving.control.catalog import crafting
from tests.serving.control.catalog.crafting import SYMBOL

Change = Callable[[dict[str, Any]], None]


def scan(tmp_path: Path, raw: bytes) -> None:
    file = tmp_path / "model.pt2"
    file.write_bytes(raw)
    pt2.scan(file)


def refusal(tmp_path: Path, raw: bytes) -> str:
    with pytest.raises(Refused) as caught:
        scan(tmp_path, raw)
    return str(caught.value)


def node_of(document: dict[str, Any]) -> dict[str, Any]:
    return document["graph_module"]["graph"]["nodes"][0]


def test_an_ordinary_program_passes(tmp_path: Path) -> None:
    scan(tmp_path, crafting.pt2())


# ---------------------------------------------------------------- pickles


def test_sample_inputs_with_a_call_are_refused(tmp_path: Path) -> None:
    samples = crafting.torch_save(crafting.hostile_pickle())
    assert "would call" in refusal(tmp_path, crafting.pt2(samples=samples))


@pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4, 5])
def test_every_pickle_protocol_is_seen_through(tmp_path: Path, protocol: int) -> None:
    samples = crafting.torch_save(crafting.hostile_pickle(protocol=protocol))
    assert "pickle" in refusal(tmp_path, crafting.pt2(samples=samples))


def test_sample_inputs_of_the_old_format_are_refused(tmp_path: Path) -> None:
    """Without a zip around it torch unpickles from the first byte."""
    refusal(tmp_path, crafting.pt2(samples=crafting.hostile_pickle()))


def test_torchscript_among_the_sample_inputs_is_refused(tmp_path: Path) -> None:
    samples = crafting.torch_save(pickle.dumps(((), {}), 2), **{"constants.pkl": b"\x80\x02)."})
    assert "constants.pkl" in refusal(tmp_path, crafting.pt2(samples=samples))


def test_bytes_behind_a_pickle_are_refused() -> None:
    with pytest.raises(Refused, match="after the end"):
        pickles.scan(pickle.dumps([], 2) + crafting.hostile_pickle(), "data.pkl")


def test_plain_values_and_ordered_dictionaries_pass() -> None:
    pickles.scan(pickle.dumps(((1, 2.5, "text", True, None), {"k": [OrderedDict()]}), 2), "data.pkl")


@pytest.mark.parametrize(
    "raw",
    [
        b"cbuiltins\neval\n(S'1'\ntR.",
        b"ctorch.hub\nload\n.",
        b"ctorch\nload\n.",
        b"ctorch.serialization\nload\n.",
        b"ctorch._utils _rebuild\n\n.",
        b"(ios\nsystem\n(lp0\n.",
        b"\x80\x04\x8c\x02os\x8c\x06system\x93.",
        b"\x82\x01.",
        b"\x80\x02cfoo",
    ],
)
def test_pickles_with_any_other_global_are_refused(raw: bytes) -> None:
    with pytest.raises(Refused):
        pickles.scan(raw, "data.pkl")


class Watching(pickle.Unpickler):
    """Loads for real, and tells when anything off the list is imported."""

    def find_class(self, module: str, name: str) -> Any:
        assert (module, name) in pickles.ALLOWED_GLOBALS
        return OrderedDict

    def persistent_load(self, pid: Any) -> Any:
        return pid


FRAGMENTS = [
    b"\x80\x02", b"\x80\x04", b"cos\nsystem\n", b"ccollections\nOrderedDict\n", b"(", b")", b"R", b"\x81", b"b", b"o",
    b"\x93", b"\x8c\x02os", b"\x8c\x06system", b"X\x02\x00\x00\x00os", b"i", b"ios\nsystem\n", b"q\x00", b"h\x00", b"t",
    b"}", b"]", b"Q", b"P0\n", b"\x82\x01", b"0", b"2", b"K\x01", b".", b"\x95" + bytes(8), b"\x94",
]  # fmt: skip


@given(parts=st.lists(st.sampled_from(FRAGMENTS), max_size=12))
def test_a_pickle_that_passes_imports_nothing_off_the_list(parts: list[bytes]) -> None:
    raw = b"".join(parts) + b"."
    try:
        pickles.scan(raw, "data.pkl")
    except Refused:
        return
    with contextlib.suppress(
        pickle.UnpicklingError, TypeError, ValueError, IndexError, EOFError, AttributeError, KeyError
    ):
        Watching(io.BytesIO(raw)).load()


def test_weights_stored_as_a_pickle_are_refused(tmp_path: Path) -> None:
    payload = {
        "path_name": "weight_0",
        "is_param": True,
        "use_pickle": True,
        "tensor_meta": crafting.tensor_meta(2),
    }
    raw = crafting.pt2(weights={"w": payload}, members={"data/weights/weight_0": crafting.hostile_pickle()})
    assert "pickle" in refusal(tmp_path, raw)


@pytest.mark.parametrize(
    ("member", "word"),
    [
        ("data/constants/custom_obj_0", "pickled object"),
        ("data/constants/opaque_obj_0", "pickled object"),
        ("data/weights/model.pt", "pickled weights"),
        ("data/constants/model.pt", "pickled weights"),
        ("data/aotinductor/model/model.so", "compiled code"),
        ("data/aotinductor/model/x.wrapper.cpp", "compiled code"),
        ("models/other.json", "exactly one program"),
        ("code/__torch__.py", "TorchScript"),
        ("data.pkl", "TorchScript"),
        ("extra/../../x", "odd name"),
        ("executorch/x.pte", "not a member"),
    ],
)
def test_members_that_torch_would_run_or_nobody_knows_are_refused(
    tmp_path: Path, member: str, word: str
) -> None:
    assert word in refusal(tmp_path, crafting.pt2(members={member: b"x"}))


def test_the_format_of_old_torch_is_refused(tmp_path: Path) -> None:
    files = {"version": b"8.1", "serialized_state_dict.pt": crafting.hostile_pickle()}
    assert "2.7 or older" in refusal(tmp_path, crafting.zip_of(files, zipfile.ZIP_STORED))


def test_weights_that_claim_more_than_their_bytes_are_refused(tmp_path: Path) -> None:
    meta = crafting.tensor_meta(1 << 40)
    payload = {"path_name": "weight_0", "is_param": True, "use_pickle": False, "tensor_meta": meta}
    raw = crafting.pt2(weights={"w": payload}, members={"data/weights/weight_0": b""})
    assert "size" in refusal(tmp_path, raw)


# ---------------------------------------------------------------- the program


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


# ---------------------------------------------------------------- the zip around it


def test_a_compressed_archive_is_refused(tmp_path: Path) -> None:
    assert "compressed" in refusal(tmp_path, crafting.pt2(method=zipfile.ZIP_DEFLATED))


@pytest.mark.parametrize(
    "damage", [lambda raw: b"#!/bin/sh\n" + raw, lambda raw: raw + b"\0", lambda raw: raw[:-1]]
)
def test_bytes_before_or_after_the_archive_are_refused(
    tmp_path: Path, damage: Callable[[bytes], bytes]
) -> None:
    refusal(tmp_path, damage(crafting.pt2()))


def test_two_archives_in_one_file_are_refused(tmp_path: Path) -> None:
    """Readers differ in which of two directories they believe."""
    refusal(tmp_path, crafting.pt2() + crafting.pt2())


def test_names_that_differ_only_in_case_are_refused(tmp_path: Path) -> None:
    """torch's reader looks names up without regard to case."""
    assert "two members" in refusal(tmp_path, crafting.pt2(members={"models/MODEL.json": b"{}"}))


def test_a_name_that_the_two_headers_disagree_on_is_refused(tmp_path: Path) -> None:
    raw = crafting.pt2()
    first = raw.index(b"m/byteorder")
    refusal(tmp_path, raw[:first] + b"m/ByteOrder" + raw[first + 11 :])


@given(position=st.integers(min_value=0), byte=st.integers(min_value=0, max_value=255))
def test_one_changed_byte_never_escapes_as_another_error(
    position: int, byte: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    raw = bytearray(crafting.pt2())
    raw[position % len(raw)] = byte
    file = tmp_path_factory.mktemp("z") / "model.pt2"
    file.write_bytes(raw)
    with contextlib.suppress(Refused):
        pt2.scan(file)
