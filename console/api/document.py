"""The OpenAPI document: open to everybody, because it says only what this release's code says anyway."""

from __future__ import annotations

from django.http import HttpRequest, JsonResponse
from django.views.decorators.http import require_safe

from console.api.schema import openapi


@require_safe
def document(request: HttpRequest) -> JsonResponse:
    return JsonResponse(openapi(), headers={"Cache-Control": "max-age=300"})
