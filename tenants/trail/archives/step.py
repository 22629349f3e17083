"""One step: what is older than its trail is kept goes into one signed file, and only then out of the database.

Written, on the disk, read back and verified; then, in one transaction, the archive's row, the deletion that the
row allows (the database looks itself), and the event that says so. Whoever dies before the commit leaves a file
that nobody knows, which is swept; whoever dies after it left nothing undone.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import structlog
from django.db import connection, transaction

from tenants.actors import Actor
from tenants.audit import Target, record
from tenants.models import Tenant
from tenants.scoping import all_tenants
from tenants.trail import signing
from tenants.trail.archives import files
from tenants.trail.archives.finding import mark_of
from tenants.trail.archives.models import AuditArchive, AuditRetention
from tenants.trail.archives.verify import followed
from tenants.trail.canonical import GENESIS
from tenants.trail.formats.writer import Row
from tenants.trail.manifest import rfc3339, signed
from tenants.trail.models import AuditLink
from tenants.trail.reading import after

log = structlog.get_logger(__name__)

MAX_ROWS = 50_000
"""Of one file: what is left goes with the next step."""
PAGE_ROWS = 5_000
SWEPT_AFTER = timedelta(days=1)
_LOCK = 7_266_170_402
"""Of the transaction that archives; one at a time. Nobody else may use the number."""
_TASKS = Actor.system("tasks")

# The first event that stays ends what goes: a chain is in the order of commits, nearly that of its times.
_END = """
SELECT coalesce(
    (SELECT l.position - 1 FROM tenants_auditlink l JOIN tenants_auditevent e ON e.seq = l.event_seq
     WHERE l.chain = %(chain)s AND l.position > %(after)s AND l.position <= %(after)s + %(most)s AND e.at >= %(cutoff)s
     ORDER BY l.position LIMIT 1),
    (SELECT max(l.position) FROM tenants_auditlink l
     WHERE l.chain = %(chain)s AND l.position > %(after)s AND l.position <= %(after)s + %(most)s))
