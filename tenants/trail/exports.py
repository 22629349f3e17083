"""Exports: asked for in one transaction, written in the background, read by whoever may, gone after a week."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager, suppress
from datetime import UTC, datetime, timedelta, tzinfo
from hashlib import sha256
from pathlib import Path
from typing import Any, BinaryIO
from zoneinfo import ZoneInfo

import structlog
from django.conf import settings
from django.db import transaction
from django.db.models import Q, QuerySet
from django.utils import timezone

from tenants.access import require
from tenants.actors import Actor
from tenants.audit import Target, record
from tenants.errors import Conflict, Invalid, NotFound
from tenants.models import AuditEvent, Tenant
from tenants.roles import Right
from tenants.scoping import all_tenants, tenant_scope
from tenants.trail.formats import available_formats
from tenants.trail.manifest import Spans, manifest_of
from tenants.trail.models import AuditExport
from tenants.trail.reading import pages
from tenants.trail.search import Asked, matching

log = structlog.get_logger(__name__)

KEPT = timedelta(days=7)
SILENT_FOR = timedelta(minutes=2)
"""A running export that wrote nothing for so long was interrupted; somebody else begins it anew."""
MAX_UNFINISHED = 3
"""Of one tenant, and of the platform."""
_TASKS = Actor.system("tasks")


class _Superseded(Exception):
    """This writer stood still for so long that another began anew: the export is that one's."""


# ---------------------------------------------------------------- asking


@transaction.atomic
def request_export(*, by: Actor, tenant: Tenant | None, format: str, asked: Asked) -> AuditExport:
    """Write down what is wanted; the caller asks for the task. `tenant` of None is the whole platform.

    Raises `Invalid` for an unknown format, `Conflict` while enough are being written.
    """
    _require(by, tenant.pk if tenant else None)
    if format not in available_formats():
        raise Invalid({"format": f"One of {', '.join(available_formats())}."})
    with all_tenants("an export is written down by whoever may"):
        _refuse_too_many(tenant)
        export = AuditExport.objects.create(
            tenant_id=tenant.pk if tenant else None,
            tenant_name=tenant.name if tenant else "",
            format=format,
            filters=asked.set_ones(),
            requested_by={"type": by.type, "id": by.id, "name": by.name},
            requested_by_name=by.name,
        )
    facts = {"format": format, **({"filters": asked.set_ones()} if asked.set_ones() else {})}
    record(by=by, action="audit.export_requested", target=_target(export), after=facts, tenant=tenant)
    return export


def access_export(actor: Actor, export_id: str) -> AuditExport:
    """Raises `NotFound` for one of a tenant whose trail the actor may not export, like for one that never was."""
    with all_tenants("a gate looks the row up before it can know the tenant"):
        export = AuditExport.objects.filter(pk=export_id).first()
    if export is None or not actor.has(Right.EXPORT_AUDIT, export.tenant_id):
        raise NotFound("export")
    return export


def visible_exports(actor: Actor, tenant: Tenant | None) -> QuerySet[AuditExport]:
    """Of one tenant, or of the platform. Read it in the scope it was made in."""
    _require(actor, tenant.pk if tenant else None)
    return AuditExport.objects.filter(tenant_id=tenant.pk if tenant else None)


def file_of(export: AuditExport) -> Path:
    """Where its file is once it is done. Raises `NotFound` when it is not, or no more."""
    path = _path(export)
    if export.state != "done" or not path.is_file():
        raise NotFound("file")
    return path


def file_name(export: AuditExport) -> str:
    extension = available_formats()[export.format].extension
    return f"tidegate-audit-{export.created_at:%Y%m%d-%H%M%S}-{export.format}-{export.pk}.{extension}"


def record_download(*, by: Actor, export: AuditExport, is_later_part: bool = False) -> None:
    """Whoever carries events away is in the trail themselves.

    A later part is the rest of a download only for whoever began one: others would have all but the first byte.
    """
    if is_later_part and _has_begun(by, export):
        return
    with transaction.atomic():
        tenant = Tenant.objects.filter(pk=export.tenant_id).first()
        record(
            by=by,
            action="audit.exported",
            target=_target(export),
            after={"format": export.format, "rows": export.rows_done, "sha256": export.sha256},
            tenant=tenant,
        )


def _has_begun(by: Actor, export: AuditExport) -> bool:
    with all_tenants("an export of the platform is told in no tenant's chain"):
        told = AuditEvent.objects.filter(action="audit.exported", target_type="audit_export")
        return told.filter(target_id=export.pk, actor_type=by.type, actor_id=by.id).exists()


# ---------------------------------------------------------------- writing


def left(now: datetime) -> list[str]:
    """Ids of those whose writer went silent, and of those whose task got lost."""
    with all_tenants("exports of every tenant are done"):
        return list(_claimable(now).filter(_lost(now)).order_by("created_at").values_list("pk", flat=True))


