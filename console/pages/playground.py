"""Try a model: input → answer, with its receipt drawn. The key is typed, used once, and never stored."""

from __future__ import annotations

import http.client
import json
import re
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlsplit

from django import forms
from django.conf import settings
from django.db import connection as database
from django.forms.fields import InvalidJSONInput
from django.http import HttpResponse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.debug import sensitive_post_parameters

from console.pages.answers import FORM, page, show
from console.pages.forms import ActionForm
from console.pages.overview import live_words
from console.pages.snippets import (
    answering_version,
    curl_embeddings,
    curl_infer,
    example_inputs,
    python_openai,
    takes_text,
    text_inputs,
    way_of,
)
from console.requests import ConsoleRequest
from console.templatetags.figures import figure
from serving.control.catalog.access import visible_models
from serving.control.catalog.models import Version
from serving.telemetry.frames import STAGES
from tenants.keys import MAX_TOKEN_CHARS

TIMEOUT_S = 30
MAX_ANSWER_BYTES = 4 << 20
SHOWN_CHARS = 4000
SHOWN_VALUES = 8
RECEIPT = (
    ("x-tidegate-model-version", gettext_lazy("Version")),
    ("x-tidegate-fallback", gettext_lazy("Fallback")),
    ("x-tidegate-batch-size", gettext_lazy("Rows in its batch")),
    ("x-tidegate-batch-close", gettext_lazy("Why the batch started")),
    ("x-tidegate-device-ms", gettext_lazy("Device time")),
    ("x-tidegate-cost", gettext_lazy("Cost")),
    ("x-tidegate-predicted-ms", gettext_lazy("Predicted")),
    ("x-tidegate-interrupted-ms", gettext_lazy("Interrupted by urgent work for")),
    ("x-request-id", gettext_lazy("Request")),
    ("retry-after", gettext_lazy("Retry after")),
)
_UNITS = {
    "x-tidegate-device-ms": "ms",
    "x-tidegate-predicted-ms": "ms",
    "x-tidegate-interrupted-ms": "ms",
    "x-tidegate-cost": "",
    "retry-after": "s",
}
_TIMING = re.compile(r"([a-z_]+);dur=([0-9.]+)")


class InputsField(forms.JSONField):
    """JSON as our gateway would take it; whatever else was typed is an error at the field, not a crash."""

    def to_python(self, value: Any) -> Any:
        try:
            read = super().to_python(value)
            json.dumps(read, ensure_ascii=False, allow_nan=False).encode()
        except (ValueError, RecursionError):  # too deep, numbers too long, halves of a character, NaN
            raise forms.ValidationError(self.error_messages["invalid"], code="invalid") from None
        return read

    def bound_data(self, data: Any, initial: Any) -> Any:
        """Shown again as it was typed."""
        return InvalidJSONInput(data or "")


