"""Old events move to signed files, and the chain is proven over files and rows as one."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.db import IntegrityError, connection, transaction
from django.utils import timezone

from tenants.actions.tenants import update_tenant
from tenants.errors import Invalid, NotAllowed, NotFound
from tenants.models import AuditEvent, AuditLink
from tenants.scoping import all_tenants
from tenants.trail import checkpoints
from tenants.trail import verify as trail_verify
from tenants.trail.archives import files, step
from tenants.trail.archives.actions import access_archive, retention_of, set_retention
from tenants.trail.archives.models import AuditArchive, AuditRetention
from tenants.trail.archives.step import archive_due, cutoff
from tenants.trail.verify import verify, verify_all
from tests.tenants.conftest import SYSTEM, Cast, last_event
from tests.tenants.trail.test_chain import chain_now

LATER = timezone.now() + timedelta(days=400)
"""By then everything that a test wrote is old."""


@pytest.fixture(autouse=True)
def _own_directory(settings: object, tmp_path: Path) -> None:
    settings.STATE_DIR = tmp_path  # type: ignore[attr-defined]


@pytest.fixture
def chain(team: Cast) -> str:
    """The first tenant's, with ten renames, signed, kept for three months."""
    for number in range(10):
        update_tenant(by=SYSTEM, tenant=team.tenant, name=f"Acme {number}")
    with all_tenants("a test"):
        AuditRetention.objects.create(chain=team.tenant.pk, tenant_id=team.tenant.pk, months=3)
    chain_now()
    checkpoints.sign_grown_chains(timezone.now())
    return team.tenant.pk


def archived(chain: str) -> list[AuditArchive]:
    with all_tenants("a test"):
        return list(AuditArchive.objects.filter(chain=chain))


def in_database(chain: str) -> int:
    with all_tenants("a test"):
        return AuditEvent.objects.filter(tenant_id=chain).count()


def length(chain: str) -> int:
    return AuditLink.objects.filter(chain=chain).count()


def what_is_broken(chain: str) -> str | None:
    broken = verify(chain).broken
    return broken.what if broken else None


def test_old_events_leave_the_database_and_the_whole_chain_still_verifies(chain: str) -> None:
    before = length(chain)
    assert archive_due(LATER) == before
    chain_now()
    (archive,) = archived(chain)
    assert (archive.first_position, archive.last_position, in_database(chain)) == (1, before, 1)
    assert (last_event().action, last_event().tenant_id) == ("audit.archived", chain)
    verdict = verify(chain)
    assert (verdict.broken, verdict.rows, verdict.checkpoints) == (None, before + 1, 1)
    assert all(each.broken is None for each in verify_all())
    call_command("audit", "verify")


