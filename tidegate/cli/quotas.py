"""`tidegate quotas`. Amounts in base units, as the API has them."""

from __future__ import annotations

from typing import Annotated

import typer

from tidegate.cli.asking import Slug, console, given, show, show_all, tenant_id_of

quotas = typer.Typer(
    no_args_is_help=True, help="Quotas and budgets: list, standings, create, change, delete."
)

Burst = Annotated[int | None, typer.Option(min=1, help="What a rate gives at once.")]
Guaranteed = Annotated[
    int | None, typer.Option(min=1, help="So much of the model's pool is the tenant's own.")
]
Warn = Annotated[int | None, typer.Option("--warn-percent", min=1, max=100, help="Tell of so much used.")]
CountOnly = Annotated[
    bool | None, typer.Option("--count-only/--refuse", help="Count without refusing, or refuse.")
]


@quotas.command("list")
def quotas_list(
    tenant: Annotated[str | None, typer.Argument(help="Slug or id; every tenant by default.")] = None,
) -> None:
    """What limits whom."""
    with console() as tidegate:
        tenant_id = tenant_id_of(tidegate, tenant) if tenant else None
        rows = tidegate.quotas.list(tenant_id)
        show_all(rows, "id", "tenant", "key", "model", "resource", "window", "limit", "observe_only")


@quotas.command("standings")
def quotas_standings(tenant: Slug) -> None:
    """How a tenant's quotas stand now."""
    with console() as tidegate:
        rows = tidegate.quotas.standings(tenant_id_of(tidegate, tenant))
        show_all(rows, "quota", "resource", "window", "limit", "used", "reserved", "remaining", "resets_at")


@quotas.command("create")
def quotas_create(
    tenant: Slug,
    resource: Annotated[
        str, typer.Argument(help="requests, tokens, concurrency, queue, device_us or cost_micro.")
    ],
    limit: Annotated[int, typer.Argument(min=1, help="In base units: µs, micro-units of money.")],
    window: Annotated[
        str, typer.Option(help="second, minute, hour, day, month; none for what is inside.")
    ] = "",
    key: Annotated[str | None, typer.Option(help="Id of the one key it is for.")] = None,
    model: Annotated[str | None, typer.Option(help="Name or id of the one model it is for.")] = None,
    burst: Burst = None,
    guaranteed: Guaranteed = None,
    soft_percent: Warn = None,
    observe_only: CountOnly = None,
) -> None:
    """Limit a tenant, one of its keys, or its use of a model."""
    more = given(
        {"key": key, "burst": burst, "guaranteed": guaranteed}
        | {"soft_percent": soft_percent, "observe_only": observe_only}
    )
    with console() as tidegate:
        if model is not None:
            more["model"] = model if model.startswith("mdl_") else tidegate.models.named(model)["id"]
        tenant_id = tenant_id_of(tidegate, tenant)
        show(tidegate.quotas.create(tenant_id, resource=resource, window=window, limit=limit, **more))


@quotas.command("change")
def quotas_change(
    quota_id: str,
    limit: Annotated[int | None, typer.Option(min=1, help="In base units.")] = None,
    burst: Burst = None,
    guaranteed: Guaranteed = None,
    soft_percent: Warn = None,
    observe_only: CountOnly = None,
) -> None:
    """What is not named stays as it is."""
    changes = given(
        {"limit": limit, "burst": burst, "guaranteed": guaranteed}
        | {"soft_percent": soft_percent, "observe_only": observe_only}
    )
    with console() as tidegate:
        show(tidegate.quotas.change(quota_id, **changes))


@quotas.command("delete")
def quotas_delete(quota_id: str) -> None:
    """Lift a quota; every gateway follows within a second."""
    with console() as tidegate:
        tidegate.quotas.delete(quota_id)
