"""The reference of the management API, out of its OpenAPI document: no second description that could differ."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any

from django.http import HttpResponse

from console.api.schema import openapi
from console.pages.answers import page, show
from console.requests import ConsoleRequest

_REF = "#/components/schemas/"
_METHODS = ("get", "post", "put", "patch", "delete")


@dataclass(frozen=True, slots=True)
class Field:
    """One value that is sent or answered."""

    name: str
    kind: str
    is_required: bool
    help: str
    where: str = ""
    """`query`, `header` or `path`; empty for a field of a body."""


@dataclass(frozen=True, slots=True)
class Operation:
    id: str
    method: str
    path: str
    words: str
    parameters: tuple[Field, ...]
    body: tuple[Field, ...]
    answer: tuple[Field, ...]


@page("reference")
def index(request: ConsoleRequest) -> HttpResponse:
    return show(request, "pages/reference.html", nouns=_nouns())


@cache
def _nouns() -> list[tuple[str, list[Operation]]]:
    """Operations by noun, in the order of their addresses."""
    found: dict[str, list[Operation]] = {}
    for path, methods in openapi()["paths"].items():
        for method in _METHODS:
            if method in methods:
                said = methods[method]
                found.setdefault(said["tags"][0], []).append(_operation(method, path, said))
    return sorted(found.items())


def _operation(method: str, path: str, said: dict[str, Any]) -> Operation:
    return Operation(
        id=said["operationId"],
        method=method.upper(),
        path=path,
        words=said.get("description", ""),
        parameters=tuple(_parameter(each) for each in said.get("parameters", [])),
        body=tuple(_fields(_schema(said.get("requestBody", {})))),
        answer=tuple(_fields(_schema(_success(said["responses"])))),
    )


def _success(responses: dict[str, Any]) -> dict[str, Any]:
    """What a request answers that is neither refused nor a rehearsal."""
    code = next((code for code in ("201", "200", "204") if code in responses), "default")
    return responses[code] if isinstance(responses[code], dict) else {}


def _schema(holder: dict[str, Any]) -> dict[str, Any]:
    contents: dict[str, Any] = holder.get("content", {})
    first: dict[str, Any] = next(iter(contents.values()), {})
    schema: dict[str, Any] = first.get("schema", {})
    return _resolved(next(iter(schema["anyOf"])) if "anyOf" in schema else schema)


def _resolved(schema: dict[str, Any]) -> dict[str, Any]:
    """A component by its name; what is nullable or described is wrapped in `allOf` of one."""
    while True:
        if "$ref" in schema:
            schema = openapi()["components"]["schemas"][schema["$ref"].removeprefix(_REF)]
        elif len(schema.get("allOf", [])) == 1:
            schema = schema["allOf"][0]
        else:
            return schema


def _fields(schema: dict[str, Any]) -> Iterable[Field]:
    required = schema.get("required", [])
    for name, said in schema.get("properties", {}).items():
        yield Field(name, _kind(said), name in required, said.get("description", ""))


def _parameter(said: dict[str, Any]) -> Field:
    is_required = bool(said.get("required"))
    return Field(said["name"], _kind(said["schema"]), is_required, said.get("description", ""), said["in"])


def _kind(schema: dict[str, Any]) -> str:
    """`text`, `whole number or null`, `list of text`, `one of a, b`."""
    bare = _resolved(schema)
    values = bare.get("enum")
    if bare.get("type") == "array":
        word = f"list of {_kind(bare.get('items', {}))}"
    elif values:
        word = f"one of {', '.join(str(value) for value in values if value is not None)}"
    else:
        word = _WORDS.get(bare.get("format", ""), "") or _WORDS.get(bare.get("type", ""), "any")
    return f"{word} or null" if schema.get("nullable") or bare.get("nullable") else word


_WORDS = {
    "date-time": "time",
    "date": "day",
    "binary": "file",
    "string": "text",
    "integer": "whole number",
    "number": "number",
    "boolean": "true or false",
    "object": "object",
}
