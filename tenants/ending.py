"""Keys that end soon: said where people look, while there is time to roll them."""

from __future__ import annotations

from django.db.models import QuerySet
from django.utils import timezone

from tenants.models import EXPIRY_WARNING, ApiKey


def ending_keys() -> QuerySet[ApiKey]:
    """Of the scope the code runs in, the soonest first: those of which `ApiKey.expires_soon` is true."""
    now = timezone.now()
    unreplaced = ApiKey.objects.filter(revoked_at=None, replaced_by=None)
    return unreplaced.filter(expires_at__gt=now, expires_at__lte=now + EXPIRY_WARNING).order_by("expires_at")
