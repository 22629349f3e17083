"""`tidegate keys`"""

from __future__ import annotations

from typing import Annotated

import typer

from tidegate.cli.asking import Slug, console, in_days, show, show_all

keys = typer.Typer(no_args_is_help=True, help="API keys of a tenant: list, create, roll, revoke.")


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
    network: Annotated[
        list[str] | None, typer.Option(help="CIDR; repeatable. Everywhere by default.")
    ] = None,
    days: Annotated[int | None, typer.Option(min=1, help="Days until it expires.")] = None,
) -> None:
    """Make a key. Its token is printed once, and kept nowhere."""
    expires_at = in_days(days)
    with console() as tidegate:
        tenant_id = tidegate.tenants.named(tenant)["id"]
        show(
            tidegate.keys.create(
                tenant_id,
                name,
                scopes=scope or ["infer"],
                allowed_models=model,
                allowed_networks=network,
                expires_at=expires_at,
            )
        )


@keys.command("roll")
def keys_roll(
    key_id: str,
    overlap_hours: Annotated[int, typer.Option(min=0, help="How long the old key still works.")] = 24,
    days: Annotated[int | None, typer.Option(min=1, help="Days until the new key expires.")] = None,
) -> None:
    """Make a key in another's place. Its token is printed once, and kept nowhere."""
    expires_at = in_days(days)
    with console() as tidegate:
        show(tidegate.keys.roll(key_id, overlap_s=overlap_hours * 3600, expires_at=expires_at))


@keys.command("revoke")
def keys_revoke(key_id: str) -> None:
    """Refuse a key everywhere within a second, for ever."""
    with console() as tidegate:
        show(tidegate.keys.revoke(key_id))
