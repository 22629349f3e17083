"""Nesting is bounded, and found out in linear time whatever the text looks like."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving.errors import InvalidJson
from serving.gateway.json_limits import MAX_DEPTH, check_depth

leaves = st.none() | st.booleans() | st.floats(allow_nan=False) | st.text(alphabet='[]{}"\\/a☃', max_size=12)
values = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
)


def depth_of(value: Any) -> int:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        return 1 + max(map(depth_of, value), default=0)
    return 0


def nest(value: Any, levels: int) -> Any:
    for _ in range(levels):
        value = [value]
    return value


@given(values, st.integers(0, MAX_DEPTH + 3), st.booleans())
@settings(max_examples=300)
def test_a_value_passes_exactly_when_it_is_not_too_deep(value: Any, levels: int, is_ascii: bool) -> None:
    value = nest(value, levels)
    text = json.dumps(value, ensure_ascii=is_ascii).encode()
    if depth_of(value) <= MAX_DEPTH:
        check_depth(text)
    else:
        with pytest.raises(InvalidJson, match="32 levels"):
            check_depth(text)


def test_brackets_in_strings_are_text() -> None:
    check_depth(json.dumps({"input": ['\\" [[[ ' * 50, "\\", '"' * 40, "{" * 99]}).encode())


def test_depth_is_counted_across_the_whole_of_a_large_body() -> None:
    wide = b"[" + b"[]," * 100_000
    check_depth(wide + b"[]]")
    with pytest.raises(InvalidJson):
        check_depth(wide + b"[" * MAX_DEPTH + b"]" * MAX_DEPTH + b"]")


@given(st.binary(max_size=300) | st.text(alphabet='[]{}"\\', max_size=300).map(str.encode))
def test_any_bytes_pass_or_are_refused(noise: bytes) -> None:
    try:
        check_depth(memoryview(noise))
    except InvalidJson as error:
        assert error.numbers == {"max_depth": MAX_DEPTH}
