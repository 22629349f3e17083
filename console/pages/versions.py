"""Versions of a model: registered from an upload or a server path, validated, archived, trusted, named."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from django import forms
from django.http import HttpResponse
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from console.again import ask_who_it_is
from console.pages.answers import FORM, Crumbs, FormPage, attempt, go, page, try_action
from console.pages.forms import ActionForm, ConfirmForm
from console.requests import ConsoleRequest
from serving.contract import EngineName
from serving.control.catalog.access import access_model, access_version_number
from serving.control.catalog.actions import (
    archive_version,
    register_version,
    request_validation,
    set_alias,
    set_fallback,
    trust_python,
)
from serving.control.catalog.fallbacks import candidates
from serving.control.catalog.imports import import_roots
from serving.control.catalog.models import ALIAS_NAME, Engine, Model, Version
from serving.control.catalog.options import BY_ENGINE, Option
from serving.control.fleet.access import served_ids
from tenants.roles import Right

MICRO = 1_000_000
OPTION_WORDS = {
    "task": gettext_lazy("Task"),
    "pooling": gettext_lazy("Pooling"),
    "normalize": gettext_lazy("Normalise"),
    "max_tokens": gettext_lazy("Longest input"),
    "truncate": gettext_lazy("Truncate"),
    "dtype": gettext_lazy("Number format"),
    "quantize": gettext_lazy("Quantise"),
    "execution": gettext_lazy("Execution"),
    "compile": gettext_lazy("Compile"),
    "cuda_graphs": gettext_lazy("CUDA graphs"),
    "max_batch_rows": gettext_lazy("Largest batch"),
    "threads": gettext_lazy("Threads"),
    "sleep_us": gettext_lazy("Pretended execution time"),
    "chunks": gettext_lazy("Parts of a stream"),
    "chunk_us": gettext_lazy("Pretended time before each part"),
    "text": gettext_lazy("Text"),
}
ENGINE_WORDS = {
    Engine.ENCODER: gettext_lazy(
        "Encoder: a transformers text encoder (safetensors directory); embeddings or classes"
    ),
    Engine.TENSOR: gettext_lazy("Tensor: a torch.export program (.pt2); named tensors in and out"),
    Engine.ONNX: gettext_lazy(
        "ONNX: a model of the ONNX standard (.onnx), run by onnxruntime; named tensors in and out"
    ),
    Engine.PYTHON: gettext_lazy("Python: your own code; runs only once an operator has trusted it"),
    Engine.ECHO: gettext_lazy("Echo: answers its input; no artifact, for trying and measuring"),
}


class VersionForm(ActionForm):
    """Source, engine, and the engine's options out of the catalog's table."""

    units = {
        "price": gettext_lazy("per device-hour"),
        "option_max_tokens": gettext_lazy("tokens"),
        "option_max_batch_rows": gettext_lazy("rows"),
        "option_sleep_us": "µs",
        "option_chunks": gettext_lazy("parts"),
        "option_chunk_us": "µs",
    }

    engine = forms.ChoiceField(
        label=gettext_lazy("Engine"),
        choices=list(ENGINE_WORDS.items()),
        widget=forms.RadioSelect,
        initial="encoder",
    )
    upload = forms.FileField(
        label=gettext_lazy("Upload"),
        required=False,
        help_text=gettext_lazy(
            "A .zip or .tar.gz of the model's directory, or one .pt2 or .onnx file. Files that could run code when loaded (.bin, .pt, .pkl) are refused."
        ),
    )
    path = forms.CharField(
        label=gettext_lazy("Or a path on the server"),
        required=False,
        widget=forms.TextInput(attrs={"class": "font-monospace", "spellcheck": "false"}),
    )
    price = forms.DecimalField(
        label=gettext_lazy("Price"),
        min_value=0,
        max_digits=12,
        decimal_places=6,
        initial=0,
        help_text=gettext_lazy("Each request is charged its share of device time at this price."),
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["path"].help_text = _path_help()
        for name in ("upload", "path"):
            self.fields[name].only_for = "engine=encoder tensor onnx python"  # type: ignore[attr-defined]
        for option, engines in _all_options().values():
            field = _field_of(option)
            field.only_for = f"engine={' '.join(engines)}"  # type: ignore[attr-defined]
            self.fields[f"option_{option.name}"] = field
        self.order_fields([*(name for name in self.fields if name != "price"), "price"])

    def values(self) -> dict[str, Any]:
        typed = self.cleaned_data
        engine = typed["engine"]
        source = typed["upload"] or (Path(typed["path"].strip()) if typed["path"].strip() else None)
        return {
            "engine": engine,
            "source": None if engine == Engine.ECHO else source,
            "options": {o.name: typed[f"option_{o.name}"] for o in BY_ENGINE[engine]},
            "price_micro_per_device_hour": int(typed["price"] * MICRO),
        }

    def refuse(self, errors: Any) -> None:
        """The action knows one source and nested options; the form has a field for each."""
        source = "path" if self.cleaned_data.get("path") and not self.cleaned_data.get("upload") else "upload"
        names = {"source": source, "price_micro_per_device_hour": "price"}
        super().refuse({names.get(n, n.replace("options.", "option_")): said for n, said in errors.items()})


class TrustForm(ConfirmForm):
    reason = forms.CharField(
        label=gettext_lazy("Why may this code run?"),
        max_length=500,
        help_text=gettext_lazy(
            "Kept in the audit trail. The code gets everything the worker's account can do."
        ),
    )

    def values(self) -> dict[str, Any]:
        return {"reason": self.cleaned_data["reason"]}


class AliasForm(ActionForm):
    alias = forms.RegexField(
        ALIAS_NAME,
        label=gettext_lazy("Alias"),
        initial="champion",
        help_text=gettext_lazy("Lower-case letters, digits, “-” and “_”. An alias that exists moves here."),
    )


class FallbackForm(ActionForm):
    """Only what would be accepted is offered: ready, with the same inputs and outputs, not leading back."""

    fallback = forms.ChoiceField(
        label=gettext_lazy("What answers instead?"),
        required=False,
        help_text=gettext_lazy(
            "Used when no replica is ready, when all of them keep failing, or when the answer would be late and the SLA profile prefers another one. The answer names what gave it. It needs replicas of its own, and a model serves one version at a time."
        ),
    )

    def __init__(self, version: Version, *args: Any, **kwargs: Any) -> None:
        now = version.fallback_version or version.fallback_model
        super().__init__(*args, initial={"fallback": now.pk if now else ""}, **kwargs)
        models, versions = candidates(version)
        if isinstance(now, Model) and now not in models:
            models.append(now)  # shown as it is, even when it would not be accepted today
        elif isinstance(now, Version) and now not in versions:
            versions.append(now)
        self._targets = {target.pk: target for target in (*models, *versions)}
        field = cast(forms.ChoiceField, self.fields["fallback"])
        if not self._targets:
            field.help_text = _(
                "Nothing else can: no other version is ready that takes and gives the same as this one."
            )
        field.choices = [
            ("", _("Nothing: the request is refused")),
            (_("A model: the version it serves then"), _choices(models)),
            (_("One version"), _choices(versions)),
        ]

    def values(self) -> dict[str, Any]:
        return {"fallback": self._targets.get(self.cleaned_data["fallback"])}


def _choices(targets: Sequence[Model | Version]) -> list[tuple[str, str]]:
    """Those that nothing serves now say so: they answer nothing until somebody deploys them."""
    served = served_ids()
    undeployed = _("%(target)s (not deployed now)")
    return [(t.pk, str(t) if t.pk in served else undeployed % {"target": t}) for t in targets]


@page("models", FORM)
def register(request: ConsoleRequest, name: str) -> HttpResponse:
    model = access_model(request.actor, name, Right.MANAGE_MODELS)
    form = VersionForm(request.POST or None, request.FILES or None)
    version = attempt(form, register_version, by=request.actor, model=model)
    if version is not None:
        return _registered(request, version)
    frame = FormPage(
        title=_("Register a version of %(name)s") % {"name": model.name},
        submit=_("Register and check"),
        back=_address(model),
        crumbs=_crumbs(model),
    )
    return frame.show(request, form)


@page("models", ("POST",))
def validate(request: ConsoleRequest, name: str, number: int) -> HttpResponse:
    version = access_version_number(request.actor, name, number, Right.MANAGE_MODELS)
    said = _("Validation started: the version is loaded, warmed and measured.")
    return try_action(request, _address(version.model), said, request_validation, version=version)


@page("models", FORM)
def archive(request: ConsoleRequest, name: str, number: int) -> HttpResponse:
    version = access_version_number(request.actor, name, number, Right.MANAGE_MODELS)
    form = ConfirmForm(str(version), request.POST or None)
    if attempt(form, archive_version, by=request.actor, version=version) is not None:
        return go(request, _address(version.model), _("The version is archived."))
    frame = FormPage(
        title=_("Archive %(version)s") % {"version": version},
        submit=_("Archive"),
        back=_address(version.model),
        intro=_("For good: an archived version cannot be deployed again. Its usage and measurements stay."),
        is_danger=True,
    )
    return frame.show(request, form)


@page("models", FORM)
def trust(request: ConsoleRequest, name: str, number: int) -> HttpResponse:
    version = access_version_number(request.actor, name, number, Right.MANAGE_MODELS)
    ask_who_it_is(request)
    form = TrustForm(str(version), request.POST or None)
    if attempt(form, trust_python, by=request.actor, version=version) is not None:
        return go(request, _address(version.model), _("The code may run now; validate it next."))
    frame = FormPage(
        title=_("Trust the code of %(version)s") % {"version": version},
        submit=_("Trust this code"),
        back=_address(version.model),
        is_danger=True,
    )
    return frame.show(request, form)


@page("models", FORM)
def alias(request: ConsoleRequest, name: str, number: int) -> HttpResponse:
    version = access_version_number(request.actor, name, number, Right.MANAGE_MODELS)
    form = AliasForm(request.POST or None)
    if attempt(form, set_alias, by=request.actor, model=version.model, version=version) is not None:
        return go(
            request,
            _address(version.model),
            _("The alias points to version %(number)s.") % {"number": number},
        )
    title = _("Name %(version)s") % {"version": version}
    return FormPage(title=title, submit=_("Set alias"), back=_address(version.model)).show(request, form)


@page("models", FORM)
def fallback(request: ConsoleRequest, name: str, number: int) -> HttpResponse:
    version = access_version_number(request.actor, name, number, Right.MANAGE_MODELS)
    form = FallbackForm(version, request.POST or None)
    if attempt(form, set_fallback, by=request.actor, version=version) is not None:
        return go(request, _address(version.model), _("Saved. Gateways follow within a second."))
    title = _("Fallback of %(version)s") % {"version": version}
    return FormPage(title=title, submit=_("Save"), back=_address(version.model)).show(request, form)


def _registered(request: ConsoleRequest, version: Version) -> HttpResponse:
    """Checked and stored; what can be validated at once is, so that one form is enough."""
    said = _("Version %(number)s is registered and being validated.") % {"number": version.number}
    if version.engine == Engine.PYTHON:
        return go(
            request,
            _address(version.model),
            _("Registered. An operator has to trust its code before it runs."),
        )
    return try_action(request, _address(version.model), said, request_validation, version=version)


def _all_options() -> dict[str, tuple[Option, list[EngineName]]]:
    """Every option once, with the engines that have it, in the table's order."""
    found: dict[str, tuple[Option, list[EngineName]]] = {}
    for engine, options in BY_ENGINE.items():
        for option in options:
            found.setdefault(option.name, (option, []))[1].append(engine)
    return found


