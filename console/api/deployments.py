"""Deployments: which version of a model runs, how often, on what."""

from __future__ import annotations

from typing import Any

from django.urls import reverse
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from console.api.fields import Body, Document, Moment, Ref, Text, Whole
from console.api.schema import Page, listed, made, shown
from console.api.views import ApiView
from serving.control.catalog.access import access_model_by_id, access_version
from serving.control.fleet import placing
from serving.control.fleet.access import access_deployment, visible_deployments
from serving.control.fleet.actions import MAX_REPLICAS, deploy, scale, stop_deployment, switch_version
from serving.control.fleet.models import Deployment
from serving.control.fleet.states import DEPLOYMENT_STATES
from tenants.access import require
from tenants.roles import Right

MAX_THREADS = 256


class DeploymentDocument(Document):
    moving = ("ready_replicas", "state_reason", "updated_at")

    id = serializers.CharField()
    model = Ref("mdl_")
    model_name = serializers.CharField(source="model.name")
    version = Ref("mv_")
    version_number = serializers.IntegerField(source="version.number")
    replicas = serializers.IntegerField(source="replicas_wanted")
    ready_replicas = serializers.IntegerField(source="ready_count")
    device = serializers.CharField()
    threads = serializers.IntegerField()
    state = serializers.ChoiceField(choices=DEPLOYMENT_STATES)
    state_reason = serializers.CharField()
    created_by = serializers.CharField()
    created_at = Moment()
    updated_at = Moment()


class ScaleBody(Body):
    replicas = Whole(max_value=MAX_REPLICAS)


class SwitchBody(Body):
    version = Ref("mv_")


class DeploymentBody(Body):
    model = Ref("mdl_")
    version = Ref("mv_")
    replicas = Whole(max_value=MAX_REPLICAS, default=1)
    device = Text(max_length=16, default="cpu", help_text="`cpu`, `cuda` or `cuda:N`")
    threads = Whole(min_value=1, max_value=MAX_THREADS, allow_null=True, required=False)


class DeploymentQuery(Page):
    model = serializers.CharField(required=False, max_length=40)
    state = serializers.ChoiceField(choices=DEPLOYMENT_STATES, required=False)


class DeploymentView(ApiView):
    def hold(self, row: Deployment) -> None:
        """Placing first, then the model, then the row: the order of the actions."""
        placing.lock()
        super().hold(row.model)
        super().hold(row)

    def managed(self, deployment_id: str) -> Deployment:
        return access_deployment(self.actor, deployment_id, Right.MANAGE_FLEET)


class Deployments(DeploymentView):
    """`/deployments`"""

    @listed("list_deployments", DeploymentDocument, DeploymentQuery)
    def get(self, request: Request) -> Response:
        """Deployments, newest first."""
        require(self.actor, Right.VIEW_PLATFORM)
        wanted = {name: self.asked[name] for name in ("model", "state") if name in self.asked}
        rows = visible_deployments(self.actor).filter(**wanted).prefetch_related("replicas")
        return self.rows(rows, DeploymentDocument)

    @made("deploy", DeploymentBody, DeploymentDocument)
    def post(self, request: Request) -> Response:
        """Serve a ready version of a model."""
        require(self.actor, Right.MANAGE_FLEET)
        values = self.read(DeploymentBody)
        values["model"] = self.named("model", access_model_by_id, values["model"])
        values["version"] = self.named("version", access_version, values["version"])
        return self.make(lambda: deploy(by=self.actor, **values), DeploymentDocument, address_of)


class OneDeployment(DeploymentView):
    """`/deployments/{id}`"""

    @shown("get_deployment", DeploymentDocument)
    def get(self, request: Request, deployment_id: str) -> Response:
        """One deployment, with how many of its replicas are ready."""
        return self.one(access_deployment(self.actor, deployment_id), DeploymentDocument)


class ScaleDeployment(DeploymentView):
    """`/deployments/{id}/scale`"""

    @made("scale_deployment", ScaleBody, DeploymentDocument, status=200)
    def post(self, request: Request, deployment_id: str) -> Response:
        """Run so many replicas; zero keeps the deployment and stops serving."""
        replicas = self.read(ScaleBody)["replicas"]

        def act(deployment: Deployment) -> Any:
            return scale(by=self.actor, deployment=deployment, replicas=replicas)

        return self.change(lambda: self.managed(deployment_id), act, DeploymentDocument)


class SwitchDeployment(DeploymentView):
    """`/deployments/{id}/switch`"""

    @made("switch_deployment", SwitchBody, DeploymentDocument, status=200)
    def post(self, request: Request, deployment_id: str) -> Response:
        """Serve another version: new replicas become ready beside the old ones, then those drain."""
        version_id = self.read(SwitchBody)["version"]

        def act(deployment: Deployment) -> Any:
            version = self.named("version", access_version, version_id)
            return switch_version(by=self.actor, deployment=deployment, version=version)

        return self.change(lambda: self.managed(deployment_id), act, DeploymentDocument)


class StopDeployment(DeploymentView):
    """`/deployments/{id}/stop`"""

    @made("stop_deployment", None, DeploymentDocument, status=200)
    def post(self, request: Request, deployment_id: str) -> Response:
        """Route nothing new to it; what is in flight finishes."""

        def act(deployment: Deployment) -> Any:
            return stop_deployment(by=self.actor, deployment=deployment)

        return self.change(lambda: self.managed(deployment_id), act, DeploymentDocument)


def address_of(deployment: Deployment) -> str:
    return reverse("api_deployment", args=[deployment.pk])
