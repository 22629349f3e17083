"""Domain error → HTTP response: one table, for pages and for the API.

Pages get `errors/<status>.html`, else `errors/error.html`; paths under /api get RFC 9457 problem details.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import structlog
from asgiref.sync import iscoroutinefunction, markcoroutinefunction
from django.core.exceptions import PermissionDenied
from django.db import InterfaceError, OperationalError
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.middleware.csrf import REASON_NO_CSRF_COOKIE
from django.template import TemplateDoesNotExist
from django.template.loader import render_to_string
from redis.exceptions import ConnectionError as ValkeyAway
from redis.exceptions import TimeoutError as ValkeySilent

from console.again import NotShownLately
from console.api.errors import PreconditionFailed
from console.denials import record_denied
from console.requests import Handler
from tenants.errors import Archived, Conflict, DomainError, Invalid, NotAllowed, NotFound
from tenants.keys import masked

STATUS_OF: dict[type[DomainError], int] = {
    NotFound: 404,
    Archived: 410,
    NotAllowed: 403,
    Conflict: 409,
    Invalid: 422,
    PreconditionFailed: 412,
    NotShownLately: 403,
}
AWAY = (OperationalError, InterfaceError, ValkeyAway, ValkeySilent)
"""The database or Valkey is away: nobody's mistake, and over soon."""
RETRY_AFTER_S = 5
_API_PREFIX = "/api/"


log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Problem:
    """What went wrong, in words that may be shown. `errors` maps fields to sentences."""

    status: int
    code: str
    detail: str
    errors: dict[str, str]
    tenant_id: str | None = None
    """The tenant in which a right is missing."""
    archive: dict[str, Any] | None = None
    """What holds the thing that is no longer here."""

    @property
    def title(self) -> str:
        return HTTPStatus(self.status).phrase


class ProblemMiddleware:
    """Answers the errors a view let through; whatever is no domain error stays Django's to report."""

    sync_capable = async_capable = True

    def __init__(self, get_response: Handler) -> None:
        self.get_response = get_response
        if iscoroutinefunction(get_response):
            markcoroutinefunction(self)

    def __call__(self, request: HttpRequest) -> Any:
        return self.get_response(request)

    def process_exception(self, request: HttpRequest, exception: Exception) -> HttpResponse | None:
        problem = problem_of(exception)
        return None if problem is None else respond(request, problem)


def problem_of(exception: Exception) -> Problem | None:
    """The problem behind an exception; None for a bug, which is answered as a plain 500 elsewhere."""
    if isinstance(exception, DomainError):
        status = next((code for kind, code in STATUS_OF.items() if isinstance(exception, kind)), 400)
        errors = exception.errors if isinstance(exception, Invalid) else {}
        tenant_id = exception.tenant_id if isinstance(exception, NotAllowed) else None
        said = {masked(name): masked(sentence) for name, sentence in errors.items()}
        archive = exception.archive if isinstance(exception, Archived) else None
        return Problem(status, exception.code, masked(exception.message), said, tenant_id, archive)
    if isinstance(exception, Http404):
        return Problem(404, "not_found", "There is nothing here.", {})
    if isinstance(exception, PermissionDenied):
        return Problem(403, "not_allowed", "You may not do this.", {})
    if isinstance(exception, AWAY):
        log.warning("request.service_away", error=str(exception))
        return Problem(503, "unavailable", "A service this page needs is away. Retry in a moment.", {})
    return None


def respond(request: HttpRequest, problem: Problem) -> HttpResponse:
    """The answer; a refusal for want of a right is written down first."""
    if problem.code == NotAllowed.code:
        record_denied(request, problem.detail, problem.tenant_id)
    if request.path.startswith(_API_PREFIX):
        answer = _problem_json(request, problem)
    else:
        answer = HttpResponse(_page(request, problem), status=problem.status)
    if problem.status == HTTPStatus.SERVICE_UNAVAILABLE:
        answer.headers["Retry-After"] = str(RETRY_AFTER_S)
    return answer


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:
    """`handler400` of the URL configuration."""
    return respond(request, Problem(400, "bad_request", "The request could not be read.", {}))


def permission_denied(request: HttpRequest, exception: Exception) -> HttpResponse:
    """`handler403`."""
    return respond(request, Problem(403, "not_allowed", "You may not do this.", {}))


def page_not_found(request: HttpRequest, exception: Exception) -> HttpResponse:
    """`handler404`."""
    return respond(request, Problem(404, "not_found", "There is nothing here.", {}))


def server_error(request: HttpRequest) -> HttpResponse:
    """`handler500`: says only the request's id, by which the log has the rest.

    Also for what a middleware met, which no `process_exception` sees: a database that is away, above all.
    """
    error = sys.exception()
    known = problem_of(error) if isinstance(error, AWAY) else None
    return respond(request, known or Problem(500, "internal_error", "Something went wrong on our side.", {}))


def csrf_failure(request: HttpRequest, reason: str = "") -> HttpResponse:
    """`CSRF_FAILURE_VIEW`. What Django found is in the log: it is an operator who can mend most of it."""
    log.warning("request.csrf_failed", reason=reason, path=request.path)
    return respond(request, Problem(403, "csrf_failed", _csrf_words(reason), {}))


def _csrf_words(reason: str) -> str:
    if reason.startswith(("Origin checking", "Referer checking")):
        return (
            "The form came from another address than this one, or a proxy changed it on the way. Open the page"
            " at its own address; operators name further ones in TIDEGATE_TRUSTED_ORIGINS."
        )
    if reason == REASON_NO_CSRF_COOKIE:
        return "Your browser sent no cookie. Allow cookies of this site, reload the page and retry."
    return "The form is of another session, or too old. Reload the page and retry."


def _problem_json(request: HttpRequest, problem: Problem) -> HttpResponse:
    body: dict[str, Any] = {
        "type": "about:blank",
        "title": problem.title,
        "status": problem.status,
        "detail": problem.detail,
        "instance": masked(request.path),
        "code": problem.code,
        "request_id": _request_id(request),
    }
    if problem.errors:
        body["errors"] = [
            {"pointer": _pointer(name), "detail": said} for name, said in problem.errors.items()
        ]
    if problem.archive is not None:
        body["archive"] = problem.archive
    return JsonResponse(body, status=problem.status, content_type="application/problem+json")


def _page(request: HttpRequest, problem: Problem) -> str:
    context = {"problem": problem, "request_id": _request_id(request)}
    try:
        return render_to_string([f"errors/{problem.status}.html", "errors/error.html"], context, request)
    except TemplateDoesNotExist:
        return f"{problem.status} {problem.title}: {problem.detail}"


def _pointer(field: str) -> str:
    """`options.dtype` → `/options/dtype`, a JSON pointer (RFC 6901)."""
    parts = field.split(".") if field else []
    return "".join(f"/{part.replace('~', '~0').replace('/', '~1')}" for part in parts)


def _request_id(request: HttpRequest) -> str:
    return str(getattr(request, "request_id", ""))
