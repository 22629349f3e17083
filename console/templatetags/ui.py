"""Small parts of every page: icons, states, classes, fields, sortable headers."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from django import forms, template
from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.safestring import SafeString, mark_safe
from django.utils.translation import gettext_lazy as _
from django.utils.translation import pgettext_lazy

register = template.Library()


class Mark(NamedTuple):
    """How a state looks: its colour never speaks alone, an icon and a word stand beside it."""

    colour: str
    icon: str
    word: Any


_GOOD, _RISK, _BAD, _UNKNOWN, _BUSY = "green", "yellow", "red", "secondary", "blue"
STATES: dict[str, Mark] = {
    "active": Mark(_GOOD, "circle-check", _("active")),
    "ready": Mark(_GOOD, "circle-check", _("ready")),
    "running": Mark(_GOOD, "circle-check", _("running")),
    "live": Mark(_GOOD, "circle-check", _("live")),
    "success": Mark(_GOOD, "circle-check", _("success")),
    "registered": Mark(_UNKNOWN, "package", _("registered")),
    "validating": Mark(_BUSY, "loader-2", _("validating")),
    "pending": Mark(_UNKNOWN, "clock", _("pending")),
    "starting": Mark(_BUSY, "loader-2", _("starting")),
    "loading": Mark(_BUSY, "loader-2", _("loading")),
    "warming": Mark(_BUSY, "flame", _("warming")),
    "draining": Mark(_RISK, "droplet-down", _("draining")),
    "stopping": Mark(_RISK, "droplet-down", _("stopping")),
    "suspended": Mark(_RISK, "player-pause", _("suspended")),
    "expired": Mark(_RISK, "clock-off", _("expired")),
    "silent": Mark(_RISK, "plug-connected-x", _("silent")),
    "stopped": Mark(_UNKNOWN, "player-stop", _("stopped")),
    "archived": Mark(_UNKNOWN, "archive", _("archived")),
    "accepted": Mark(_GOOD, "circle-check", _("accepted")),
    "withdrawn": Mark(_UNKNOWN, "ban", _("withdrawn")),
    "revoked": Mark(_UNKNOWN, "ban", _("revoked")),
    "requested": Mark(_UNKNOWN, "clock", _("requested")),
    "waiting": Mark(_UNKNOWN, "clock", _("waiting")),
    "measuring": Mark(_BUSY, "loader-2", _("measuring")),
    "measured": Mark(_UNKNOWN, "circle-check", _("measured")),
    "not_measured": Mark(_UNKNOWN, "ban", _("not measured")),
    "done": Mark(_GOOD, "circle-check", _("done")),
    "cancelled": Mark(_UNKNOWN, "ban", _("cancelled")),
    "switched_off": Mark(_UNKNOWN, "user-off", _("switched off")),
    "whole": Mark(_GOOD, "shield-check", _("whole")),
    "broken": Mark(_BAD, "shield-x", _("broken")),
    "not_verified": Mark(_UNKNOWN, "shield", _("not verified")),
    "paused": Mark(_RISK, "player-pause", _("paused")),
    "failing": Mark(_BAD, "alert-triangle", _("failing")),
    "failed": Mark(_BAD, "alert-triangle", _("failed")),
    "failure": Mark(_BAD, "alert-triangle", _("failure")),
    "firing": Mark(_BAD, "bell-ringing", _("firing")),
    "resolved": Mark(_GOOD, "circle-check", _("resolved")),
    "critical": Mark(_BAD, "alert-octagon", _("critical")),
    "warning": Mark(_RISK, "alert-triangle", _("warning")),
    "info": Mark(_BUSY, "info-circle", _("info")),
    "kept": Mark(_GOOD, "circle-check", _("kept")),
    "at_risk": Mark(_RISK, "alert-circle", _("at risk")),
    "broken_promise": Mark(_BAD, "alert-triangle", pgettext_lazy("promise", "broken")),
    "not_promised": Mark(_UNKNOWN, "help-circle", _("no answers")),
}
ROLES = {
    "owner": _("owner"),
    "admin": _("admin"),
    "developer": _("developer"),
    "viewer": _("viewer"),
    "auditor": _("auditor"),
}
PLATFORM_ROLES = {"": "–", "support": _("support"), "operator": _("operator")}
CLASSES = {"interactive": _("interactive"), "standard": _("standard"), "batch": _("batch"), "idle": _("idle")}

STAGES = {
    "gateway": _("gateway"),
    "queue": _("queue"),
    "batch_wait": _("batch wait"),
    "execute": _("execute"),
    "post": _("post"),
}
EXPORT_FORMATS = {
    "csv": _("CSV, for spreadsheets"),
    "jsonl": _("JSON lines with hashes, for proof"),
    "ocsf": _("JSON lines, OCSF"),
    "ecs": _("JSON lines, Elastic Common Schema"),
    "cadf": _("JSON lines, CADF"),
    "parquet": _("Parquet, for analysis"),
}
BREAKS = {
    "changed": _("The event is not what was hashed when it was written."),
    "missing": _("An event or its link was deleted."),
    "moved": _("The event belongs to another chain."),
    "link_changed": _("The link does not continue the one before it."),
    "not_in_chain": _("An event was inserted past the chain."),
    "cut_off": _("The chain ends before a signed checkpoint."),
    "rewritten": _("The chain's hash is not the one that was signed."),
    "forged": _("A checkpoint's signature is wrong, or of a key that is not trusted."),
    "archive_missing": _("The file of an archive is not there."),
    "archive_changed": _("The file of an archive is not what was signed."),
}


@register.simple_tag
def icon(name: str, extra: str = "") -> SafeString:
    return format_html('<i class="ti ti-{} {}" aria-hidden="true"></i>', name, extra)


@register.simple_tag
def state(name: str) -> SafeString:
    """A state as a badge. A state this page does not know is shown by its own word, in grey."""
    mark = STATES.get(name, Mark(_UNKNOWN, "help-circle", name))
    spin = " tg-spin" if mark.icon == "loader-2" else ""
    return format_html(
        '<span class="badge tg-state bg-{}-lt" data-state="{}"><i class="ti ti-{}{}" aria-hidden="true"></i>{}</span>',
        mark.colour,
        name,
        mark.icon,
        spin,
        mark.word,
    )


@register.simple_tag
def sla_class(name: str) -> SafeString:
    """An SLA class in its fixed hue."""
    return format_html('<span class="tg-class tg-class-{}">{}</span>', name, CLASSES.get(name, name))


@register.filter
def stage(name: str) -> Any:
    """A stage of a request in the reader's language."""
    return STAGES.get(name, name)


