"""`tidegate`: the management API on the command line. Every command is a request or two."""

from __future__ import annotations

import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any

import typer

from tidegate import documents
from tidegate.api import Tidegate
from tidegate.cli import output, signin
from tidegate.errors import Refused, TidegateError

MICRO = 1_000_000
POLL_S = 1.0
app = typer.Typer(no_args_is_help=True, add_completion=False, help=__doc__, pretty_exceptions_enable=False)
tenants = typer.Typer(no_args_is_help=True, help="Tenants: list, show, create, set, suspend, resume.")
keys = typer.Typer(no_args_is_help=True, help="API keys of a tenant: list, create, roll, revoke.")
models = typer.Typer(no_args_is_help=True, help="Models and their versions.")
deployments = typer.Typer(no_args_is_help=True, help="What runs: list, create, scale, switch, stop.")
audit = typer.Typer(no_args_is_help=True, help="The audit trail.")
for name, group in (("tenants", tenants), ("keys", keys), ("models", models)):
    app.add_typer(group, name=name)
app.add_typer(deployments, name="deployments")
app.add_typer(audit, name="audit")

Url = Annotated[str, typer.Option("--url", envvar="TIDEGATE_CONSOLE_URL", help="Address of the console.")]
Key = Annotated[
    str | None,
    typer.Option("--key", envvar="TIDEGATE_API_KEY", help="An API key; else the session of `login`."),
]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON document a line.")]


class Chosen:
    """What the options before the command say."""

    url = "http://127.0.0.1:8000"
    key: str | None = None
    as_json = False


def main() -> None:
    """Exit status 1 with the console's words when it refuses."""
    try:
        app()
    except TidegateError as error:
        typer.echo(f"tidegate: {error}", err=True)
        if isinstance(error, Refused) and error.request_id:
            typer.echo(f"request {error.request_id}", err=True)
        sys.exit(1)


@app.callback()
def choose(url: Url = Chosen.url, key: Key = None, as_json: AsJson = False) -> None:
    Chosen.url, Chosen.key, Chosen.as_json = url.rstrip("/"), key, as_json


def console() -> Tidegate:
    cookies = {} if Chosen.key else signin.remembered(Chosen.url)
    return Tidegate(Chosen.url, Chosen.key, cookies)


def show(document: Any) -> None:
    output.one(document, Chosen.as_json)


def show_all(rows: Any, *columns: str) -> None:
    output.rows(rows, columns, Chosen.as_json)


# ---------------------------------------------------------------- who asks


@app.command()
def login(
    user: Annotated[str, typer.Option(prompt=True, help="User name or e-mail address.")],
    password: Annotated[str, typer.Option(prompt=True, hide_input=True)],
) -> None:
    """Sign in as a person, for what no API key may do."""

    def ask_code() -> str:
        return str(typer.prompt("Code of your authenticator"))

    signin.remember(Chosen.url, signin.sign_in(Chosen.url, user, password, ask_code))
    typer.echo(f"Signed in at {Chosen.url}.")


@app.command()
def logout() -> None:
    """Forget the session on this machine."""
    signin.forget()


@app.command()
def me() -> None:
    """Who asks, and what they may do."""
    with console() as tidegate:
        show(tidegate.me())


# ---------------------------------------------------------------- tenants

Slug = Annotated[str, typer.Argument(help="The tenant's slug, or its id.")]
Concurrency = Annotated[int | None, typer.Option(help="Requests in flight at once.")]
Rate = Annotated[float | None, typer.Option(help="Requests per second.")]
Zone = Annotated[str | None, typer.Option(help="IANA name, where days begin.")]


@tenants.command("list")
def tenants_list() -> None:
    """Tenants you may see."""
    with console() as tidegate:
        show_all(
            tidegate.tenants.list(), "id", "slug", "name", "is_active", "requests_per_s", "max_concurrency"
        )


@tenants.command("show")
def tenants_show(tenant: Slug) -> None:
    """One tenant."""
    with console() as tidegate:
        show(tidegate.tenants.named(tenant))


