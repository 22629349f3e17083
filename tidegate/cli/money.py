"""`tidegate usage`, `statement`, `forecast`: what is used, and what it costs."""

from __future__ import annotations

from typing import Annotated

import typer

from tidegate.cli.asking import Slug, console, show, show_all, tenant_id_of


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


def statement(
    tenant: Slug, month: Annotated[str | None, typer.Option(help="Such as 2026-03; the running one.")] = None
) -> None:
    """What a tenant used in a month, by model, version and class."""
    with console() as tidegate:
        found = tidegate.statement(tenant_id_of(tidegate, tenant), month)
    columns = ("model", "version_number", "sla_class", "requests", "tokens", "device_us", "cost_micro")
    show_all(found["lines"], *columns)


def forecast(
    tenant: Annotated[str | None, typer.Option(help="Slug or id; everything by default.")] = None,
) -> None:
    """What the running month will cost."""
    with console() as tidegate:
        show(tidegate.forecast(tenant_id_of(tidegate, tenant) if tenant else None))
