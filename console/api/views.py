"""What every view of the API shares: who asks, in which scope, how a body is read, how answers are told."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from http import HTTPStatus
from typing import Any, TypeVar

from django.db import transaction
from django.db.models import Model, QuerySet
from rest_framework import exceptions
from rest_framework.negotiation import BaseContentNegotiation, DefaultContentNegotiation
from rest_framework.parsers import JSONParser
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.serializers import Serializer
from rest_framework.views import APIView

from console.api.authentication import ByKey, SignedIn
from console.api.conditions import refuse_changed, tag_of
from console.api.fields import Document, Query
from console.api.once import once
from console.api.paging import NEWEST, Order, page_of
from console.api.rehearsal import rehearse
from console.api.throttling import PerAccount
from console.problems import Problem, problem_of, respond
from console.requests import actor_of
from tenants.access import scope_of
from tenants.actors import Actor
from tenants.errors import Invalid, NotFound

CODES = {
    400: "bad_request",
    401: "not_signed_in",
    403: "not_allowed",
    405: "method_not_allowed",
    415: "unsupported_media_type",
    429: "too_many_requests",
}
Row = TypeVar("Row", bound=Model)
Shape = type[Serializer]
Shown = type[Document]


class BoundedJson(JSONParser):
    def parse(self, stream: Any, media_type: str | None = None, parser_context: Any = None) -> Any:
        """Raises `ParseError` also for nesting that would exhaust the stack, and for halves of a character."""
        try:
            read = super().parse(stream, media_type, parser_context)
            json.dumps(read, ensure_ascii=False).encode()
        except RecursionError:
            raise exceptions.ParseError("The body is nested too deeply.") from None
        except UnicodeEncodeError:
            raise exceptions.ParseError("The body holds half a character: a lone surrogate.") from None
        return read


class AlwaysJson(BaseContentNegotiation):
    """Whatever is accepted, the answer is JSON: a browser that is shown an address here shows it."""

    def select_parser(self, request: Request, parsers: Any) -> Any:
        return DefaultContentNegotiation().select_parser(request, parsers)

    def select_renderer(self, request: Request, renderers: Any, format_suffix: Any = None) -> Any:
        return renderers[0], renderers[0].media_type


class ApiView(APIView):
    """Base of every view here. The actor is the pages' own: one set of rights for both."""

    content_negotiation_class = AlwaysJson
    authentication_classes = [ByKey, SignedIn]
    parser_classes = [BoundedJson]
    throttle_classes = [PerAccount]
    limits: Mapping[str, str] = {}
    """Rate-limit headers of this answer."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "post" in cls.__dict__:
            cls.post = once(cls.post)  # type: ignore[attr-defined]

    def dispatch(self, request: Any, *args: Any, **kwargs: Any) -> Any:
        self.afterwards: list[Callable[[], Mapping[str, Any]]] = []
        """What a POST sends once its transaction is committed; fields of the answer that tell how it went."""
        with ExitStack() as self.scope:
            return super().dispatch(request, *args, **kwargs)

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """PostgreSQL's texts hold no NUL: asking for one is refused before it is an error there."""
        values = [request._request.path_info, *request.query_params.values()]
        if any("\0" in value for value in values):
            raise exceptions.ParseError("NUL is in no id and no value.")
        super().initial(request, *args, **kwargs)
        # Not the tenant chosen in the console: an address means the same whatever somebody looks at there.
        self.scope.enter_context(scope_of(self.actor))
        self.asked = self._asked(request)
        if not getattr(self._view(request), "takes_body", True) and request.data:
            raise Invalid({"": "This takes no body."})

    def finalize_response(self, request: Request, response: Any, *args: Any, **kwargs: Any) -> Any:
        answer = super().finalize_response(request, response, *args, **kwargs)
        for name, value in {"Cache-Control": "no-store", **self.limits}.items():
            answer.headers[name] = value
        return answer

    @property
    def actor(self) -> Actor:
        return actor_of(self.request._request)

    # ------------------------------------------------------------ reading

    def read(self, body: Shape) -> dict[str, Any]:
        """The body's values. Raises `Invalid` by field, also for fields that nobody knows."""
        return _valid(body(data=self.request.data))

    def named(self, field: str, gate: Callable[[Actor, str], Row], object_id: str) -> Row:
        """What a field of the body names. Raises `Invalid` for the field, not `NotFound` for the address."""
        try:
            return gate(self.actor, object_id)
        except NotFound as error:
            raise Invalid({field: error.message}) from error

    def _asked(self, request: Request) -> dict[str, Any]:
        """What stands behind the question mark. A mistyped `dry_run` must not become the real thing."""
        query: type[Query] = getattr(self._view(request), "query", Query)
        return _valid(query(data=request.query_params.dict()))

    def _view(self, request: Request) -> Any:
        return getattr(self, (request.method or "").lower(), None)

    @property
    def is_rehearsal(self) -> bool:
        return bool(self.asked.get("dry_run"))

    # ------------------------------------------------------------ answering

    def rows(self, rows: QuerySet[Row], document: Shown, order: Order = NEWEST) -> Response:
        """A page of a list."""
        limit, after = self.asked["limit"], self.asked["after"]
        return Response(page_of(rows, lambda row: document(row).data, limit=limit, after=after, order=order))

    def one(self, row: Any, document: Shown, status: int = HTTPStatus.OK, **headers: str) -> Response:
        body = dict(document(row).data)
        return Response(body, status, headers={"ETag": tag_of(body, document.moving), **headers})

    def make(
        self, act: Callable[[], Any], document: Shown, address: Callable[[Any], str] | None = None
    ) -> Response:
        """201 with what was made and its address; or, asked for a rehearsal, what would be."""
        if self.is_rehearsal:
            return Response(rehearse(lambda: (None, dict(document(act()).data))))
        row = act()
        headers = {"Location": address(row)} if address is not None else {}
        return self.one(row, document, HTTPStatus.CREATED, **headers)

    def change(self, fetch: Callable[[], Row], act: Callable[[Row], Any], document: Shown) -> Response:
        """Act on what `fetch` (a gate) gives, if it still is what `If-Match` names; answer what it is then."""

        def both() -> tuple[dict[str, Any] | None, dict[str, Any]]:
            row, before = self._held(fetch, document)
            act(row)
            return before, dict(document(fetch()).data)

        if self.is_rehearsal:
            return Response(rehearse(both))
        with transaction.atomic():
            _, after = both()
        return Response(after, headers={"ETag": tag_of(after, document.moving)})

    def remove(self, fetch: Callable[[], Row], act: Callable[[Row], Any], document: Shown) -> Response:
        """Like `change`, for what is gone afterwards."""

        def both() -> tuple[dict[str, Any] | None, None]:
            row, before = self._held(fetch, document)
            act(row)
            return before, None

        if self.is_rehearsal:
            return Response(rehearse(both))
        with transaction.atomic():
            both()
        return Response(status=HTTPStatus.NO_CONTENT)

    def hold(self, row: Any) -> None:
        """Lock what must not change between the comparison and the act, in the order the act locks."""
        type(row)._base_manager.select_for_update(no_key=True).filter(pk=row.pk).first()

    def _held(self, fetch: Callable[[], Row], document: Shown) -> tuple[Row, dict[str, Any] | None]:
        """The row, and its document where anybody looks at that."""
        row, wanted = fetch(), self.request.headers.get("if-match")
        if wanted is None and not self.is_rehearsal:
            return row, None
        self.hold(row)
        row = fetch()
        before = dict(document(row).data)
        refuse_changed(wanted, tag_of(before, document.moving))
        return row, before

    # ------------------------------------------------------------ errors

    def handle_exception(self, exc: Exception) -> Any:
        """One shape for every error; a bug goes on to where bugs are answered."""
        problem = problem_of(exc) or _of_framework(exc)
        if problem is None:
            raise exc
        answer = respond(self.request._request, problem)
        for name, value in self._headers_of(exc).items():
            answer.headers[name] = value
        return answer

    def _headers_of(self, exc: Exception) -> dict[str, str]:
        if isinstance(exc, exceptions.NotAuthenticated):
            return {"WWW-Authenticate": self.get_authenticate_header(self.request)}
        if isinstance(exc, exceptions.MethodNotAllowed):
            return {"Allow": ", ".join(self.allowed_methods)}
        if isinstance(exc, exceptions.Throttled):
            return {"Retry-After": str(int(getattr(exc, "wait", None) or 1))}
        return {}


def _valid(reader: Serializer) -> dict[str, Any]:
    if reader.is_valid():
        return dict(reader.validated_data)
    raise Invalid(dict(_flat("", reader.errors)))


def _of_framework(exc: Exception) -> Problem | None:
    if not isinstance(exc, exceptions.APIException):
        return None
    status = exc.status_code
    return Problem(status, CODES.get(status, "error"), str(exc.detail), {})


def _flat(prefix: str, errors: Any) -> list[tuple[str, str]]:
    """`{"tolerance": {"min_cosine": ["…"]}}` → `tolerance.min_cosine`."""
    if isinstance(errors, Mapping):
        pairs = [(str(name), said) for name, said in errors.items()]
    elif isinstance(errors, list) and any(isinstance(each, Mapping | list) for each in errors):
        pairs = [(str(index), said) for index, said in enumerate(errors) if said]
    else:
        return [(prefix, " ".join(map(str, errors)))]
    return [
        item
        for name, said in pairs
        for item in _flat("" if name == "non_field_errors" else f"{prefix}.{name}".lstrip("."), said)
    ]
