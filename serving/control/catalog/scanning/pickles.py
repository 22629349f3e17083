"""A pickle read opcode by opcode, never executed: what would its loader import and call?

`torch.load` first tries its own restricted unpickler and, for a `torch.export` archive, silently falls
back to the full one (torch 2.13, `deserialize_torch_artifact`). So what is refused here is everything but
the handful of globals that plain tensors in plain containers need.
"""

from __future__ import annotations

import io
import pickletools
import re

from serving.control.catalog.refusal import Refused

ALLOWED_GLOBALS = frozenset(
    {
        ("collections", "OrderedDict"),
        ("torch", "Size"),
        ("torch", "device"),
        ("torch._utils", "_rebuild_parameter"),
        ("torch._utils", "_rebuild_tensor_v2"),
        *(("torch", f"{kind}Storage") for kind in (
            "Float", "Double", "Half", "BFloat16", "Long", "Int", "Short", "Char", "Byte", "Bool",
            "ComplexFloat", "ComplexDouble", "Untyped",
        )),
        *(("torch", dtype) for dtype in (
            "float32", "float64", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool",
        )),
    }
)  # fmt: skip
ALLOWED_OPCODES = frozenset(
    [
        "PROTO",
        "STOP",
        "MARK",
        "POP",
        "POP_MARK",
        "DUP",
        "NONE",
        "NEWTRUE",
        "NEWFALSE",
        "INT",
        "BININT",
        "BININT1",
        "BININT2",
        "LONG1",
        "BINFLOAT",
        "BINUNICODE",
        "SHORT_BINUNICODE",
        "UNICODE",
        "EMPTY_TUPLE",
        "TUPLE",
        "TUPLE1",
        "TUPLE2",
        "TUPLE3",
        "EMPTY_LIST",
        "LIST",
        "APPEND",
        "APPENDS",
        "EMPTY_DICT",
        "DICT",
        "SETITEM",
        "SETITEMS",
        "PUT",
        "BINPUT",
        "LONG_BINPUT",
        "GET",
        "BINGET",
        "LONG_BINGET",
        "GLOBAL",
        "REDUCE",
        "BINPERSID",
        "FRAME",
        "MEMOIZE",
    ]
)
"""BUILD, INST, OBJ, NEWOBJ, EXT*, STACK_GLOBAL, PERSID are not here: plain tensors need none of them."""
MAX_PICKLE_BYTES = 16 << 20
MAX_OPCODES = 2_000_000
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*")


def scan(raw: bytes, member: str) -> None:
    """Raises `Refused` unless `raw` is one pickle that builds only tensors, numbers, text and containers."""
    if len(raw) > MAX_PICKLE_BYTES:
        raise Refused(f"a pickle of {len(raw)} bytes; at most {MAX_PICKLE_BYTES} are read", member)
    stream = io.BytesIO(raw)
    try:
        for count, (opcode, argument, _) in enumerate(pickletools.genops(stream)):
            if count > MAX_OPCODES:
                raise Refused("a pickle of too many steps", member)
            _check(opcode.name, argument, member)
    except (ValueError, UnicodeDecodeError, IndexError) as error:
        raise Refused(f"a damaged pickle ({error})", member) from error
    if stream.tell() != len(raw):
        raise Refused("bytes after the end of the pickle", member)


def _check(opcode: str, argument: object, member: str) -> None:
    if opcode not in ALLOWED_OPCODES:
        raise Refused(f"a pickle with the step {opcode}, which plain tensors do not need", member)
    if opcode == "GLOBAL":
        module, _, name = str(argument).partition(" ")
        if (module, name) not in ALLOWED_GLOBALS:
            shown = f"{module}.{name}" if _NAME.fullmatch(f"{module}.{name}") else "something unprintable"
            raise Refused(f"a pickle that would call {shown} when it is loaded", member)
