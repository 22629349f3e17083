"""Every write of the catalog. Keyword-only, atomic, audited, published in the same transaction."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from django.conf import settings
from django.core.files.uploadedfile import UploadedFile
from django.db import transaction
from django.utils import timezone

from serving.contract import EngineName
from serving.control import publish
from serving.control.catalog import artifacts, declared, fallbacks, formats, options, receiving
from serving.control.catalog.fallbacks import set_fallback
from serving.control.catalog.imports import import_roots
from serving.control.catalog.models import (
    Artifact,
    ArtifactFormat,
    Engine,
    Model,
    ModelAlias,
    ModelGrant,
    Version,
)
from serving.control.catalog.refusal import Refused
from serving.control.catalog.transitions import move
from serving.control.catalog.validation import record_validation, request_validation
from serving.control.quotas.pooling import check_pools
from tenants.access import require
from tenants.actors import Actor
from tenants.audit import changed, record
from tenants.errors import Conflict, Invalid
from tenants.models import Tenant
from tenants.roles import Right
from tenants.scoping import all_tenants, tenant_scope
from tenants.staleness import refuse_stale
from tenants.validation import save_valid

EDITABLE = ("description", "is_public", "pool_requests_per_s", "pool_concurrency", "idle_policy")
"""Of a model."""
Options = dict[str, options.OptionValue]

__all__ = [
    "archive_version",
    "create_model",
    "grant_model",
    "record_validation",
    "register_variant",
    "register_version",
    "request_validation",
    "revoke_grant",
    "set_alias",
    "set_fallback",
    "trust_python",
    "update_model",
]

# ---------------------------------------------------------------- models and who may use them


@transaction.atomic
def create_model(
    *, by: Actor, name: str, description: str = "", tenants: Iterable[Tenant] | None = None
) -> Model:
    """`tenants` None lets every tenant use it, now and later; otherwise exactly these."""
    require(by, Right.MANAGE_MODELS)
    model = Model(name=name, description=description, is_public=tenants is None)
    save_valid(model)
    granted = [ModelGrant(model=model, tenant=tenant) for tenant in tenants or ()]
    with all_tenants("one model is granted to several tenants"):
        ModelGrant.objects.bulk_create(granted, ignore_conflicts=True)
    after = {"name": name, "is_public": model.is_public, "tenants": sorted(g.tenant.slug for g in granted)}
    record(by=by, action="model.created", target=model, after=after)
    publish.model(model)
    return model


@transaction.atomic
def update_model(*, by: Actor, model: Model, seen: str = "", **values: Any) -> Model:
    """Change any of `EDITABLE`. Closing a public model leaves it to the tenants that hold a grant.

    Raises `Conflict` when `seen` (`facts_of` the model as the person saw it, marked) is out of date, `Invalid` for a
    pool smaller than what is guaranteed of it.
    """
    require(by, Right.MANAGE_MODELS)
    locked = _locked(model)
    before = facts_of(locked)
    refuse_stale(seen, before)
    old, new = changed(before, {name: values.get(name, before[name]) for name in EDITABLE})
    for name, value in new.items():
        setattr(locked, name, value)
    save_valid(locked)
    check_pools(locked)
    if new:
        record(by=by, action="model.updated", target=locked, before=old, after=new)
        publish.model(locked)
    return locked


def facts_of(model: Model) -> dict[str, Any]:
    """What `update_model` may change."""
    return {name: getattr(model, name) for name in EDITABLE}


@transaction.atomic
def grant_model(*, by: Actor, model: Model, tenant: Tenant) -> ModelGrant:
    """Granting twice is one grant. A grant of a public model counts once the model is closed."""
    require(by, Right.MANAGE_MODELS)
    with tenant_scope(tenant.pk):
        grant, is_new = ModelGrant.objects.get_or_create(model=_locked(model), tenant=tenant)
    if is_new:
        record(by=by, action="model.granted", target=model, after={"tenant": tenant.slug}, tenant=tenant)
        publish.model(model)
    return grant


@transaction.atomic
def revoke_grant(*, by: Actor, model: Model, tenant: Tenant) -> None:
    """Raises `Conflict` when the tenant holds no grant."""
    require(by, Right.MANAGE_MODELS)
    with tenant_scope(tenant.pk):
        deleted, _ = ModelGrant.objects.filter(model=_locked(model), tenant=tenant).delete()
    if not deleted:
        raise Conflict("This tenant holds no grant of the model.")
    record(by=by, action="model.grant_revoked", target=model, before={"tenant": tenant.slug}, tenant=tenant)
    publish.model(model)


# ---------------------------------------------------------------- versions


def register_version(
    *,
    by: Actor,
    model: Model,
    source: Path | UploadedFile | None,
    engine: str,
    options: Mapping[str, Any] | None = None,
    price_micro_per_device_hour: int = 0,
) -> Version:
    """Receive, scan and store an artifact, and give it the model's next number.

    `source` is an upload, or a path inside `import_roots()`; None for the `echo` engine only. Raises
    `Invalid` by field: `source` says exactly what was refused and why. Receiving runs outside the
    transaction: a large upload holds no lock, and an artifact without a version harms nobody.
    """
    require(by, Right.MANAGE_MODELS)
    name = _checked(engine, source, price_micro_per_device_hour)
    chosen = _options(name, options or {})
    received = _receive(source, name, chosen) if source is not None else None
    with transaction.atomic():
        return _registered(
            by,
            model,
            engine=name,
            artifact=_artifact(received, by) if received else None,
            options=received.options if received else chosen,
            price_micro_per_device_hour=price_micro_per_device_hour,
        )


@transaction.atomic
def register_variant(*, by: Actor, version: Version, options: Mapping[str, Any]) -> Version:
    """A new version of the same artifact, engine and price with other options. Raises `Invalid` by option."""
    require(by, Right.MANAGE_MODELS)
    return _registered(
        by,
        version.model,
        engine=version.engine,
        artifact=version.artifact,
        options=_options(cast(EngineName, version.engine), options),
        price_micro_per_device_hour=version.price_micro_per_device_hour,
    )


@transaction.atomic
def trust_python(*, by: Actor, version: Version, reason: str) -> Version:
    """Let a `python` version run: its code gets everything the worker's account can do."""
    require(by, Right.MANAGE_MODELS)
    if not by.is_operator:
        raise Conflict("Only an operator can trust code.")
    if version.engine != Engine.PYTHON:
        raise Conflict("Only versions of the python engine need trust.")
    if not reason.strip():
        raise Invalid({"reason": "Say why this code may run."})
    row = Version.objects.select_for_update(of=("self",)).select_related("model").get(pk=version.pk)
    row.trusted_by, row.trusted_reason, row.trusted_at = by.name, reason.strip(), timezone.now()
    row.save(update_fields=["trusted_by", "trusted_reason", "trusted_at"])
    after = {"trusted_by": by.name, "artifact": row.artifact_id}
    record(by=by, action="version.trusted", target=row, after=after, reason=reason.strip())
    return row