"""


class NotVerified(RuntimeError):
    """What was written is not what was read: nothing is deleted."""


def archive_due(now: datetime) -> int:
    """A file for every trail that holds older events than it keeps; how many events left the database.

    Nothing without a signing key: what is not signed proves nothing.
    """
    if not signing.can_sign():
        return 0
    with all_tenants("old events of every tenant are archived"):
        kept = {each.chain: each for each in AuditRetention.objects.all()}
        moved = sum(_tried(each, cutoff(now, each.months), now) for each in kept.values())
        _sweep(now)
    return moved


def cutoff(now: datetime, months: int) -> datetime:
    """The same day and time `months` earlier; the month's first day where that day does not exist. Pure."""
    index = now.year * 12 + now.month - 1 - months
    year, month = index // 12, index % 12 + 1
    try:
        return now.replace(year=year, month=month)
    except ValueError:
        return now.replace(year=year + month // 12, month=month % 12 + 1, day=1)


def _tried(kept: AuditRetention, before: datetime, now: datetime) -> int:
    try:
        return archive_chain(kept.chain, kept.tenant_id, before, now)
    except (OSError, NotVerified) as error:
        log.error("audit.archive_failed", chain=kept.chain, error=str(error))
        return 0


@transaction.atomic
def archive_chain(chain: str, tenant_id: str | None, before: datetime, now: datetime) -> int:
    """How many events went. 0 also while another process archives. Raises `OSError`, `NotVerified`."""
    if not _alone():
        return 0
    last = AuditArchive.objects.filter(chain=chain).order_by("-last_position").first()
    position, digest = (last.last_position, bytes(last.last_hash)) if last else (0, GENESIS)
    end = _end(chain, position, before)
    if end <= position:
        return 0
    archive = _written(chain, tenant_id, position, digest, end, now)
    _verify(archive, position, digest)
    archive.save(force_insert=True)
    _delete(archive)
    _record(archive)
    return archive.rows


def _alone() -> bool:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_xact_lock(%s)", [_LOCK])
        return bool(cursor.fetchone()[0])


def _end(chain: str, position: int, before: datetime) -> int:
    with connection.cursor() as cursor:
        cursor.execute(_END, {"chain": chain, "after": position, "most": MAX_ROWS, "cutoff": before})
        return int(cursor.fetchone()[0] or 0)


def _written(
    chain: str, tenant_id: str | None, position: int, digest: bytes, end: int, now: datetime
) -> AuditArchive:
    archive = AuditArchive(
        chain=chain, tenant_id=tenant_id, first_position=position + 1, last_position=end, created_at=now
    )
    path, ends = files.path_of(archive.pk), _Ends()
    files.write(path, ends.watched(_pages(chain, position, end)))
    if ends.first is None or ends.last is None:
        raise NotVerified("there are links without events")
    archive.prev_hash, archive.last_hash = digest, bytes(ends.last["hash"])
    archive.first_at, archive.last_at = _time(ends.first), _time(ends.last)
    archive.event_marks = bytes(ends.marks)
    archive.size_bytes, archive.sha256 = path.stat().st_size, files.digest(path)
    archive.manifest = _manifest(archive)
    return archive


class _Ends:
    """Remembers the first and the last row that passed, and a mark of each."""

    def __init__(self) -> None:
        self.first: Row | None = None
        self.last: Row | None = None
        self.marks = bytearray()

    def watched(self, pages: Iterator[list[Row]]) -> Iterator[list[Row]]:
        for page in pages:
            self.first, self.last = self.first or page[0], page[-1]
            self.marks += b"".join(mark_of(row["event_id"]) for row in page)
            yield page


def _pages(chain: str, position: int, end: int) -> Iterator[list[Row]]:
    while position < end and (page := after(chain, position, min(PAGE_ROWS, end - position))):
        kept = [row for row in page if row["position"] <= end]
        if kept:
            yield kept
        position = page[-1]["position"]


def _manifest(archive: AuditArchive) -> dict[str, Any]:
    return signed(
        {
            "type": "tidegate.audit.archive/v1",
            "archive": archive.pk,
            "chain": archive.chain,
            "first_position": archive.first_position,
            "last_position": archive.last_position,
            "prev_hash": bytes(archive.prev_hash).hex(),
            "last_hash": bytes(archive.last_hash).hex(),
            "first_at": rfc3339(archive.first_at),
            "last_at": rfc3339(archive.last_at),
            "created_at": rfc3339(archive.created_at),
            "file": {
                "name": files.path_of(archive.pk).name,
                "size_bytes": archive.size_bytes,
                "sha256": archive.sha256,
            },
        }
    )


def _verify(archive: AuditArchive, position: int, digest: bytes) -> None:
    """From the disk, against what the chain's links say. Raises `NotVerified`."""
    faults = [found for found in followed(archive, position, digest) if isinstance(found, str)]
    link = AuditLink.objects.get(chain=archive.chain, position=archive.last_position)
    if faults or bytes(link.hash) != bytes(archive.last_hash):
        files.path_of(archive.pk).unlink(missing_ok=True)
        raise NotVerified(faults[0] if faults else "link_changed")


def _delete(archive: AuditArchive) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT tenants_delete_archived_events(%s)", [archive.pk])
        deleted = int(cursor.fetchone()[0])
    if deleted != archive.rows:
        raise NotVerified(f"{deleted} events would go, {archive.rows} are in the file")


def _record(archive: AuditArchive) -> None:
    record(
        by=_TASKS,
        action="audit.archived",
        target=Target("audit_archive", archive.pk, str(archive)),
        after={
            "first_position": archive.first_position,
            "last_position": archive.last_position,
            "last_hash": bytes(archive.last_hash).hex(),
            "sha256": archive.sha256,
        },
        tenant=Tenant.objects.filter(pk=archive.tenant_id).first(),
    )


def _sweep(now: datetime) -> None:
    """Files that no row names: their step did not come to its end."""
    folder = files.path_of("x").parent
    for path in folder.iterdir() if folder.is_dir() else ():
        archive_id = path.name.partition(".")[0]
        is_old = path.stat().st_mtime < (now - SWEPT_AFTER).timestamp()
        if is_old and not AuditArchive.objects.filter(pk=archive_id).exists():
            path.unlink(missing_ok=True)


def _time(row: Row) -> datetime:
    return datetime.fromisoformat(row["at"])
