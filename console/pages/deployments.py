"""What should run: deploy, scale, switch the version, stop."""

from __future__ import annotations

from typing import Any

from django import forms
from django.http import HttpResponse
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from console.pages.answers import FORM, FormPage, attempt, go, page
from console.pages.forms import ActionForm, ConfirmForm
from console.requests import ConsoleRequest
from serving.control.catalog.access import access_model
from serving.control.catalog.models import Model, Version
from serving.control.fleet.access import access_deployment
from serving.control.fleet.actions import MAX_REPLICAS, deploy, scale, stop_deployment, switch_version
from tenants.roles import Right


def _version_field() -> forms.ModelChoiceField:
    return forms.ModelChoiceField(
        label=gettext_lazy("Version"),
        queryset=Version.objects.none(),
        empty_label=None,
        help_text=gettext_lazy("Only versions that passed validation."),
    )


class DeployForm(ActionForm):
    units = {"replicas": gettext_lazy("processes"), "threads": gettext_lazy("threads")}

    version = _version_field()
    replicas = forms.IntegerField(
        label=gettext_lazy("Replicas"),
        min_value=1,
        max_value=MAX_REPLICAS,
        initial=1,
        help_text=gettext_lazy(
            "Each is a worker process with the model loaded. On CPU, scale by replicas rather than threads."
        ),
    )
    device = forms.CharField(
        label=gettext_lazy("Device"),
        initial="cpu",
        help_text=gettext_lazy("cpu, cuda (any accelerator of a host) or cuda:N."),
    )
    threads = forms.IntegerField(
        label=gettext_lazy("Threads of each replica"),
        min_value=1,
        max_value=256,
        required=False,
        help_text=gettext_lazy("Empty takes what the version was measured with."),
    )

    def __init__(self, model: Model, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        _offer(self, model)


class ScaleForm(ActionForm):
    units = {"replicas": gettext_lazy("processes")}

    replicas = forms.IntegerField(
        label=gettext_lazy("Replicas"),
        min_value=0,
        max_value=MAX_REPLICAS,
        help_text=gettext_lazy(
            "Fewer: the surplus finishes what it has, then stops. 0 keeps the deployment and answers 503."
        ),
    )


class SwitchForm(ActionForm):
    version = _version_field()

    def __init__(self, model: Model, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        _offer(self, model)


@page("models", FORM)
def create(request: ConsoleRequest, name: str) -> HttpResponse:
    model = access_model(request.actor, name, Right.MANAGE_FLEET)
    form = DeployForm(model, request.POST or None)
    if attempt(form, deploy, by=request.actor, model=model) is not None:
        return go(
            request,
            _address(model),
            _("Deployed. Replicas load, warm up, and take requests once they are ready."),
        )
    title = _("Deploy %(name)s") % {"name": model.name}
    return FormPage(title=title, submit=_("Deploy"), back=_address(model)).show(request, form)


@page("models", FORM)
def change_scale(request: ConsoleRequest, deployment_id: str) -> HttpResponse:
    deployment = access_deployment(request.actor, deployment_id, Right.MANAGE_FLEET)
    form = ScaleForm(request.POST or None, initial={"replicas": deployment.replicas_wanted})
    if attempt(form, scale, by=request.actor, deployment=deployment) is not None:
        return go(request, _address(deployment.model), _("Scaled."))
    title = _("Scale %(name)s") % {"name": deployment.model.name}
    return FormPage(title=title, submit=_("Scale"), back=_address(deployment.model)).show(request, form)


@page("models", FORM)
def change_version(request: ConsoleRequest, deployment_id: str) -> HttpResponse:
    deployment = access_deployment(request.actor, deployment_id, Right.MANAGE_FLEET)
    form = SwitchForm(deployment.model, request.POST or None, initial={"version": deployment.version})
    if attempt(form, switch_version, by=request.actor, deployment=deployment) is not None:
        return go(
            request,
            _address(deployment.model),
            _("Switching: the new replicas become ready first, then the old ones drain."),
        )
    frame = FormPage(
        title=_("Switch the version of %(name)s") % {"name": deployment.model.name},
        submit=_("Switch"),
        back=_address(deployment.model),
        intro=_(
            "New replicas are started beside the old ones; requests follow when they are ready. None is refused."
        ),
    )
    return frame.show(request, form)


@page("models", FORM)
def stop(request: ConsoleRequest, deployment_id: str) -> HttpResponse:
    deployment = access_deployment(request.actor, deployment_id, Right.MANAGE_FLEET)
    form = ConfirmForm(deployment.model.name, request.POST or None)
    if attempt(form, stop_deployment, by=request.actor, deployment=deployment) is not None:
        return go(request, _address(deployment.model), _("Stopping: what is in flight finishes."))
    frame = FormPage(
        title=_("Stop serving %(name)s") % {"name": deployment.model.name},
        submit=_("Stop"),
        back=_address(deployment.model),
        intro=_("New requests are refused with 503 model_not_ready; what is in flight finishes."),
        is_danger=True,
    )
    return frame.show(request, form)


def _offer(form: ActionForm, model: Model) -> None:
    ready = model.versions.filter(state="ready").select_related("model").order_by("-number")
    form.fields["version"].queryset = ready  # type: ignore[attr-defined]


def _address(model: Model) -> str:
    return reverse("model", args=[model.name])
