"""How numbers, times and states are written on every page: three significant digits, a unit, `–` for none."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import UTC, datetime

from django import template
from django.utils import timezone
from django.utils.formats import date_format
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

register = template.Library()

NONE = "–"
NARROW_SPACE = "\u202f"
_BYTES = ("B", "KiB", "MiB", "GiB", "TiB")
_SPANS = ((86_400, "day"), (3_600, "hour"), (60, "minute"))
Number = int | float


def three_digits(value: Number) -> str:
    """`0.0123`, `1.23`, `12.3`, `1,230`: three significant digits, never an exponent."""
    if value == 0:
        return "0"
    magnitude = math.floor(math.log10(abs(value)))
    rounded = round(value, 2 - magnitude)
    decimals = max(0, 2 - math.floor(math.log10(abs(rounded))))
    return f"{rounded:,.{min(decimals, 12)}f}"


@register.filter
def figure(value: Number | None, unit: str = "") -> str:
    """`12.3 ms`; `–` for None."""
    if value is None:
        return NONE
    return with_unit(three_digits(value), unit)


@register.filter
def count(value: int | None) -> str:
    """A whole number with its thousands apart."""
    return NONE if value is None else f"{value:,}"


@register.filter
def percent(share: float | None) -> str:
    """A share of 0–1 as `99.3 %`; never rounds a broken promise up to 100 %."""
    if share is None:
        return NONE
    percents = share * 100
    shown = f"{percents:.1f}".replace("-", "−")
    if shown == "100.0":
        shown = "100" if share >= 1 else "99.9"
    return with_unit(shown, "%")


@register.filter
def cosine(value: float | None) -> str:
    """Six decimals: what matters of it is how far it is from one. Never rounded up to one."""
    if value is None:
        return NONE
    shown = f"{value:.6f}"
    return "0.999999" if shown == "1.000000" and value < 1 else shown


@register.filter
def deviation(value: float | None) -> str:
    """An error in three digits; below a hundred-thousandth only that it is below."""
    return "< 0.00001" if value is not None and 0 < value < 1e-5 else figure(value)


@register.filter
def size(size_bytes: int | None) -> str:
    """`90.9 MiB`."""
    if size_bytes is None:
        return NONE
    value, unit = float(size_bytes), 0
    while value >= 1024 and unit < len(_BYTES) - 1:
        value, unit = value / 1024, unit + 1
    return with_unit(three_digits(value), _BYTES[unit])


@register.filter
def money(micro: int | None) -> str:
    """Micro-units as currency units: at least two decimals, more for small sums."""
    if micro is None:
        return NONE
    value = micro / 1e6
    return f"{value:,.2f}" if abs(value) >= 1 or not micro else three_digits(value)


@register.filter
def device_time(device_us: int | None) -> str:
    """Device time in the unit that fits: `840 ms`, `12.3 s`, `1.20 h`."""
    if device_us is None:
        return NONE
    seconds = device_us / 1e6
    for span, unit in ((3600, "h"), (60, "min"), (1, "s")):
        if seconds >= span:
            return with_unit(three_digits(seconds / span), unit)
    return with_unit(three_digits(seconds * 1000), "ms")


@register.filter
def amount(base_units: int | None, resource: str) -> str:
    """What a quota counts, in the unit people read."""
    if resource == "device_us":
        return device_time(base_units)
    return money(base_units) if resource == "cost_micro" else count(base_units)


@register.filter
def duration(milliseconds: float | None) -> str:
    """Targets and deadlines: `50.0 ms`, `2,000 ms`; from ten seconds on `60.0 s`, `1.00 h`."""
    if milliseconds is None or milliseconds < 10_000:
        return figure(milliseconds, "ms")
    return device_time(round(milliseconds * 1000))


@register.filter
def measured(value: float | None, unit: str) -> str | SafeString:
    """A value in a unit of the catalog of metrics, as the pages write it."""
    if value is None:
        return NONE
    if unit in _WRITTEN:
        return _WRITTEN[unit](value)
    if unit in _COUNTED:
        return f"{value:,.4g}"
    return figure(value, {"1/s": "/s", "times": "×"}.get(unit, unit))


@register.filter
def when(moment: datetime | float | None) -> str | SafeString:
    """`3 minutes ago`, with the absolute time and its zone on hover."""
    if moment is None or moment == "":
        return NONE
    at = datetime.fromtimestamp(moment, UTC) if isinstance(moment, int | float) else moment
    local = timezone.localtime(at)
    return format_html(
        '<time datetime="{}" title="{}">{}</time>',
        at.isoformat(),
        f"{date_format(local, 'Y-m-d H:i:s')} {local.tzname()}",
        relative((timezone.now() - at).total_seconds()),
    )


@register.filter
def stamp(moment: datetime | None) -> str:
    """`2026-11-30 16:42:43 UTC`."""
    if moment is None:
        return NONE
    local = timezone.localtime(moment)
    return f"{date_format(local, 'Y-m-d H:i:s')} {local.tzname()}"


def relative(seconds: float) -> str:
    ahead, distance = seconds < 0, abs(seconds)
    for span, unit in _SPANS:
        if distance >= span:
            return _phrase(int(distance // span), unit, ahead)
    return _("in a moment") if ahead else _("just now")


def _phrase(number: int, unit: str, ahead: bool) -> str:
    """Whole sentences per unit and direction, so that every language can order its words."""
    phrases = {
        ("day", True): ngettext("in %(n)d day", "in %(n)d days", number),
        ("hour", True): ngettext("in %(n)d hour", "in %(n)d hours", number),
        ("minute", True): ngettext("in %(n)d minute", "in %(n)d minutes", number),
        ("day", False): ngettext("%(n)d day ago", "%(n)d days ago", number),
        ("hour", False): ngettext("%(n)d hour ago", "%(n)d hours ago", number),
        ("minute", False): ngettext("%(n)d minute ago", "%(n)d minutes ago", number),
    }
    return phrases[unit, ahead] % {"n": number}


def with_unit(text: str, unit: str) -> str:
    return f"{text}{NARROW_SPACE}{unit}" if unit else text


_COUNTED = ("rows", "requests", "replicas", "restarts", "rollouts")
"""Units that the metric's name says already."""
_WRITTEN: dict[str, Callable[[float], str]] = {
    "share": percent,
    "ms": duration,
    "s": lambda value: _whole_span(value),
    "micro": lambda value: money(round(value)),
    "bytes": lambda value: size(round(value)),
}


def _whole_span(seconds: float) -> str:
    """Spans that people chose: in the largest unit that leaves no long rest."""
    for unit_s, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * unit_s or seconds == unit_s:
            return with_unit(f"{seconds / unit_s:.3g}", unit)
    return with_unit(f"{seconds:.3g}", "s")