def run_export(export_id: str, now: datetime) -> bool:
    """Write the file; False when there is nothing to do, or somebody else does it. Memory is that of one page."""
    with all_tenants("the tenant is the export's own"):
        claimed = _claimable(now).filter(pk=export_id)
        if not claimed.update(state="running", progressed_at=now, rows_done=0, error=""):
            return False
        export = AuditExport.objects.get(pk=export_id)
    with _scope(export):
        draft = _path(export).with_suffix(f".{now.timestamp():.6f}.part")
        try:
            _write(export, draft, now)
        except _Superseded:
            log.info("audit.export_superseded", export=export_id)
        except Exception as error:  # one file that cannot be written keeps nobody from theirs
            log.warning("audit.export_failed", export=export_id, error=str(error), exc_info=True)
            _fail(export, "The file could not be written.")
        with suppress(OSError):
            draft.unlink(missing_ok=True)
    return True


def prune(now: datetime) -> int:
    """Files past their time go; that they existed stays."""
    with all_tenants("exports of every tenant end"):
        old = list(AuditExport.objects.filter(state="done", expires_at__lte=now))
        for export in old:
            _path(export).unlink(missing_ok=True)
            export.state = "expired"
            export.save(update_fields=["state"])
    return len(old)


def _write(export: AuditExport, draft: Path, now: datetime) -> None:
    events, spans = _events(export), Spans()
    AuditExport.objects.filter(pk=export.pk).update(rows_total=events.count())
    draft.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with draft.open("wb") as file:
        digest = _Digested(file)
        writer = available_formats()[export.format].open(digest)  # type: ignore[arg-type]
        for page in pages(events):
            writer.write(page)
            spans.count(page)
            export.progressed_at = _go_on(export, rows_done=spans.rows)
        writer.close()
    export.rows_done, export.size_bytes, export.sha256 = spans.rows, draft.stat().st_size, digest.hexdigest()
    _finish(export, spans, draft, now)


def _go_on(export: AuditExport, **facts: Any) -> datetime:
    """Write facts down while the export is still this writer's; when that was. Raises `_Superseded`."""
    held, at = AuditExport.objects.filter(pk=export.pk, state="running"), timezone.now()
    if not held.filter(progressed_at=export.progressed_at).update(progressed_at=at, **facts):
        raise _Superseded
    return at


@transaction.atomic
def _finish(export: AuditExport, spans: Spans, draft: Path, now: datetime) -> None:
    """From the first statement on nobody else takes it; so the file that is there is the one the row tells of."""
    _go_on(export)
    draft.replace(_path(export))
    for left_behind in draft.parent.glob(f"{export.pk}.*.part"):  # of writers that died
        left_behind.unlink(missing_ok=True)
    export.manifest = manifest_of(export, spans, file_name(export), now)
    export.state, export.finished_at, export.expires_at = "done", now, now + KEPT
    export.rows_total = export.rows_done
    export.save()


@transaction.atomic
def _fail(export: AuditExport, why: str) -> None:
    try:
        _go_on(export)
    except _Superseded:
        return
    export.state, export.error = "failed", why
    export.save(update_fields=["state", "error"])
    tenant = Tenant.objects.filter(pk=export.tenant_id).first()
    record(
        by=_TASKS,
        action="audit.export_failed",
        target=_target(export),
        tenant=tenant,
        outcome="failure",
        reason=why,
    )


def _events(export: AuditExport) -> QuerySet[AuditEvent]:
    return matching(AuditEvent.objects.all(), Asked.of(export.filters), _zone(export))


def _scope(export: AuditExport) -> AbstractContextManager[None]:
    """What is written into a tenant's file is read where no other tenant's rows exist."""
    if export.tenant_id is None:
        return all_tenants("an operator exports the whole trail")
    return tenant_scope(export.tenant_id)


def _zone(export: AuditExport) -> tzinfo:
    tenant = Tenant.objects.filter(pk=export.tenant_id).first()
    return ZoneInfo(tenant.time_zone) if tenant else UTC


def _claimable(now: datetime) -> QuerySet[AuditExport]:
    silent = Q(state="running", progressed_at__lt=now - SILENT_FOR)
    return AuditExport.objects.filter(Q(state="pending") | silent)


def _lost(now: datetime) -> Q:
    return ~Q(state="pending") | Q(created_at__lt=now - SILENT_FOR)


def _require(by: Actor, tenant_id: str | None) -> None:
    require(by, Right.EXPORT_AUDIT, tenant_id)


def _refuse_too_many(tenant: Tenant | None) -> None:
    waiting = AuditExport.objects.filter(
        tenant_id=tenant.pk if tenant else None, state__in=("pending", "running")
    )
    if waiting.count() >= MAX_UNFINISHED:
        raise Conflict(f"{MAX_UNFINISHED} exports are being written already. Wait for one of them.")


def _path(export: AuditExport) -> Path:
    return settings.STATE_DIR / "audit" / "exports" / export.pk


def _target(export: AuditExport) -> Target:
    return Target("audit_export", export.pk, str(export))


class _Digested:
    """A file that is digested as it is written. Nobody seeks in it."""

    closed = False

    def __init__(self, file: BinaryIO) -> None:
        self._file, self._digest = file, sha256()

    def write(self, data: bytes) -> int:
        self._digest.update(data)
        return self._file.write(data)

    def writelines(self, lines: Iterable[bytes]) -> None:
        self.write(b"".join(lines))

    def tell(self) -> int:
        return self._file.tell()

    def flush(self) -> None:
        self._file.flush()

    def writable(self) -> bool:
        return True

    def readable(self) -> bool:
        return False

    def seekable(self) -> bool:
        return False

    def hexdigest(self) -> str:
        return self._digest.hexdigest()
