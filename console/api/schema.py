"""How views say what they take and give, and what the OpenAPI document says for all of them at once."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from inspect import getdoc
from typing import Any, TypeVar

from drf_spectacular.extensions import OpenApiSerializerExtension
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.openapi import AutoSchema
from drf_spectacular.utils import OpenApiResponse, extend_schema, inline_serializer
from rest_framework import serializers

from console.api.fields import Body, Document, Query, Ref, Text
from console.api.paging import DEFAULT_LIMIT, MAX_CURSOR_CHARS, MAX_LIMIT

View = TypeVar("View", bound=Callable[..., Any])
Shape = type[serializers.Serializer]
_OF_MANY = "x-of-many"
"""Marks an operation until the document is complete."""


class Page(Query):
    """Which part of a list."""

    limit = serializers.IntegerField(
        min_value=1, max_value=MAX_LIMIT, default=DEFAULT_LIMIT, help_text="Rows of the page."
    )
    after = serializers.CharField(
        default="", max_length=MAX_CURSOR_CHARS, help_text="`next_cursor` of the page before."
    )


class Rehearsed(Query):
    """Whether to act at all."""

    dry_run = serializers.BooleanField(
        default=False, help_text="Answer what would change, and change nothing."
    )


class Change(Document):
    pointer = serializers.CharField(help_text="JSON pointer of the field.")
    before = serializers.JSONField(allow_null=True)
    after = serializers.JSONField(allow_null=True)


class Rehearsal(Document):
    """The answer to `?dry_run=true`: the object before and after, and every field that differs."""

    dry_run = serializers.BooleanField()
    before = serializers.DictField(allow_null=True)
    after = serializers.DictField(allow_null=True)
    changes = Change(many=True)


class Noun(AutoSchema):
    """Groups operations by noun: every module of this package has one."""

    def get_tags(self) -> list[str]:
        return [type(self.view).__module__.rpartition(".")[2]]


class Closed(OpenApiSerializerExtension):  # type: ignore[no-untyped-call]
    """Bodies take no field beside their own, and the document says so."""

    target_class = Body
    match_subclasses = True

    def map_serializer(self, auto_schema: Any, direction: Any) -> dict[str, Any]:
        found = auto_schema._map_serializer(self.target, direction, bypass_extensions=True)
        for name, field in self.target.fields.items():
            if _needs_words(field):
                found["properties"][name] |= {"minLength": 1, "pattern": r"\S"}
        return {**found, "additionalProperties": False}


def _needs_words(field: serializers.Field) -> bool:
    """Text that may not be blank, and is not told by a form of its own."""
    return isinstance(field, Text | Ref) and not field.allow_blank


def listed(name: str, row: Shape, query: type[Page] = Page) -> Callable[[View], View]:
    """`GET` of a list. `name` is the operation's id, such as `list_tenants`."""
    return _declared(name, query, responses=_page_of(row))


@cache
def _page_of(row: Shape) -> serializers.Serializer:
    return inline_serializer(
        f"{row.__name__.removesuffix('Document')}Page",
        {
            "data": row(many=True),
            "has_more": serializers.BooleanField(),
            "next_cursor": serializers.CharField(allow_null=True),
        },
    )


def shown(name: str, document: Shape | Any, query: type[Query] = Query) -> Callable[[View], View]:
    """`GET` of one object, or of a report."""
    return _declared(name, query, responses=document)


def made(
    name: str,
    body: Shape | dict[str, Shape] | None,
    document: Any,
    query: type[Query] = Query,
    status: int = 201,
) -> Callable[[View], View]:
    """`POST` that makes something."""
    responses: dict[int, Any] = {status: document}
    if issubclass(query, Rehearsed):
        responses[200] = Rehearsal
    return _declared(name, query, request=body, responses=responses)


def done(name: str, document: Shape, body: Shape | None = None) -> Callable[[View], View]:
    """`POST` of a verb on many objects at once: there is no one state that `If-Match` could name."""
    return _declared(name, Query, request=body, responses={200: document}, extensions={_OF_MANY: True})


