"""Whether the archives of a chain are what was signed, and follow one another from its first event."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator

from tenants.trail.archives import files
from tenants.trail.archives.models import AuditArchive
from tenants.trail.manifest import is_signed
from tenants.trail.signing import trusted_keys

Step = Callable[[], bool]


def archives_of(chain: str) -> list[AuditArchive]:
    """In the order of their positions. Read where every tenant's rows are seen, or the chain's own."""
    return list(AuditArchive.objects.filter(chain=chain).order_by("first_position"))


def followed(archive: AuditArchive, position: int, digest: bytes) -> Iterator[tuple[int, bytes] | str]:
    """Position and hash of each event in turn, after `position` and `digest`; a fault's word ends it.

    Faults: `archive_missing`, `archive_changed`, `forged`.
    """
    if not is_signed(archive.manifest, trusted_keys()):
        yield "forged"
        return
    fault = _of_its_manifest(archive, position, digest)
    if fault is not None:
        yield fault
        return
    try:
        yield from _events(archive, position, digest)
    except (files.Damaged, zlib.error, OSError):
        yield "archive_changed"


def _events(archive: AuditArchive, position: int, digest: bytes) -> Iterator[tuple[int, bytes] | str]:
    for line in files.read(files.path_of(archive.pk)):
        if line.prev_hash != digest or not line.is_whole:
            yield "archive_changed"
            return
        position, digest = position + 1, line.hash
        yield position, digest
    if (position, digest) != (archive.last_position, bytes(archive.last_hash)):
        yield "archive_changed"


def _of_its_manifest(archive: AuditArchive, position: int, digest: bytes) -> str | None:
    said = archive.manifest
    path = files.path_of(archive.pk)
    if not path.is_file():
        return "archive_missing"
    is_next = (archive.first_position, bytes(archive.prev_hash)) == (position + 1, digest)
    agrees = (
        said["archive"] == archive.pk
        and said["chain"] == archive.chain
        and (said["first_position"], said["last_position"]) == (archive.first_position, archive.last_position)
        and said["last_hash"] == bytes(archive.last_hash).hex()
        and said["file"]["sha256"] == archive.sha256
    )
    return None if is_next and agrees and files.digest(path) == archive.sha256 else "archive_changed"
