"""`tidegate deployments`: what runs."""

from __future__ import annotations

from typing import Annotated

import typer

from tidegate.api import Tidegate
from tidegate.cli.asking import console, show, show_all
from tidegate.cli.models import ModelName, Number, version_of

deployments = typer.Typer(no_args_is_help=True, help="What runs: list, create, scale, switch, stop.")


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
        version_id = version_of(tidegate, model, number)
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
        version_id = version_of(tidegate, model, number)
        show(tidegate.deployments.switch(_deployment(tidegate, model), version_id))


@deployments.command("stop")
def deployments_stop(model: ModelName) -> None:
    """Serve the model no more."""
    with console() as tidegate:
        show(tidegate.deployments.stop(_deployment(tidegate, model)))


def _deployment(tidegate: Tidegate, model: str) -> str:
    return tidegate.deployments.of_model(tidegate.models.named(model)["id"])["id"]