def changed(
    name: str, body: Shape | None, document: Shape, query: type[Query] = Query
) -> Callable[[View], View]:
    """`PATCH`, `PUT`, or a verb: the object afterwards is the answer."""
    return _declared(name, query, request=body, responses=document)


def gone(name: str, query: type[Query] = Query) -> Callable[[View], View]:
    """`DELETE`"""
    responses: dict[int, Any] = {204: OpenApiResponse(description="It is gone.")}
    if issubclass(query, Rehearsed):
        responses[200] = Rehearsal
    return _declared(name, query, request=None, responses=responses)


def _declared(name: str, query: type[Query], **said: Any) -> Callable[[View], View]:
    def declare(view: View) -> View:
        declared: Any = extend_schema(
            operation_id=name, parameters=[] if query is Query else [query], **said
        )(view)
        declared.query = query
        declared.takes_body = said.get("request") is not None
        return declared

    return declare


@cache
def openapi() -> dict[str, Any]:
    """The document. Made once: it follows from the code alone."""
    found: dict[str, Any] = SchemaGenerator().get_schema(request=None, public=True)  # type: ignore[no-untyped-call]
    return found


# ---------------------------------------------------------------- what holds for every operation

_IF_MATCH = {
    "in": "header",
    "name": "If-Match",
    "schema": {"type": "string", "pattern": r'^(\*|(W/)?"[!#-~]*"( *, *(W/)?"[!#-~]*")*)$'},
    "description": "The `ETag` you read. Refused with 412 when the object is another one by now.",
}
_IDEMPOTENCY = {
    "in": "header",
    "name": "Idempotency-Key",
    "schema": {"type": "string", "pattern": r'^("[!#-~]{1,255}"|[!#-~]{1,255})$'},
    "description": "Asked twice with the same key, it is done once; kept for 24 hours.",
}
_PROBLEM = {
    "description": "Refused, or failed.",
    "content": {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}},
}


def for_every_operation(result: dict[str, Any], generator: Any, **others: Any) -> dict[str, Any]:
    """A hook of drf-spectacular: problems, headers, and the second shape of what may be rehearsed."""
    _tidy(result)
    result["components"]["schemas"].update(_problem_shapes())
    for operations in result["paths"].values():
        for method, operation in operations.items():
            _complete(method, operation)
    return result


def _tidy(said: Any) -> None:
    """Without the words a class has from its base, and without what the generator tells itself."""
    if isinstance(said, list):
        for each in said:
            _tidy(each)
    elif isinstance(said, dict):
        said.pop("x-spec-enum-id", None)
        if said.get("description") in (getdoc(Body), getdoc(Document)):
            del said["description"]
        for each in said.values():
            _tidy(each)


def _complete(method: str, operation: dict[str, Any]) -> None:
    operation["security"] = [way for way in operation["security"] if way]
    operation["responses"]["default"] = _PROBLEM
    parameters = operation.setdefault("parameters", [])
    names = {parameter["name"] for parameter in parameters}
    if method == "post":
        parameters.append(_IDEMPOTENCY)
    is_verb = not operation.pop(_OF_MANY, False) and method == "post" and "201" not in operation["responses"]
    if is_verb or method in ("patch", "put", "delete"):
        parameters.append(_IF_MATCH)
    if "dry_run" in names and method in ("patch", "put"):
        _or_rehearsal(operation["responses"]["200"]["content"]["application/json"])


def _or_rehearsal(content: dict[str, Any]) -> None:
    content["schema"] = {"anyOf": [content["schema"], {"$ref": "#/components/schemas/Rehearsal"}]}


def _problem_shapes() -> dict[str, Any]:
    text: dict[str, Any] = {"type": "string"}
    whole: dict[str, Any] = {"type": "integer"}
    names = ("type", "title", "detail", "instance", "code", "request_id")
    problem = dict.fromkeys(names, text) | {"status": whole}
    complaint = {"type": "object", "properties": {"pointer": text, "detail": text}}
    problem["errors"] = {"type": "array", "items": {**complaint, "required": ["pointer", "detail"]}}
    return {"Problem": {"type": "object", "properties": problem, "required": [*names, "status"]}}
