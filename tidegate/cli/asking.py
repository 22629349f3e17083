"""Whom a command asks and how it prints: what the options before it say."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Annotated, Any

import typer

from tidegate.api import Tidegate
from tidegate.cli import output, signin


class Output(StrEnum):
    """Columns for people, or one JSON document a line for programs."""

    TABLE = "table"
    JSON = "json"


class Chosen:
    """What the options before the command say."""

    url = "http://127.0.0.1:8000"
    key: str | None = None
    output = Output.TABLE


Slug = Annotated[str, typer.Argument(help="The tenant's slug, or its id.")]
AnyTrail = Annotated[str | None, typer.Option("--tenant", help="Slug or id; a key's own, else the platform.")]


def console() -> Tidegate:
    cookies = {} if Chosen.key else signin.remembered(Chosen.url)
    return Tidegate(Chosen.url, Chosen.key, cookies)


def show(document: Any) -> None:
    output.one(document, Chosen.output is Output.JSON)


def show_all(rows: Any, *columns: str) -> None:
    output.rows(rows, columns, Chosen.output is Output.JSON)


def tenant_id_of(tidegate: Tidegate, named: str) -> str:
    return named if named.startswith("tnt_") else tidegate.tenants.named(named)["id"]


def trail_of(tidegate: Tidegate, named: str | None) -> str | None:
    """Whose trail is meant; None for the platform's."""
    if named is not None:
        return tenant_id_of(tidegate, named)
    me = tidegate.me()
    return me["tenants"][0]["id"] if me["type"] == "api_key" else None


def in_days(days: int | None) -> str | None:
    """RFC 3339."""
    return (datetime.now(UTC) + timedelta(days=days)).isoformat() if days else None


def given(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}