def _field_of(option: Option) -> forms.Field:
    """Without a default the artifact decides, so "nothing chosen" must be a choice of its own."""
    shared: dict[str, Any] = {
        "label": OPTION_WORDS.get(option.name, option.name),
        "help_text": _(option.help),
        "required": False,
        "initial": option.default,
    }
    undecided = [("", _("as the artifact says"))] if option.default is None else []
    match option.kind:
        case "choice":
            return forms.ChoiceField(choices=[*undecided, *((c, c) for c in option.choices)], **shared)
        case "flag" if undecided:
            choices = [*undecided, ("true", _("yes")), ("false", _("no"))]
            return forms.ChoiceField(choices=choices, **shared)
        case "flag":
            return forms.BooleanField(**shared)
        case "whole":
            return forms.IntegerField(min_value=option.minimum, max_value=option.maximum, **shared)


def _path_help() -> str:
    roots = ", ".join(str(root) for root in import_roots())
    if not roots:
        return _("No directory is open for this: set TIDEGATE_IMPORT_ROOTS.")
    return _("Inside one of: %(roots)s") % {"roots": roots}


def _address(model: Model) -> str:
    return reverse("model", args=[model.name])


def _crumbs(model: Model) -> Crumbs:
    return [(_("Models"), reverse("models")), (model.name, _address(model))]