@tenants.command("create")
def tenants_create(
    slug: str,
    name: str,
    max_concurrency: Concurrency = None,
    requests_per_s: Rate = None,
    time_zone: Zone = None,
) -> None:
    """Make a tenant."""
    given = {"max_concurrency": max_concurrency, "requests_per_s": requests_per_s, "time_zone": time_zone}
    with console() as tidegate:
        show(tidegate.tenants.create(slug, name, **_given(given)))


@tenants.command("set")
def tenants_set(
    tenant: Slug,
    name: Annotated[str | None, typer.Option()] = None,
    max_concurrency: Concurrency = None,
    requests_per_s: Rate = None,
    time_zone: Zone = None,
    dry_run: Annotated[bool, typer.Option(help="Only show what would change.")] = False,
) -> None:
    """Change a tenant."""
    given = {"name": name, "max_concurrency": max_concurrency, "requests_per_s": requests_per_s}
    values = _given({**given, "time_zone": time_zone})
    with console() as tidegate:
        tenant_id = tidegate.tenants.named(tenant)["id"]
        if dry_run:
            changes = tidegate.tenants.rehearse(tenant_id, **values)["changes"]
            show_all(changes, "pointer", "before", "after")
        else:
            show(tidegate.tenants.change(tenant_id, **values))


@tenants.command("suspend")
def tenants_suspend(tenant: Slug, reason: Annotated[str, typer.Option()] = "") -> None:
    """Refuse every request of a tenant until it is resumed."""
    with console() as tidegate:
        show(tidegate.tenants.suspend(tidegate.tenants.named(tenant)["id"], reason))


@tenants.command("resume")
def tenants_resume(tenant: Slug) -> None:
    """Let its requests in again."""
    with console() as tidegate:
        show(tidegate.tenants.resume(tidegate.tenants.named(tenant)["id"]))


# ---------------------------------------------------------------- keys


@keys.command("list")
def keys_list(
    tenant: Annotated[str | None, typer.Argument(help="Slug; every tenant by default.")] = None,
) -> None:
    """Keys, without their secrets."""
    with console() as tidegate:
        tenant_id = tidegate.tenants.named(tenant)["id"] if tenant else None
        show_all(tidegate.keys.list(tenant_id), "id", "name", "display", "scopes", "state", "last_used_at")


@keys.command("create")
def keys_create(
    tenant: Slug,
    name: str,
    scope: Annotated[list[str] | None, typer.Option(help="Repeatable; infer by default.")] = None,
    model: Annotated[list[str] | None, typer.Option(help="Repeatable; every model by default.")] = None,
    days: Annotated[int | None, typer.Option(min=1, help="Days until it expires.")] = None,
) -> None:
    """Make a key. Its token is printed once, and kept nowhere."""
    expires_at = (datetime.now(UTC) + timedelta(days=days)).isoformat() if days else None
    with console() as tidegate:
        tenant_id = tidegate.tenants.named(tenant)["id"]
        show(
            tidegate.keys.create(
                tenant_id, name, scopes=scope or ["infer"], allowed_models=model, expires_at=expires_at
            )
        )


@keys.command("roll")
def keys_roll(
    key_id: str,
    overlap_hours: Annotated[int, typer.Option(min=0, help="How long the old key still works.")] = 24,
    days: Annotated[int | None, typer.Option(min=1, help="Days until the new key expires.")] = None,
) -> None:
    """Make a key in another's place. Its token is printed once, and kept nowhere."""
    expires_at = (datetime.now(UTC) + timedelta(days=days)).isoformat() if days else None
    with console() as tidegate:
        show(tidegate.keys.roll(key_id, overlap_s=overlap_hours * 3600, expires_at=expires_at))


@keys.command("revoke")
def keys_revoke(key_id: str) -> None:
    """Refuse a key everywhere within a second, for ever."""
    with console() as tidegate:
        show(tidegate.keys.revoke(key_id))


# ---------------------------------------------------------------- models and versions

