"""JSON of strangers: bounded, strict UTF-8, no duplicate keys, no depth that exhausts the stack."""

from __future__ import annotations

import json
from typing import Any

from serving.control.catalog.refusal import Refused

MAX_JSON_BYTES = 256 << 20


def parse(raw: bytes, member: str) -> Any:
    """Raises `Refused`. Duplicate keys are refused: two readers could take different ones."""
    if len(raw) > MAX_JSON_BYTES:
        raise Refused(f"JSON of {len(raw)} bytes; at most {MAX_JSON_BYTES} are read", member)
    try:
        return json.loads(raw.decode("utf-8"), object_pairs_hook=_unique, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        detail = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise Refused(f"not valid JSON ({detail})", member) from error


def parse_object(raw: bytes, member: str) -> dict[str, Any]:
    document = parse(raw, member)
    if not isinstance(document, dict):
        raise Refused("a JSON object is expected", member)
    return document


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    document = dict(pairs)
    if len(document) != len(pairs):
        raise ValueError("a key appears twice in one object")
    return document


def _refuse_constant(name: str) -> float:
    return float(name.replace("Infinity", "inf"))
