"""`tidegate tenants`"""

from __future__ import annotations

from typing import Annotated

import typer

from tidegate.cli.asking import Slug, console, given, show, show_all

tenants = typer.Typer(no_args_is_help=True, help="Tenants: list, show, create, set, suspend, resume.")
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
    values = {"max_concurrency": max_concurrency, "requests_per_s": requests_per_s, "time_zone": time_zone}
    with console() as tidegate:
        show(tidegate.tenants.create(slug, name, **given(values)))


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
    limits = {"name": name, "max_concurrency": max_concurrency, "requests_per_s": requests_per_s}
    values = given({**limits, "time_zone": time_zone})
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