ModelName = Annotated[str, typer.Argument(help="The model's name.")]
Number = Annotated[int, typer.Argument(help="The version's number.")]


@models.command("list")
def models_list() -> None:
    """Models you may use."""
    with console() as tidegate:
        show_all(tidegate.models.list(), "id", "name", "is_public", "description")


@models.command("create")
def models_create(
    name: str,
    description: Annotated[str, typer.Option()] = "",
    tenant: Annotated[list[str] | None, typer.Option(help="Slug; repeatable. Everybody by default.")] = None,
) -> None:
    """Make a model; then register a version of it."""
    with console() as tidegate:
        ids = [tidegate.tenants.named(slug)["id"] for slug in tenant] if tenant else None
        show(tidegate.models.create(name, description=description, tenants=ids))


@models.command("versions")
def models_versions(model: ModelName) -> None:
    """Versions of a model."""
    with console() as tidegate:
        found = tidegate.models.versions(tidegate.models.named(model)["id"])
        show_all(found, "id", "number", "engine", "state", "state_reason", "created_by", "created_at")


@models.command("register")
def models_register(
    model: ModelName,
    engine: Annotated[str, typer.Option(help="encoder, tensor, onnx, python or echo.")],
    file: Annotated[
        Path | None, typer.Option(exists=True, dir_okay=False, help="Sent to the console.")
    ] = None,
    path: Annotated[str | None, typer.Option(help="On the server.")] = None,
    option: Annotated[list[str] | None, typer.Option(help="NAME=VALUE; repeatable.")] = None,
    price: Annotated[float, typer.Option(min=0, help="Per device-hour.")] = 0.0,
    validate: Annotated[bool, typer.Option(help="Start validation at once.")] = True,
) -> None:
    """Register a version from a file or a path, and validate it."""
    options = dict(_pair(text) for text in option or [])
    with console() as tidegate:
        version = tidegate.models.register(
            tidegate.models.named(model)["id"],
            engine=engine,
            file=file,
            path=path,
            options=options,
            price_micro_per_device_hour=round(price * MICRO),
        )
        show(tidegate.versions.validate(version["id"]) if validate else version)


@models.command("validate")
def models_validate(model: ModelName, number: Number) -> None:
    """Load, warm and measure a version."""
    with console() as tidegate:
        show(tidegate.versions.validate(_version(tidegate, model, number)))


@models.command("archive")
def models_archive(model: ModelName, number: Number) -> None:
    """Put a version away, for good."""
    with console() as tidegate:
        show(tidegate.versions.archive(_version(tidegate, model, number)))


# ---------------------------------------------------------------- deployments


@deployments.command("list")
def deployments_list() -> None:
    """What runs, and what ran."""
    columns = ("id", "model_name", "version_number", "replicas", "ready_replicas", "device", "state")
    with console() as tidegate:
        show_all(tidegate.deployments.list(), *columns)


@deployments.command("create")
def deployments_create(
    model: ModelName,
    number: Number,
    replicas: Annotated[int, typer.Option(min=0)] = 1,
    device: Annotated[str, typer.Option(help="cpu, cuda or cuda:N.")] = "cpu",
) -> None:
    """Serve a version of a model."""
    with console() as tidegate:
        version_id = _version(tidegate, model, number)
        model_id = tidegate.models.named(model)["id"]
        show(tidegate.deployments.create(model_id, version_id, replicas=replicas, device=device))


@deployments.command("scale")
def deployments_scale(model: ModelName, replicas: Annotated[int, typer.Argument(min=0)]) -> None:
    """Run so many replicas."""
    with console() as tidegate:
        show(tidegate.deployments.scale(_deployment(tidegate, model), replicas))


@deployments.command("switch")
def deployments_switch(model: ModelName, number: Number) -> None:
    """Serve another version."""
    with console() as tidegate:
        version_id = _version(tidegate, model, number)
        show(tidegate.deployments.switch(_deployment(tidegate, model), version_id))


@deployments.command("stop")
def deployments_stop(model: ModelName) -> None:
    """Serve the model no more."""
    with console() as tidegate:
        show(tidegate.deployments.stop(_deployment(tidegate, model)))


