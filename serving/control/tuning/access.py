"""The gate to tuning runs: the platform's own, like the hosts they run on."""

from __future__ import annotations

from django.db.models import QuerySet

from serving.control.catalog.models import Version
from serving.control.tuning.models import TuningRun
from tenants.access import require
from tenants.actors import Actor
from tenants.errors import NotFound
from tenants.roles import Right


def visible_tunings(actor: Actor) -> QuerySet[TuningRun]:
    """Newest first; none for people who do not see the platform."""
    rows = TuningRun.objects.select_related("version__model").prefetch_related("candidates__made")
    return rows if actor.has(Right.VIEW_PLATFORM) else rows.none()


def access_tuning(actor: Actor, tuning_id: str, right: Right = Right.VIEW_PLATFORM) -> TuningRun:
    run = visible_tunings(actor).filter(pk=tuning_id).first()
    if run is None:
        raise NotFound("tuning run")
    require(actor, right)
    return run


def access_tuned_version(actor: Actor, version_id: str, right: Right = Right.VIEW_PLATFORM) -> Version:
    """A version by its id, for those who see tuning runs."""
    rows = Version.objects.select_related("model", "artifact")
    version = rows.filter(pk=version_id).first() if actor.has(Right.VIEW_PLATFORM) else None
    if version is None:
        raise NotFound("version")
    require(actor, right)
    return version
