"""The gates to hosts, deployments and replicas: the platform's own, for those who may see the platform."""

from __future__ import annotations

from django.db.models import QuerySet

from serving.control.fleet.models import Deployment, Host, Replica
from tenants.access import require
from tenants.actors import Actor
from tenants.errors import NotFound
from tenants.roles import Right


def visible_hosts(actor: Actor) -> QuerySet[Host]:
    rows = Host.objects.all()
    return rows if actor.has(Right.VIEW_PLATFORM) else rows.none()


def visible_deployments(actor: Actor) -> QuerySet[Deployment]:
    rows = Deployment.objects.select_related("model", "version")
    return rows if actor.has(Right.VIEW_PLATFORM) else rows.none()


def visible_replicas(actor: Actor) -> QuerySet[Replica]:
    rows = Replica.objects.select_related("deployment__model", "version", "host")
    return rows if actor.has(Right.VIEW_PLATFORM) else rows.none()


def access_deployment(actor: Actor, deployment_id: str, right: Right = Right.VIEW_PLATFORM) -> Deployment:
    deployment = visible_deployments(actor).filter(pk=deployment_id).first()
    if deployment is None:
        raise NotFound("deployment")
    require(actor, right)
    return deployment


def served_ids() -> set[str]:
    """Versions, and models, that somebody keeps replicas of; whether these are ready is another question."""
    rows = Deployment.objects.filter(state="active", replicas_wanted__gt=0)
    return {each for pair in rows.values_list("version_id", "model_id") for each in pair}
