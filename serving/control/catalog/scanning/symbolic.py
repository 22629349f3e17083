"""Symbolic sizes and guards of a `torch.export` program, held to a grammar.

torch rebuilds sizes with `sympy.sympify`, which evaluates Python, and compiles guards with `exec`
(torch 2.13: `GraphModuleDeserializer._parse_sym_expr`, `_convert_guards_code_to_fn`). Both strings are
parsed here into a syntax tree, and every node must be one that sizes and guards are made of.
"""

from __future__ import annotations

import ast
import re

from serving.control.catalog.refusal import Refused

MAX_EXPRESSION_CHARS = 8192
MAX_INTEGER = 1 << 63
MAX_EXPONENT = 16

_SYMBOL = re.compile(r"[a-z]{1,8}[0-9]{1,9}")
_KEY = re.compile(r"[A-Za-z0-9_. -]{1,128}")
_DECIMAL = re.compile(r"-?[0-9]{1,40}(\.[0-9]{1,60})?([eE][+-]?[0-9]{1,3})?")
_FUNCTIONS = frozenset(
    [
        "Add",
        "Mul",
        "Pow",
        "Mod",
        "Max",
        "Min",
        "Abs",
        "And",
        "Or",
        "Not",
        "Equality",
        "Unequality",
        "GreaterThan",
        "LessThan",
        "StrictGreaterThan",
        "StrictLessThan",
        "Eq",
        "Ne",
        "Ge",
        "Gt",
        "Le",
        "Lt",
        "Integer",
        "Rational",
        "Float",
        "floor",
        "ceiling",
        "Piecewise",
        "ExprCondPair",
        "FloorDiv",
        "ModularIndexing",
        "Where",
        "PythonMod",
        "CleanDiv",
        "CeilToInt",
        "FloorToInt",
        "CeilDiv",
        "LShift",
        "RShift",
        "PowByNatural",
        "FloatPow",
        "FloatTrueDiv",
        "IntTrueDiv",
        "IsNonOverlappingAndDenseIndicator",
        "TruncToFloat",
        "TruncToInt",
        "RoundToInt",
        "RoundDecimal",
        "ToFloat",
        "Identity",
    ]
)
_ASSUMPTIONS = frozenset({"integer", "positive", "nonnegative", "negative", "nonzero", "real", "finite"})
_ATOMS = frozenset({"true", "false"})
_POWERS = frozenset({"Pow", "PowByNatural", "FloatPow", "LShift", "RShift"})
_GUARD_METHODS = frozenset({"size", "stride", "storage_offset", "dim", "numel"})
_GUARD_OPERATORS = (
    ast.Add, ast.Sub, ast.Mult, ast.FloorDiv, ast.Mod, ast.Div, ast.USub, ast.Not, ast.And, ast.Or,
    ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE,
)  # fmt: skip


def check_size(text: str, member: str) -> None:
    """`text` is the `srepr` of a size: `Mul(Integer(4), Symbol('s7', positive=True, integer=True))`."""
    _Grammar(text, member, "a symbolic size").size(_parsed(text, member, "a symbolic size"))


def check_guard(text: str, member: str) -> None:
    """`text` is a condition on input shapes: `L['x'].size()[0] % 2 == 0`."""
    _Grammar(text, member, "a guard").guard(_parsed(text, member, "a guard"))


def is_symbol(name: str) -> bool:
    return _SYMBOL.fullmatch(name) is not None


def is_key(name: str) -> bool:
    """Names of inputs as they may appear inside guards and their messages: nothing that ends a quote."""
    return _KEY.fullmatch(name) is not None


def _parsed(text: str, member: str, what: str) -> ast.expr:
    if len(text) > MAX_EXPRESSION_CHARS:
        raise Refused(f"{what} of {len(text)} characters", member)
    try:
        return ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise Refused(f"{what} that is not an expression: {text[:80]!r}", member) from None


