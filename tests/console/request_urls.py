"""A small site behind the console's middlewares: what a view sees, and how each error is answered."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.db import OperationalError
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.urls import include, path
from redis.exceptions import ConnectionError

from console.problems import page_not_found, server_error
from console.requests import actor_of, choose_tenant, shell_context
from tenants.errors import Conflict, Invalid, NotAllowed, NotFound
from tenants.models import Membership

RAISED: dict[str, Callable[[], Exception]] = {
    "not-found": lambda: NotFound("API key"),
    "not-allowed": lambda: NotAllowed("This needs the right “manage keys”."),
    "conflict": lambda: Conflict("The key is revoked already."),
    "invalid": lambda: Invalid({"slug": "Reserved.", "": "Odd as a whole.", "a/b~c": "No."}),
    "http404": lambda: Http404("inner detail"),
    "bug": lambda: ZeroDivisionError("inner detail"),
    "database-away": lambda: OperationalError("inner detail"),
    "valkey-away": lambda: ConnectionError("inner detail"),
}


def seen(request: HttpRequest) -> HttpResponse:
    shell = shell_context(request)
    return JsonResponse(
        {
            "actor": actor_of(request).name,
            "request_id": request.request_id,  # type: ignore[attr-defined]
            "tenant": shell["current_tenant"].slug if shell["current_tenant"] else None,
            "tenants": [tenant.slug for tenant in shell["tenants"]],
            "rights": sorted(shell["rights"]),
            "members": Membership.objects.count(),
        }
    )


async def seen_async(request: HttpRequest) -> HttpResponse:
    return JsonResponse({"actor": actor_of(request).name, "members": await Membership.objects.acount()})


def switch(request: HttpRequest, tenant_id: str) -> HttpResponse:
    choose_tenant(request, None if tenant_id == "all" else tenant_id)
    return HttpResponse()


def fail(request: HttpRequest, kind: str) -> HttpResponse:
    raise RAISED[kind]()


async def fail_async(request: HttpRequest, kind: str) -> HttpResponse:
    raise RAISED[kind]()


def hello(request: HttpRequest) -> HttpResponse:
    return HttpResponse("hello")


handler404: Any = page_not_found
handler500: Any = server_error
urlpatterns = [
    path("hello", hello),
    path("seen", seen),
    path("seen-async", seen_async),
    path("switch/<str:tenant_id>", switch),
    path("fail/<str:kind>", fail),
    path("fail-async/<str:kind>", fail_async),
    path("api/v1/fail/<str:kind>", fail),
    path("account/", include("allauth.account.urls")),
]
