"""`tidegate models`: models and their versions."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tidegate.api import Tidegate
from tidegate.cli.asking import console, given, show, show_all
from tidegate.errors import Refused

MICRO = 1_000_000
models = typer.Typer(no_args_is_help=True, help="Models and their versions.")
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


@models.command("set")
def models_set(
    model: ModelName,
    description: Annotated[str | None, typer.Option()] = None,
    pool_requests_per_s: Annotated[int | None, typer.Option(min=1, help="Of all tenants together.")] = None,
    pool_concurrency: Annotated[int | None, typer.Option(min=1, help="In flight, of all tenants.")] = None,
    idle_policy: Annotated[
        str | None,
        typer.Option(help="Who bears idle replicas: none, by_use, by_grant or by_guarantee."),
    ] = None,
) -> None:
    """Change what a model says of all its tenants. What is not named stays as it is."""
    pools = {"pool_requests_per_s": pool_requests_per_s, "pool_concurrency": pool_concurrency}
    changes = given({"description": description, "idle_policy": idle_policy} | pools)
    with console() as tidegate:
        show(tidegate.models.change(tidegate.models.named(model)["id"], **changes))


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
        show(tidegate.versions.validate(version_of(tidegate, model, number)))


@models.command("archive")
def models_archive(model: ModelName, number: Number) -> None:
    """Put a version away, for good."""
    with console() as tidegate:
        show(tidegate.versions.archive(version_of(tidegate, model, number)))


def version_of(tidegate: Tidegate, model: str, number: int) -> str:
    found = tidegate.models.versions(tidegate.models.named(model)["id"])
    for version in found:
        if version["number"] == number:
            return version["id"]
    raise Refused(404, "not_found", f"{model} has no version {number}.", {}, "")


def _pair(text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not separator:
        raise typer.BadParameter(f"NAME=VALUE, not {text}")
    return name, value