@register.simple_tag
def chain_break(what: str) -> Any:
    """How a chain of the audit trail is broken, as a sentence."""
    return BREAKS.get(what, what)


@register.simple_tag
def export_format(name: str) -> Any:
    """What a format of exports is good for, in the reader's language."""
    return EXPORT_FORMATS.get(name, name)


@register.filter
def role(name: str) -> Any:
    """A member's role in the reader's language."""
    return ROLES.get(name, name)


@register.filter
def platform_role(name: str) -> Any:
    return PLATFORM_ROLES.get(name, name)


@register.filter
def kind(field: forms.BoundField) -> str:
    """Which markup a field needs: check, checks, select, file, area or input."""
    match field.field.widget:
        case forms.CheckboxSelectMultiple():
            return "checks"
        case forms.RadioSelect():
            return "radios"
        case forms.CheckboxInput():
            return "check"
        case forms.SelectMultiple() | forms.Select():
            return "select"
        case forms.FileInput():
            return "file"
        case forms.Textarea():
            return "area"
    return "input"


_CONTROL = {"check": "form-check-input", "select": "form-select"}


@register.filter
def control(field: forms.BoundField) -> SafeString:
    """The field's widget in the look of the page, tied to its help and its errors for screen readers."""
    classes = [_CONTROL.get(kind(field), "form-control"), field.field.widget.attrs.get("class", "")]
    described = [f"{field.auto_id}_help"] if field.help_text else []
    attrs: dict[str, Any] = {}
    if field.field.required:
        attrs["aria-required"] = "true"
    if field.errors:
        classes.append("is-invalid")
        described.append(f"{field.auto_id}_error")
        attrs["aria-invalid"] = "true"
    attrs["class"] = " ".join(filter(None, classes))
    if described:
        attrs["aria-describedby"] = " ".join(described)
    return field.as_widget(attrs=attrs)


@register.filter
def unit(field: forms.BoundField) -> str:
    """The unit written behind an input; forms name it in `units`."""
    return getattr(field.form, "units", {}).get(field.name, "")


_UNSORTED = ("selector", "")
_SORTED = {
    "": ("chevron-up", mark_safe(' aria-sort="ascending"')),
    "-": ("chevron-down", mark_safe(' aria-sort="descending"')),
}


@register.simple_tag(takes_context=True)
def sort_head(context: dict[str, Any], name: str, label: str, css: str = "") -> SafeString:
    """A column's header cell that sorts by `name`, keeping every other filter of the address."""
    request: HttpRequest = context["request"]
    current = context["listing"].sort
    target = f"-{name}" if current == name else name
    query = request.GET.copy()
    query["sort"] = target
    query.pop("page", None)
    arrow, order = _SORTED.get(current.replace(name, "", 1), _UNSORTED)
    return format_html(
        '<th class="{}"{}><a class="table-sort-link" href="?{}">{} {}</a></th>',
        css,
        order,
        query.urlencode(),
        label,
        icon(arrow),
    )


@register.filter
def pretty_json(value: Any) -> str:
    return json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False)


@register.filter
def lookup(mapping: dict[str, Any], name: str) -> Any:
    return mapping.get(name)
