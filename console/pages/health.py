"""`/healthz`: whether this process answers. It asks nothing of the database: a probe must not depend on it."""

from django.http import HttpRequest, HttpResponse


def healthz(request: HttpRequest) -> HttpResponse:
    return HttpResponse("ok\n", content_type="text/plain", headers={"Cache-Control": "no-store"})