# ---------------------------------------------------------------- evidence

Since = Annotated[str | None, typer.Option(help="From: 2026-03-01, or a time with its offset.")]
Until = Annotated[str | None, typer.Option(help="To: a day, included, or a time.")]


@app.command()
def usage(
    since: Annotated[str | None, typer.Option(help="First day, such as 2026-03-01.")] = None,
    until: Annotated[str | None, typer.Option(help="Last day, included.")] = None,
    by: Annotated[
        str, typer.Option(help="day, tenant, key, model, version, class; several with commas.")
    ] = "day",
) -> None:
    """What was used, and what it cost."""
    groups = by.split(",")
    with console() as tidegate:
        found = tidegate.usage(since=since, until=until, group_by=groups)
    named = {"tenant": "tenant_name", "key": "key_name", "version": "version_id", "class": "sla_class"}
    columns = [named.get(group, group) for group in groups]
    show_all(found["data"], *columns, "requests", "failed", "tokens", "device_us", "cost_micro")


@audit.command("events")
def audit_events(
    q: Annotated[str | None, typer.Option(help="Words that all occur.")] = None,
    action: Annotated[str | None, typer.Option(help="Such as key.created.")] = None,
    since: Since = None,
    until: Until = None,
) -> None:
    """Who did what, newest first, a page in memory at a time with --json."""
    with console() as tidegate:
        events = tidegate.audit.events(q=q, action=action, since=since, until=until)
        show_all(events, "at", "actor_name", "action", "target_type", "target_name", "outcome")


@audit.command("export")
def audit_export(
    to: Annotated[Path, typer.Argument(dir_okay=False, help="The file.")],
    format: Annotated[str, typer.Option(help="csv, jsonl, ocsf, ecs, cadf or parquet.")] = "jsonl",
    tenant: Annotated[str | None, typer.Option(help="Slug or id; a key's own, else the platform.")] = None,
    action: Annotated[str | None, typer.Option(help="Such as key.created.")] = None,
    since: Since = None,
    until: Until = None,
) -> None:
    """Have events written to a file, fetch it, and compare it with its digest."""
    filters = _given({"action": action, "since": since, "until": until})
    with console() as tidegate:
        tenant_id = _tenant_to_export(tidegate, tenant)
        export = tidegate.audit.request_export(format=format, tenant_id=tenant_id, **filters)
        export = _written(tidegate, export)
        tidegate.audit.download(export, to)
    typer.echo(f"{export['rows_done']} events in {to}, SHA-256 {export['sha256']}", err=True)


def _tenant_to_export(tidegate: Tidegate, named: str | None) -> str | None:
    if named is not None:
        return named if named.startswith("tnt_") else tidegate.tenants.named(named)["id"]
    me = tidegate.me()
    return me["tenants"][0]["id"] if me["type"] == "api_key" else None


def _written(tidegate: Tidegate, export: documents.Export) -> documents.Export:
    """The export once it is done. Raises `Refused` when it failed."""
    while export["state"] in ("pending", "running"):
        typer.echo(f"{export['rows_done']} of {export['rows_total'] or '?'} events", err=True)
        time.sleep(POLL_S)
        export = tidegate.audit.export(export["id"])
    if export["state"] != "done":
        raise Refused(409, "export_failed", export["error"] or "The file could not be written.", {}, "")
    return export


# ---------------------------------------------------------------- what people type


def _given(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _pair(text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not separator:
        raise typer.BadParameter(f"NAME=VALUE, not {text}")
    return name, value


def _version(tidegate: Tidegate, model: str, number: int) -> str:
    found = tidegate.models.versions(tidegate.models.named(model)["id"])
    for version in found:
        if version["number"] == number:
            return version["id"]
    raise Refused(404, "not_found", f"{model} has no version {number}.", {}, "")


def _deployment(tidegate: Tidegate, model: str) -> str:
    return tidegate.deployments.of_model(tidegate.models.named(model)["id"])["id"]
