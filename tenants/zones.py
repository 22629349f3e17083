"""Time zones of tenants: in which their days and months begin and end, DST included."""

from __future__ import annotations

from functools import cache
from zoneinfo import ZoneInfo, available_timezones

from django.core.exceptions import ValidationError

UTC_NAME = "UTC"
MAX_NAME_CHARS = 40
_NO_PLACES = frozenset({"Factory", "localtime"})
"""Names that say nothing about which zone is meant: they depend on the machine."""


@cache
def zone_names() -> tuple[str, ...]:
    """Every IANA name this installation knows, sorted."""
    return tuple(sorted(available_timezones() - _NO_PLACES))


def zone(name: str) -> ZoneInfo:
    """The zone of a name that was validated when it was stored. Raises `ZoneInfoNotFoundError` for another."""
    return ZoneInfo(name)


def validate_time_zone(name: str) -> None:
    """Raises Django's `ValidationError` for what is no IANA name."""
    if name not in _known():
        raise ValidationError("Use a name of the IANA time zone database, for example Europe/Berlin or UTC.")


@cache
def _known() -> frozenset[str]:
    return frozenset(zone_names())
