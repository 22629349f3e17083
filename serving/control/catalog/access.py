"""The gates to models and versions: unknown and not granted are the same `NotFound`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.db.models import Q, QuerySet

from serving.control.catalog.models import Model, ModelGrant, Version
from tenants.access import require
from tenants.actors import Actor
from tenants.errors import NotFound
from tenants.roles import Right
from tenants.scopes import scope_setting
from tenants.scoping import current_scope, tenant_scope


def visible_models(actor: Actor, tenant_id: str | None = None) -> QuerySet[Model]:
    """Models the actor's tenants may use (or one of them, when named); all of them for operators and support."""
    if tenant_id is not None:
        return granted_models([tenant_id] if actor.can_see(tenant_id) else [])
    return Model.objects.all() if actor.sees_platform else granted_models(list(actor.tenant_ids))


def granted_models(tenant_ids: list[str]) -> QuerySet[Model]:
    """Models that at least one of these tenants may use; none for no tenant."""
    if not tenant_ids:
        return Model.objects.none()
    granted = _granted(tenant_ids)
    return Model.objects.filter(Q(is_public=True) | Q(pk__in=granted))


def access_model(actor: Actor, name: str, right: Right = Right.VIEW) -> Model:
    """Raises `NotFound`, or `NotAllowed` when it is visible but the (platform) right is missing."""
    model = visible_models(actor).filter(name=name).first()
    if model is None:
        raise NotFound("model")
    _require(actor, right)
    return model


def access_version_number(actor: Actor, name: str, number: int, right: Right = Right.VIEW) -> Version:
    rows = Version.objects.select_related("model", "artifact").filter(model__in=visible_models(actor))
    version = rows.filter(model__name=name, number=number).first()
    if version is None:
        raise NotFound("version")
    _require(actor, right)
    return version


def visible_versions(actor: Actor) -> QuerySet[Version]:
    """Versions of the models the actor sees, with what a document of one names."""
    related = ("model", "artifact", "fallback_version__model", "fallback_model")
    return Version.objects.select_related(*related).filter(model__in=visible_models(actor))


def access_version(actor: Actor, version_id: str, right: Right = Right.VIEW) -> Version:
    version = visible_versions(actor).filter(pk=version_id).first()
    if version is None:
        raise NotFound("version")
    _require(actor, right)
    return version


def access_model_by_id(actor: Actor, model_id: str, right: Right = Right.VIEW) -> Model:
    model = visible_models(actor).filter(pk=model_id).first()
    if model is None:
        raise NotFound("model")
    _require(actor, right)
    return model


def _require(actor: Actor, right: Right) -> None:
    """Seeing a model is all that viewing needs; every other right over it is the platform's."""
    if right is not Right.VIEW:
        require(actor, right)


def _granted(tenant_ids: list[str]) -> Iterable[Any]:
    """Ids of models: a subquery where the running scope shows these tenants' grants, else read at once."""
    shown = current_scope().tenant_ids if scope_setting() else frozenset()
    if shown is None or shown.issuperset(tenant_ids):
        return ModelGrant.objects.filter(tenant_id__in=tenant_ids).values("model_id")
    with tenant_scope(tenant_ids):
        return list(ModelGrant.objects.values_list("model_id", flat=True))
