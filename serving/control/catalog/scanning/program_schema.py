"""The schema of a `torch.export` program: `torch/_export/serde/schema.py` of torch 2.13 (version 8), made strict.

Every text has its pattern, every union exactly one alternative, and unknown fields are refused: a newer
schema may give them a meaning nobody here has read. What is left out (custom objects, tokens, gradients,
named tuples) is left out on purpose.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct

Name = Annotated[str, Meta(pattern=r"\A[A-Za-z_][A-Za-z0-9_]*\Z", max_length=512)]
NameOrNothing = Annotated[str, Meta(pattern=r"\A([A-Za-z_][A-Za-z0-9_]*)?\Z", max_length=512)]
TensorPath = Annotated[str, Meta(pattern=r"\A[A-Za-z0-9_]+(\.[A-Za-z0-9_]+)*\Z", max_length=1024)]
ModulePath = Annotated[
    str, Meta(pattern=r"\A([A-Za-z0-9_]+(\.[A-Za-z0-9_]+)*(@[0-9]+)?)?\Z", max_length=1024)
]
Target = Annotated[str, Meta(pattern=r"\A[A-Za-z_][A-Za-z0-9_.]*\Z", max_length=256)]
Symbol = Annotated[str, Meta(pattern=r"\A[a-z]{1,8}[0-9]{1,9}\Z")]
Text = Annotated[str, Meta(max_length=65_536)]
Size = Annotated[int, Meta(ge=-(1 << 48), le=1 << 48)]
Number = float | Literal["Infinity", "-Infinity", "NaN"]
Container = Literal["builtins.tuple", "builtins.list", "builtins.dict", "collections.OrderedDict"]
MetadataKey = Literal["stack_trace", "nn_module_stack", "source_fn_stack", "torch_fn", "custom", "from_node"]


class Strict(Struct, forbid_unknown_fields=True):
    pass


class Union(Strict):
    """Exactly one field is present; torch writes tagged unions as `{"as_int": 4}`."""

    def __post_init__(self) -> None:
        given = [name for name in self.__struct_fields__ if getattr(self, name) is not msgspec.UNSET]
        if len(given) != 1:
            raise ValueError("exactly one alternative is expected")


class Device(Strict):
    type: Literal["cpu", "cuda", "meta"]
    index: Annotated[int, Meta(ge=0, le=255)] | None = None


class Hint(Union):
    as_int: int | msgspec.UnsetType = msgspec.UNSET
    as_bool: bool | msgspec.UnsetType = msgspec.UNSET
    as_float: Number | msgspec.UnsetType = msgspec.UNSET


class SymExpr(Strict):
    expr_str: str
    hint: Hint | None = None


class SymValue(Union):
    as_expr: SymExpr | msgspec.UnsetType = msgspec.UNSET
    as_int: Size | msgspec.UnsetType = msgspec.UNSET
    as_float: Number | msgspec.UnsetType = msgspec.UNSET
    as_bool: bool | msgspec.UnsetType = msgspec.UNSET


class TensorMeta(Strict):
    dtype: Annotated[int, Meta(ge=0, le=64)]
    sizes: list[SymValue]
    requires_grad: bool
    device: Device
    strides: list[SymValue]
    storage_offset: SymValue
    layout: Annotated[int, Meta(ge=0, le=16)]


class NamedValue(Strict):
    name: Name


class SymArgument(Union):
    as_name: Name | msgspec.UnsetType = msgspec.UNSET
    as_int: int | msgspec.UnsetType = msgspec.UNSET
    as_float: Number | msgspec.UnsetType = msgspec.UNSET
    as_bool: bool | msgspec.UnsetType = msgspec.UNSET


class OptionalTensor(Union):
    as_tensor: NamedValue | msgspec.UnsetType = msgspec.UNSET
    as_none: bool | msgspec.UnsetType = msgspec.UNSET


class Complex(Strict):
    real: Number
    imag: Number


class GraphArgument(Strict):
    name: Name
    graph: Graph


class Argument(Union):
    as_none: bool | msgspec.UnsetType = msgspec.UNSET
    as_tensor: NamedValue | msgspec.UnsetType = msgspec.UNSET
    as_tensors: list[NamedValue] | msgspec.UnsetType = msgspec.UNSET
    as_int: int | msgspec.UnsetType = msgspec.UNSET
    as_ints: list[int] | msgspec.UnsetType = msgspec.UNSET
    as_float: Number | msgspec.UnsetType = msgspec.UNSET
    as_floats: list[Number] | msgspec.UnsetType = msgspec.UNSET
    as_string: Text | msgspec.UnsetType = msgspec.UNSET
    as_strings: list[Text] | msgspec.UnsetType = msgspec.UNSET
    as_sym_int: SymArgument | msgspec.UnsetType = msgspec.UNSET
    as_sym_ints: list[SymArgument] | msgspec.UnsetType = msgspec.UNSET
    as_scalar_type: int | msgspec.UnsetType = msgspec.UNSET
    as_memory_format: int | msgspec.UnsetType = msgspec.UNSET
    as_layout: int | msgspec.UnsetType = msgspec.UNSET
    as_device: Device | msgspec.UnsetType = msgspec.UNSET
    as_bool: bool | msgspec.UnsetType = msgspec.UNSET
    as_bools: list[bool] | msgspec.UnsetType = msgspec.UNSET
    as_sym_bool: SymArgument | msgspec.UnsetType = msgspec.UNSET
    as_sym_bools: list[SymArgument] | msgspec.UnsetType = msgspec.UNSET
    as_graph: GraphArgument | msgspec.UnsetType = msgspec.UNSET
    as_optional_tensors: list[OptionalTensor] | msgspec.UnsetType = msgspec.UNSET
    as_optional_tensor: OptionalTensor | msgspec.UnsetType = msgspec.UNSET
    as_sym_float: SymArgument | msgspec.UnsetType = msgspec.UNSET
    as_sym_floats: list[SymArgument] | msgspec.UnsetType = msgspec.UNSET
    as_complex: Complex | msgspec.UnsetType = msgspec.UNSET
    as_nested_tensors: list[list[NamedValue]] | msgspec.UnsetType = msgspec.UNSET
    as_int_lists: list[list[int]] | msgspec.UnsetType = msgspec.UNSET
    as_float_lists: list[list[Number]] | msgspec.UnsetType = msgspec.UNSET


class NamedArgument(Strict):
    name: NameOrNothing
    arg: Argument
    kind: int | None = None


class Node(Strict):
    target: Target
    inputs: list[NamedArgument]
    outputs: list[Argument]
    metadata: dict[MetadataKey, Text]
    is_hop_single_tensor_return: bool | None = None
    name: Name | None = None


class Graph(Strict):
    inputs: list[Argument]
    outputs: list[Argument]
    nodes: list[Node]
    tensor_values: dict[Name, TensorMeta]
    sym_int_values: dict[Name, SymValue]
    sym_bool_values: dict[Name, SymValue]
    is_single_tensor_return: bool = False
    custom_obj_values: dict[Name, None] = {}
    """Empty: a value of any custom class is refused."""
    sym_float_values: dict[Name, SymValue] = {}


class Parameter(Strict):
    arg: NamedValue
    parameter_name: TensorPath


class Buffer(Strict):
    arg: NamedValue
    buffer_name: TensorPath
    persistent: bool | None = None


class TensorConstant(Strict):
    arg: NamedValue
    tensor_constant_name: TensorPath


class UserValue(Strict):
    arg: Argument


class ConstantInput(Strict):
    name: NameOrNothing
    value: Argument


class InputSpec(Union):
    user_input: UserValue | msgspec.UnsetType = msgspec.UNSET
    parameter: Parameter | msgspec.UnsetType = msgspec.UNSET
    buffer: Buffer | msgspec.UnsetType = msgspec.UNSET
    tensor_constant: TensorConstant | msgspec.UnsetType = msgspec.UNSET
    constant_input: ConstantInput | msgspec.UnsetType = msgspec.UNSET


class UserInputMutation(Strict):
    arg: NamedValue
    user_input_name: Name


class OutputSpec(Union):
    user_output: UserValue | msgspec.UnsetType = msgspec.UNSET
    buffer_mutation: Buffer | msgspec.UnsetType = msgspec.UNSET
    user_input_mutation: UserInputMutation | msgspec.UnsetType = msgspec.UNSET


class Signature(Strict):
    input_specs: list[InputSpec]
    output_specs: list[OutputSpec]


class CallSignature(Strict):
    inputs: list[Argument]
    outputs: list[Argument]
    in_spec: str
    out_spec: str
    forward_arg_names: list[Name] | None = None


class CallEntry(Strict):
    fqn: ModulePath
    signature: CallSignature | None = None


class GraphModule(Strict):
    graph: Graph
    signature: Signature
    module_call_graph: list[CallEntry]
    metadata: dict[Literal["custom"], Text] = {}
    treespec_namedtuple_fields: dict[str, None] = {}
    """Empty: named tuples would be looked up by their class's name."""


class Range(Strict):
    min_val: int | None
    max_val: int | None


class SchemaVersion(Strict):
    major: Literal[8]
    minor: int


class ExportedProgram(Strict):
    graph_module: GraphModule
    opset_version: dict[Name, int]
    range_constraints: dict[Symbol, Range]
    schema_version: SchemaVersion
    verifiers: list[Literal["TRAINING", "ATEN"]] = []
    torch_version: Annotated[str, Meta(max_length=64)] = ""
    guards_code: list[str] = []


class TreeSpec(Strict):
    type: Container | None
    context: str | None
    children_spec: list[TreeSpec]


class Payload(Strict):
    path_name: Annotated[str, Meta(pattern=r"\A(weight|tensor)_[0-9]{1,9}\Z")]
    is_param: bool
    use_pickle: bool
    tensor_meta: TensorMeta | None


class PayloadConfig(Strict):
    config: dict[TensorPath, Payload]
