"""What people want of the fleet. Each takes effect at once where a live host is known."""

from __future__ import annotations

from django.db import transaction
from django.utils import timezone

from serving.control.catalog.models import Model, Version
from serving.control.fleet import placing
from serving.control.fleet.models import Deployment
from tenants.access import require
from tenants.actors import Actor
from tenants.audit import Target, record
from tenants.errors import Conflict, Invalid, NotFound
from tenants.roles import Right
from tenants.validation import save_valid

MAX_REPLICAS = 256


@transaction.atomic
def deploy(
    *,
    by: Actor,
    model: Model,
    version: Version,
    replicas: int = 1,
    device: str = "cpu",
    threads: int | None = None,
) -> Deployment:
    """Serve `version` with so many replicas on `cpu`, `cuda` or `cuda:N`.

    `threads` None takes the version's own option, which its measurements are of.

    Raises `Conflict` when the version is not ready or the model is deployed already, `Invalid` by field.
    """
    require(by, Right.MANAGE_FLEET)
    placing.lock()
    model = Model.objects.select_for_update(no_key=True).get(pk=model.pk)
    _check_version(model, version)
    _check_count(replicas)
    threads = int(version.options.get("threads", 1)) if threads is None else threads
    if Deployment.objects.filter(model=model, state="active").exists():
        raise Conflict(f"{model.name} is deployed already: scale it, switch its version, or stop it first.")
    deployment = Deployment(
        model=model,
        version=version,
        replicas_wanted=replicas,
        device=_known_device(device),
        threads=threads,
        created_by=by.name,
    )
    save_valid(deployment)
    after = {"version": version.number, "replicas": replicas, "device": device, "threads": threads}
    record(by=by, action="deployment.created", target=_target(deployment), after=after)
    return _take_effect(deployment)


@transaction.atomic
def scale(*, by: Actor, deployment: Deployment, replicas: int) -> Deployment:
    """Zero keeps the deployment and stops serving. Surplus replicas finish what they have, then stop."""
    require(by, Right.MANAGE_FLEET)
    _check_count(replicas)
    fresh = _locked(deployment)
    before = fresh.replicas_wanted
    if before == replicas:
        return fresh
    fresh.replicas_wanted = replicas
    save_valid(fresh)
    record(
        by=by,
        action="deployment.scaled",
        target=_target(fresh),
        before={"replicas": before},
        after={"replicas": replicas},
    )
    return _take_effect(fresh)


@transaction.atomic
def switch_version(*, by: Actor, deployment: Deployment, version: Version) -> Deployment:
    """New replicas become ready beside the old ones; traffic follows; then the old ones drain."""
    require(by, Right.MANAGE_FLEET)
    fresh = _locked(deployment)
    _check_version(fresh.model, version)
    before = fresh.version
    if before.pk == version.pk:
        return fresh
    fresh.version = version
    save_valid(fresh)
    record(
        by=by,
        action="deployment.version_switched",
        target=_target(fresh),
        before={"version": before.number},
        after={"version": version.number},
    )
    return _take_effect(fresh)


@transaction.atomic
def stop_deployment(*, by: Actor, deployment: Deployment) -> Deployment:
    """No new request is routed to it; what is in flight finishes."""
    require(by, Right.MANAGE_FLEET)
    fresh = _locked(deployment)
    fresh.state, fresh.state_reason = "stopped", ""
    save_valid(fresh)
    record(
        by=by,
        action="deployment.stopped",
        target=_target(fresh),
        before={"state": "active"},
        after={"state": "stopped"},
    )
    return _take_effect(fresh)


def _take_effect(deployment: Deployment) -> Deployment:
    placing.step(timezone.now(), changed=deployment)
    deployment.refresh_from_db()
    return deployment


def _locked(deployment: Deployment) -> Deployment:
    """The active deployment as it is now, held in the order of locks that `placing.lock` gives."""
    placing.lock()
    Model.objects.select_for_update(no_key=True).filter(pk=deployment.model_id).first()
    rows = Deployment.objects.select_for_update(of=("self",)).select_related("model", "version")
    fresh = rows.filter(pk=deployment.pk).first()
    if fresh is None:
        raise NotFound("deployment")
    if not fresh.is_active:
        raise Conflict("The deployment is stopped; deploy the model again.")
    return fresh


def _check_version(model: Model, version: Version) -> None:
    # Not the caller's copy: it may have been read before the version was archived.
    fresh = Version.objects.filter(pk=version.pk, model=model).first()
    if fresh is None:
        raise Invalid({"version": f"Not a version of {model.name}."})
    if not fresh.is_ready:
        said = f": {fresh.state_reason}" if fresh.state_reason else ""
        raise Conflict(f"Version {fresh.number} is {fresh.state}{said}. Only ready versions can be deployed.")


def _check_count(replicas: int) -> None:
    if not 0 <= replicas <= MAX_REPLICAS:
        raise Invalid({"replicas": f"Between 0 and {MAX_REPLICAS}."})


def _known_device(device: str) -> str:
    kind, _, index = device.partition(":")
    if device in ("cpu", "cuda") or (
        kind == "cuda" and index.isascii() and index.isdigit() and len(index) < 4
    ):
        return device
    raise Invalid({"device": "Use cpu, cuda, or cuda:N."})


def _target(deployment: Deployment) -> Target:
    return Target("deployment", deployment.pk, deployment.model.name)
