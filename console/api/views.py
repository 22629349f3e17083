"""What every view of the API shares: who asks, how a body is read, how errors are told."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, cast

from django.conf import settings
from django.http import HttpResponse
from drf_spectacular.extensions import OpenApiAuthenticationExtension
from rest_framework import exceptions
from rest_framework.authentication import SessionAuthentication
from rest_framework.negotiation import BaseContentNegotiation, DefaultContentNegotiation
from rest_framework.parsers import JSONParser
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.serializers import Serializer
from rest_framework.views import APIView

from console.problems import Problem, problem_of, respond
from console.requests import actor_of
from tenants.actors import Actor
from tenants.errors import Invalid

CODES = {
    400: "bad_request",
    401: "not_signed_in",
    403: "not_allowed",
    405: "method_not_allowed",
    415: "unsupported_media_type",
}


class SignedIn(SessionAuthentication):
    """The console's session, with its CSRF token for everything that writes."""

    def authenticate(self, request: Request) -> tuple[Any, None]:
        """Raises `NotAuthenticated` for whoever is not signed in: nothing here is for strangers."""
        found = super().authenticate(request)
        if found is None:
            raise exceptions.NotAuthenticated("Sign in first.")
        return cast(tuple[Any, None], found)

    def authenticate_header(self, request: Request) -> str:
        """Without it, 401 would be told as 403."""
        return "Session"


class SignedInScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    """What the OpenAPI document says of `SignedIn`; being defined registers it."""

    target_class = SignedIn
    name = "session"

    def get_security_definition(self, auto_schema: Any) -> dict[str, str]:
        return {"type": "apiKey", "in": "cookie", "name": settings.SESSION_COOKIE_NAME}


class BoundedJson(JSONParser):
    def parse(self, stream: Any, media_type: str | None = None, parser_context: Any = None) -> Any:
        """Raises `ParseError` also for nesting that would exhaust the stack."""
        try:
            return super().parse(stream, media_type, parser_context)
        except RecursionError:
            raise exceptions.ParseError("The body is nested too deeply.") from None


class AlwaysJson(BaseContentNegotiation):
    """Whatever is accepted, the answer is JSON: a browser that is shown an address here shows it."""

    def select_parser(self, request: Request, parsers: Any) -> Any:
        return DefaultContentNegotiation().select_parser(request, parsers)

    def select_renderer(self, request: Request, renderers: Any, format_suffix: Any = None) -> Any:
        return renderers[0], renderers[0].media_type


class ApiView(APIView):
    """Base of every view here. The actor is the pages' own: one set of rights for both."""

    content_negotiation_class = AlwaysJson
    authentication_classes = [SignedIn]
    parser_classes = [BoundedJson]

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """PostgreSQL's texts hold no NUL: asking for one is refused before it is an error there."""
        values = [request._request.path_info, *request.query_params.values()]
        if any("\0" in value for value in values):
            raise exceptions.ParseError("NUL is in no id and no value.")
        super().initial(request, *args, **kwargs)

    @property
    def actor(self) -> Actor:
        return actor_of(self.request._request)

    def read(self, serializer: type[Serializer]) -> dict[str, Any]:
        """The body's values. Raises `Invalid` by field, also for fields that nobody knows."""
        given = self.request.data
        reader = serializer(data=given)
        known = set(reader.fields)
        unknown = [name for name in given if name not in known] if isinstance(given, Mapping) else []
        if reader.is_valid() and not unknown:
            return dict(reader.validated_data)
        errors = dict(_flat("", reader.errors)) if not reader.is_valid() else {}
        raise Invalid(errors | dict.fromkeys(unknown, "There is no such field."))

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
        return {}


def created(body: Mapping[str, Any], address: str) -> HttpResponse:
    """201 with the address of what was made."""
    return Response(body, status=HTTPStatus.CREATED, headers={"Location": address})


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