@transaction.atomic
def archive_version(*, by: Actor, version: Version) -> Version:
    """For good. Raises `Conflict` while it is deployed, an alias points to it, or it is a fallback."""
    require(by, Right.MANAGE_MODELS)
    # The model's lock orders this with a deployment that starts at the same moment; it takes the same.
    _locked(version.model)
    row = Version.objects.select_for_update(of=("self",)).select_related("model").get(pk=version.pk)
    if row.deployments.filter(state="active").exists() or row.replicas.filter(is_wanted=True).exists():
        raise Conflict("The version is deployed. Stop the deployment or switch it to another version first.")
    names = list(row.aliases.values_list("alias", flat=True))
    if names:
        raise Conflict(f"The alias {', '.join(names)} points to this version. Move it first.")
    relying = row.fallback_of.exclude(state="archived").select_related("model").first()
    if relying is not None:
        raise Conflict(f"It is the fallback of {relying}. Give that another one first.")
    before = row.state
    move(row, "archived")
    record(by=by, action="version.archived", target=row, before={"state": before}, after={"state": row.state})
    publish.version(row)
    publish.validation(row)
    return row


@transaction.atomic
def set_alias(*, by: Actor, model: Model, alias: str, version: Version) -> ModelAlias:
    """Point `alias` at `version`, atomically. Raises `Invalid` unless it is a ready version of the model."""
    require(by, Right.MANAGE_MODELS)
    locked = _locked(model)
    row = Version.objects.select_for_update(of=("self",)).get(pk=version.pk)
    if row.model_id != locked.pk or not row.is_ready:
        raise Invalid({"version": "An alias points to a ready version of the same model."})
    known = ModelAlias.objects.select_related("version").filter(model=locked, alias=alias).first()
    before = {"version": known.version.number} if known else None
    moved = known or ModelAlias(model=locked, alias=alias)
    moved.version = row
    save_valid(moved)
    record(by=by, action="alias.moved", target=moved, before=before, after={"version": row.number})
    return moved


