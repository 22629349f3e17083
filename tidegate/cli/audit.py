"""`tidegate audit`: who did what, taken away in files, proven, and sent elsewhere."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from tidegate import documents
from tidegate.api import Tidegate
from tidegate.cli.asking import AnyTrail, console, given, show, show_all, trail_of
from tidegate.errors import Refused

POLL_S = 1.0
audit = typer.Typer(no_args_is_help=True, help="The audit trail.")
webhooks = typer.Typer(no_args_is_help=True, help="Where audit events are sent as they happen.")
audit.add_typer(webhooks, name="webhooks")
Since = Annotated[str | None, typer.Option(help="From: 2026-03-01, or a time with its offset.")]
Until = Annotated[str | None, typer.Option(help="To: a day, included, or a time.")]


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
    tenant: AnyTrail = None,
    action: Annotated[str | None, typer.Option(help="Such as key.created.")] = None,
    since: Since = None,
    until: Until = None,
) -> None:
    """Have events written to a file, fetch it, and compare it with its digest."""
    filters = given({"action": action, "since": since, "until": until})
    with console() as tidegate:
        tenant_id = trail_of(tidegate, tenant)
        export = tidegate.audit.request_export(format=format, tenant_id=tenant_id, **filters)
        export = _written(tidegate, export)
        tidegate.audit.download(export, to)
    typer.echo(f"{export['rows_done']} events in {to}, SHA-256 {export['sha256']}", err=True)


def _written(tidegate: Tidegate, export: documents.Export) -> documents.Export:
    """The export once it is done. Raises `Refused` when it failed."""
    while export["state"] in ("pending", "running"):
        typer.echo(f"{export['rows_done']} of {export['rows_total'] or '?'} events", err=True)
        time.sleep(POLL_S)
        export = tidegate.audit.export(export["id"])
    if export["state"] != "done":
        raise Refused(409, "export_failed", export["error"] or "The file could not be written.", {}, "")
    return export


@audit.command("verify")
def audit_verify(tenant: AnyTrail = None) -> None:
    """Have a trail followed from its first event. Exit status 1 when it is broken."""
    with console() as tidegate:
        found = tidegate.audit.verify(trail_of(tidegate, tenant))
        while found["state"] != "done":
            typer.echo(f"{found['rows']} events", err=True)
            time.sleep(POLL_S)
            found = tidegate.audit.verification(found["id"])
    show(found)
    if found["broken"] is not None:
        raise typer.Exit(1)


@audit.command("archives")
def audit_archives(tenant: AnyTrail = None) -> None:
    """Signed files of events that left the database."""
    with console() as tidegate:
        rows = tidegate.audit.archives(trail_of(tidegate, tenant))
        show_all(rows, "id", "first_at", "last_at", "rows", "size_bytes", "sha256")


@audit.command("fetch")
def audit_fetch(
    archive_id: str, to: Annotated[Path, typer.Argument(dir_okay=False, help="The file.")]
) -> None:
    """Fetch an archive, and compare it with its digest."""
    with console() as tidegate:
        tidegate.audit.download_archive(archive_id, to)


@audit.command("retention")
def audit_retention(
    tenant: AnyTrail = None,
    months: Annotated[int | None, typer.Option(min=0, help="Set it; 0 keeps every event here.")] = None,
) -> None:
    """How many months events stay in the database before they move to archives."""
    with console() as tidegate:
        trail = trail_of(tidegate, tenant)
        if months is not None:
            tidegate.audit.set_retention(months or None, trail)
        show({"months": tidegate.audit.retention(trail)})


@webhooks.command("list")
def webhooks_list() -> None:
    """Webhooks of the trails you may export."""
    with console() as tidegate:
        columns = ("id", "tenant_id", "url", "state", "delivered", "failing_since", "last_error")
        show_all(tidegate.webhooks.list(), *columns)


@webhooks.command("create")
def webhooks_create(
    url: str,
    tenant: AnyTrail = None,
    from_start: Annotated[bool, typer.Option(help="Send what happened before, too.")] = False,
) -> None:
    """Have each event sent to an address. The secret is printed once, and kept nowhere."""
    with console() as tidegate:
        show(tidegate.webhooks.create(url, trail_of(tidegate, tenant), from_start=from_start))


@webhooks.command("roll")
def webhooks_roll(
    webhook_id: str, overlap_hours: Annotated[int, typer.Option(min=0, help="How long both sign.")] = 24
) -> None:
    """Make a new secret. It is printed once, and kept nowhere."""
    with console() as tidegate:
        show(tidegate.webhooks.roll(webhook_id, overlap_s=overlap_hours * 3600))


@webhooks.command("pause")
def webhooks_pause(webhook_id: str) -> None:
    """Send nothing until it is resumed."""
    with console() as tidegate:
        show(tidegate.webhooks.pause(webhook_id))


@webhooks.command("resume")
def webhooks_resume(webhook_id: str) -> None:
    """Go on where it stopped."""
    with console() as tidegate:
        show(tidegate.webhooks.resume(webhook_id))


@webhooks.command("dead")
def webhooks_dead(webhook_id: str) -> None:
    """Events that were given up."""
    with console() as tidegate:
        show_all(tidegate.webhooks.dead_letters(webhook_id), "id", "event_id", "attempts", "error", "dead_at")


@webhooks.command("resend")
def webhooks_resend(
    webhook_id: str, letter: Annotated[int | None, typer.Option(help="One event; all by default.")] = None
) -> None:
    """Try events that were given up once more."""
    with console() as tidegate:
        show({"events": tidegate.webhooks.resend(webhook_id, letter)})


@webhooks.command("delete")
def webhooks_delete(webhook_id: str) -> None:
    """Send nothing there any more."""
    with console() as tidegate:
        tidegate.webhooks.delete(webhook_id)