class _Grammar:
    def __init__(self, text: str, member: str, what: str) -> None:
        self._refusal = Refused(f"{what} that would run code when it is loaded: {text[:80]!r}", member)

    def size(self, node: ast.expr) -> None:
        match node:
            case ast.Name(id=name) if name in _ATOMS:
                return
            case ast.Constant(value=value):
                self._number(value)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                self.size(operand)
            case ast.Call(
                func=ast.Name(id="Symbol"), args=[ast.Constant(value=str(name))], keywords=keywords
            ):
                self._symbol(name, keywords)
            case ast.Call(
                func=ast.Name(id="Float"), args=[ast.Constant(value=str(digits))], keywords=keywords
            ):
                self._float(digits, keywords)
            case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]) if name in _FUNCTIONS:
                self._call(name, arguments)
            case _:
                raise self._refusal

    def guard(self, node: ast.AST) -> None:
        """Arithmetic and comparisons over sizes of inputs."""
        match node:
            case ast.Constant(value=value):
                self._number(value)
            case ast.BoolOp() | ast.BinOp() | ast.UnaryOp() | ast.Compare():
                for child in ast.iter_child_nodes(node):
                    self.guard(child)
            case ast.Subscript(value=ast.Call() as call, slice=ast.Constant(value=int())):
                self.guard(call)
            case ast.Call(func=ast.Attribute(value=source, attr=method), args=[], keywords=[]):
                if method not in _GUARD_METHODS:
                    raise self._refusal
                self._source(source)
            case _ if not isinstance(node, _GUARD_OPERATORS):
                raise self._refusal

    def _source(self, node: ast.AST) -> None:
        """`L['x']`, `L['flat_args'][0]`, `L['x']['key']`."""
        match node:
            case ast.Name(id="L"):
                return
            case ast.Subscript(value=inner, slice=ast.Constant(value=key)):
                if isinstance(key, bool) or not (
                    isinstance(key, int) or (isinstance(key, str) and is_key(key))
                ):
                    raise self._refusal
                self._source(inner)
            case _:
                raise self._refusal

    def _number(self, value: object) -> None:
        """No huge integers: arithmetic on them could occupy a worker for hours."""
        if not isinstance(value, int | float) or abs(value) > MAX_INTEGER:
            raise self._refusal

    def _symbol(self, name: str, keywords: list[ast.keyword]) -> None:
        if not is_symbol(name):
            raise self._refusal
        for keyword in keywords:
            is_flag = isinstance(keyword.value, ast.Constant) and isinstance(keyword.value.value, bool)
            if keyword.arg not in _ASSUMPTIONS or not is_flag:
                raise self._refusal

    def _float(self, digits: str, keywords: list[ast.keyword]) -> None:
        for keyword in keywords:
            match keyword:
                case ast.keyword(arg="precision", value=ast.Constant(value=int(bits))) if bits <= 256:
                    pass
                case _:
                    raise self._refusal
        if not _DECIMAL.fullmatch(digits):
            raise self._refusal

    def _call(self, name: str, arguments: list[ast.expr]) -> None:
        for argument in arguments:
            self.size(argument)
        if name in _POWERS:
            self._power(arguments)

    def _power(self, arguments: list[ast.expr]) -> None:
        """A small constant power such as `s0**2`, never of another power: no number of a million digits."""
        match arguments:
            case [base, exponent] if not any(_is_power(node) for node in ast.walk(base)):
                is_small = _is_small(exponent)
            case _:
                is_small = False
        if not is_small:
            raise self._refusal


def _is_power(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and node.id in _POWERS


def _is_small(exponent: ast.expr) -> bool:
    """`Integer(2)`, `Integer(-1)`, `Rational(1, 2)`."""
    match exponent:
        case ast.Call(func=ast.Name(id="Integer" | "Rational"), args=arguments):
            numbers = [a.operand if isinstance(a, ast.UnaryOp) else a for a in arguments]
            return all(
                isinstance(n, ast.Constant) and isinstance(n.value, int) and n.value <= MAX_EXPONENT
                for n in numbers
            )
        case _:
            return False