# ---------------------------------------------------------------- steps of the above


def _locked(model: Model) -> Model:
    """The model's row, locked until the transaction ends: numbers, grants and aliases change one by one."""
    return Model.objects.select_for_update().get(pk=model.pk)


def _registered(by: Actor, model: Model, **values: Any) -> Version:
    """The model's next version, inside the caller's transaction."""
    locked = _locked(model)
    locked.last_number += 1
    locked.save(update_fields=["last_number"])
    values = fallbacks.inherited(locked) | values
    version = Version(model=locked, number=locked.last_number, created_by=by.name, **values)
    save_valid(version)
    record(by=by, action="version.registered", target=version, after=_facts(version))
    return version


def _checked(engine: str, source: object | None, price: int) -> EngineName:
    """What can be said before a single byte is received."""
    if engine not in Engine.values:
        raise Invalid({"engine": f"One of {', '.join(Engine.values)}."})
    name = cast(EngineName, engine)
    if source is None and name != "echo":
        raise Invalid({"source": f"The {name} engine needs an artifact: a file, or a path on the server."})
    if source is not None and name == "echo":
        raise Invalid({"source": "The echo engine takes no artifact."})
    if not 0 <= price < 1 << 62:
        raise Invalid({"price_micro_per_device_hour": "A whole number of micro-units, not negative."})
    return name


def _options(engine: EngineName, given: Mapping[str, Any]) -> Options:
    try:
        return options.complete(engine, given)
    except options.InvalidOptions as error:
        raise Invalid({f"options.{option}": text for option, text in error.errors.items()}) from error


@dataclass(frozen=True, slots=True)
class _Received:
    format: str
    stored: artifacts.Stored
    options: Options
    """As chosen, completed with what the artifact says about itself."""


def _receive(source: Path | UploadedFile, engine: EngineName, chosen: Options) -> _Received:
    """Raises `Invalid` for the field `source`."""
    limit_bytes = settings.MAX_UPLOAD_BYTES
    with artifacts.staging() as home:
        try:
            if isinstance(source, Path):
                content = receiving.copy_path(source, import_roots(), home, limit_bytes)
            else:
                content = receiving.receive_upload(source, home, limit_bytes)
            found = formats.check(content, engine)
            said = declared.encoder_options(content) if found == ArtifactFormat.ENCODER else {}
        except Refused as refused:
            raise Invalid({"source": f"Refused: {refused}."}) from refused
        return _Received(found, artifacts.promote(content, found), said | chosen)


def _artifact(received: _Received, by: Actor) -> Artifact:
    stored = received.stored
    row, _ = Artifact.objects.get_or_create(
        sha256=stored.sha256,
        defaults={
            "format": received.format,
            "size_bytes": stored.size_bytes,
            "file_count": stored.file_count,
            "created_by": by.name,
        },
    )
    return row


def _facts(version: Version) -> dict[str, Any]:
    return {
        "model": version.model.name,
        "number": version.number,
        "engine": version.engine,
        "artifact": version.artifact_id,
        "options": version.options,
        "price_micro_per_device_hour": version.price_micro_per_device_hour,
    }