def test_events_archived_while_a_chain_is_followed_are_not_missing(
    chain: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = trail_verify._rows

    def archives_first(chain: str, position: int) -> Iterator[dict[str, Any]]:
        if not archived(chain):
            archive_due(LATER)
            chain_now()
        return rows(chain, position)

    monkeypatch.setattr("tenants.trail.verify._rows", archives_first)
    assert what_is_broken(chain) is None
    assert len(archived(chain)) == 1


def test_what_is_young_stays(chain: str) -> None:
    assert archive_due(timezone.now()) == 0 and archived(chain) == []


def test_a_trail_without_a_retention_stays(chain: str, team: Cast) -> None:
    archive_due(LATER)
    assert archived(team.other.pk) == [] and in_database(team.other.pk) == length(team.other.pk)


def test_files_follow_one_another(chain: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step, "MAX_ROWS", 4)
    monkeypatch.setattr(step, "PAGE_ROWS", 3)
    for _ in range(3):
        assert archive_due(LATER) == 4
        chain_now()
    spans = [(each.first_position, each.last_position) for each in archived(chain)]
    assert spans == [(1, 4), (5, 8), (9, 12)]
    assert what_is_broken(chain) is None


def test_only_what_an_archive_covers_may_be_deleted(chain: str) -> None:
    archive_due(LATER)
    chain_now()
    with (
        pytest.raises(IntegrityError),
        transaction.atomic(),
        all_tenants("a test"),
        connection.cursor() as cursor,
    ):
        cursor.execute("DELETE FROM tenants_auditevent")
    with (
        pytest.raises(IntegrityError),
        transaction.atomic(),
        all_tenants("a test"),
        connection.cursor() as cursor,
    ):
        cursor.execute("DELETE FROM tenants_auditarchive")


def test_a_row_that_does_not_fit_the_chain_lets_nothing_go(chain: str, team: Cast) -> None:
    """Somebody with the application's password invents an archive."""
    with all_tenants("a test"):
        AuditArchive.objects.create(
            chain=chain,
            tenant_id=chain,
            first_position=1,
            last_position=length(chain),
            first_at=LATER,
            last_at=LATER,
            prev_hash=bytes(32),
            last_hash=b"x" * 32,
            size_bytes=1,
            sha256="",
            manifest={},
        )
        with pytest.raises(IntegrityError), transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("SELECT tenants_delete_archived_events(id) FROM tenants_auditarchive")
    assert what_is_broken(chain) == "forged"


@pytest.mark.parametrize("moment", ["_verify", "_delete", "_record"])
def test_who_dies_at_any_point_before_the_commit_loses_nothing_and_the_next_one_does_it(
    chain: str, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    def dies(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(step, moment, dies)
        with pytest.raises(KeyboardInterrupt):
            archive_due(LATER)
    assert (archived(chain), in_database(chain)) == ([], length(chain))
    assert what_is_broken(chain) is None
    assert archive_due(LATER) == length(chain)
    chain_now()
    assert what_is_broken(chain) is None


def test_a_file_that_nobody_knows_is_swept_later(chain: str, monkeypatch: pytest.MonkeyPatch) -> None:
    archive_due(LATER)
    folder = files.path_of("x").parent
    orphan = folder / "arc_orphan.jsonl.gz"
    orphan.write_bytes(b"")
    step._sweep(timezone.now())
    assert orphan.exists()
    with all_tenants("a test"):
        step._sweep(timezone.now() + timedelta(days=2))
    (archive,) = archived(chain)
    assert not orphan.exists() and files.path_of(archive.pk).exists()


def test_a_disk_that_lies_deletes_nothing(chain: str, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = files.write

    def lying(path: Path, pages: object) -> None:
        honest(path, pages)  # type: ignore[arg-type]
        path.write_bytes(gzip.compress(gzip.decompress(path.read_bytes()).replace(b"Acme 3", b"Acme 4")))

    monkeypatch.setattr(files, "write", lying)
    assert archive_due(LATER) == 0
    assert (archived(chain), in_database(chain)) == ([], length(chain))


def changed_byte(path: Path) -> None:
    path.write_bytes(gzip.compress(gzip.decompress(path.read_bytes()).replace(b"Acme 3", b"Acme 4")))


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])


def gone(path: Path) -> None:
    path.unlink()


@pytest.mark.parametrize(
    ("harm", "what"),
    [(changed_byte, "archive_changed"), (cut, "archive_changed"), (gone, "archive_missing")],
)
def test_a_file_that_is_not_what_was_signed_is_found(
    chain: str, harm: Callable[[Path], None], what: str
) -> None:
    archive_due(LATER)
    chain_now()
    harm(files.path_of(archived(chain)[0].pk))
    assert what_is_broken(chain) == what


def test_without_a_signing_key_nothing_is_archived(chain: str, settings: object) -> None:
    settings.AUDIT_KEY = b""  # type: ignore[attr-defined]
    assert archive_due(LATER) == 0 and archived(chain) == []


@pytest.mark.parametrize(
    ("months", "day"),
    [
        (1, datetime(2026, 3, 1, tzinfo=UTC)),
        (13, datetime(2025, 3, 1, tzinfo=UTC)),
        (3, datetime(2025, 12, 31, tzinfo=UTC)),
    ],
)
def test_months_are_those_of_the_calendar(months: int, day: datetime) -> None:
    assert cutoff(datetime(2026, 3, 31, tzinfo=UTC), months) == day


def test_owners_and_operators_say_how_long_and_it_is_an_event(team: Cast) -> None:
    assert retention_of(team.tenant) is None
    set_retention(by=team.actor("owner"), tenant=team.tenant, months=12)
    assert (retention_of(team.tenant), last_event().after) == (12, {"months": 12})
    set_retention(by=team.actor("operator"), tenant=None, months=24)
    assert (retention_of(None), last_event().tenant_id) == (24, None)
    set_retention(by=team.actor("owner"), tenant=team.tenant, months=None)
    assert retention_of(team.tenant) is None
    for months in (0, 121):
        with pytest.raises(Invalid):
            set_retention(by=SYSTEM, tenant=team.tenant, months=months)
    with pytest.raises(NotAllowed):
        set_retention(by=team.actor("auditor"), tenant=team.tenant, months=1)


def test_another_tenants_archive_looks_like_none(chain: str, team: Cast) -> None:
    archive_due(LATER)
    (archive,) = archived(chain)
    assert access_archive(team.actor("auditor"), archive.pk).pk == archive.pk
    for who in ("stranger", "viewer", "support", "nobody"):
        with pytest.raises(NotFound):
            access_archive(team.actor(who), archive.pk)