class TryForm(ActionForm):
    model = forms.ChoiceField(label=gettext_lazy("Model"))
    text = forms.CharField(
        label=gettext_lazy("Text"),
        required=False,
        widget=forms.Textarea(attrs={"rows": 4}),
        initial="Where is my parcel?",
        max_length=20_000,
        help_text=gettext_lazy("One input per line; they may share a batch."),
    )
    inputs = InputsField(
        label=gettext_lazy("Inputs"),
        required=False,
        widget=forms.Textarea(attrs={"rows": 8, "class": "font-monospace", "spellcheck": "false"}),
        help_text=gettext_lazy("The “inputs” of an open-inference request: name, datatype, shape, data."),
    )
    key = forms.CharField(
        label=gettext_lazy("API key"),
        max_length=MAX_TOKEN_CHARS,
        widget=forms.PasswordInput(
            render_value=True, attrs={"autocomplete": "off", "class": "font-monospace"}
        ),
        help_text=gettext_lazy(
            "Used for this one request; never stored, never logged. The request is billed to its tenant."
        ),
    )

    def __init__(self, versions: dict[str, Version | None], *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["model"].choices = [(name, name) for name in versions]  # type: ignore[attr-defined]
        tensors = [n for n, version in versions.items() if not takes_text(version)]
        texts = [name for name in versions if name not in tensors]
        self.fields["text"].only_for = f"model={' '.join(texts)}"  # type: ignore[attr-defined]
        self.fields["inputs"].only_for = f"model={' '.join(tensors)}"  # type: ignore[attr-defined]
        self.fields["inputs"].initial = example_inputs(versions[tensors[0]]) if tensors else None


@dataclass(frozen=True, slots=True)
class Stage:
    name: str
    ms: float
    share: float


@dataclass(frozen=True, slots=True)
class Answer:
    """What the gateway said; `status` 0 when it could not be reached."""

    status: int
    body: str
    stages: list[Stage] = field(default_factory=list)
    total_ms: float | None = None
    receipt: list[tuple[Any, str]] = field(default_factory=list)
    note: str = ""

    @property
    def is_good(self) -> bool:
        return self.status == 200


@sensitive_post_parameters("key")
@page("playground", FORM)
def index(request: ConsoleRequest) -> HttpResponse:
    versions = _versions(request)
    initial = {"model": request.GET.get("model", "")}
    form = TryForm(versions, request.POST or None, initial=initial)
    context: dict[str, Any] = {"form": form, "has_models": bool(versions)}
    if form.is_bound and form.is_valid():
        context |= _try(form.cleaned_data, versions)
    answer = show(request, "pages/playground.html", 422 if form.errors else 200, **context)
    answer.headers["Cache-Control"] = "no-store"
    return answer


def _try(typed: dict[str, Any], versions: dict[str, Version | None]) -> dict[str, Any]:
    name = typed["model"]
    version, lines = versions[name], [line for line in typed["text"].splitlines() if line.strip()] or [""]
    if way_of(version) == "embeddings":
        text = lines if len(lines) > 1 else lines[0]
        answer = _ask("/v1/embeddings", {"model": name, "input": text}, typed["key"])
        curl, python = curl_embeddings(name, text=text), python_openai(name, text)
        return {"answer": answer, "curl": curl, "python": python}
    inputs = text_inputs(version, lines) if version and takes_text(version) else typed["inputs"] or []
    answer = _ask(f"/v2/models/{quote(name)}/infer", {"inputs": inputs}, typed["key"])
    return {"answer": answer, "curl": curl_infer(name, inputs)}


def _ask(path: str, body: dict[str, Any], key: str) -> Answer:
    """One request to our own gateway; where to is a setting, never what somebody typed."""
    target = urlsplit(settings.GATEWAY_URL)
    kind = http.client.HTTPSConnection if target.scheme == "https" else http.client.HTTPConnection
    connection = kind(target.hostname or "127.0.0.1", target.port, timeout=TIMEOUT_S)
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    if not database.in_atomic_block:
        database.close()  # back to the pool: whoever waits for an answer keeps no connection from the others
    try:
        connection.request("POST", path, json.dumps(body), headers)
        response = connection.getresponse()
        return _read(response.status, response.read(MAX_ANSWER_BYTES), dict(response.getheaders()))
    except (OSError, http.client.HTTPException) as error:
        return Answer(
            0,
            "",
            note=_("The gateway at %(url)s did not answer: %(error)s")
            % {"url": settings.GATEWAY_URL, "error": error},
        )
    except ValueError:
        return Answer(0, "", note=_("The key holds characters that no key has."))
    finally:
        connection.close()


def _read(status: int, raw: bytes, headers: dict[str, str]) -> Answer:
    low = {name.lower(): value for name, value in headers.items()}
    timing = {name: float(ms) for name, ms in _TIMING.findall(low.get("server-timing", ""))}
    total = timing.get("total")
    stages = [
        Stage(s, timing[s], timing[s] / total if total else 0) for s in STAGES if s in timing and s != "total"
    ]
    receipt = [(word, _said(name, low[name])) for name, word in RECEIPT if name in low]
    return Answer(status, _shown(raw), stages, total, receipt)


def _said(name: str, value: str) -> str:
    """A header as a page writes it: figures with their unit, reasons in words."""
    if name == "x-tidegate-batch-close":
        words = live_words()
        return f"{words.get(f'close_{value}', value)} ({words.get(f'why_{value}', value)})"
    if name not in _UNITS:
        return value
    try:
        return figure(float(value), _UNITS[name])
    except (ValueError, OverflowError):
        return value


def _shown(raw: bytes) -> str:
    """The answer for reading: long lists of numbers are cut, and say how long they were."""
    try:
        text = json.dumps(_cut(json.loads(raw)), indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        text = raw[:SHOWN_CHARS].decode(errors="replace")
    text = text.encode(errors="replace").decode()  # JSON may hold halves of a character
    return text if len(text) <= SHOWN_CHARS else text[:SHOWN_CHARS] + "\n…"


def _cut(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _cut(item) for name, item in value.items()}
    if isinstance(value, list):
        is_numbers = len(value) > SHOWN_VALUES and all(isinstance(item, int | float) for item in value)
        if is_numbers:
            numbers = ", ".join(f"{item:.4g}" for item in value[:SHOWN_VALUES])
            return f"[{numbers}, … {len(value)} values]"
        return [_cut(item) for item in value[:50]]
    return value


def _versions(request: ConsoleRequest) -> dict[str, Version | None]:
    """Models one may call, each with the version that answers (or the newest, while none does)."""
    scope = request.tenant.pk if request.tenant else None
    models = visible_models(request.actor, scope).prefetch_related("versions", "deployments__version")
    return {model.name: answering_version(model) for model in models}
