"""Archives are listed, fetched and proven; how long events stay is said on a page."""

from __future__ import annotations

import gzip
from datetime import timedelta
from hashlib import sha256
from pathlib import Path

import pytest
from django.urls import reverse
from django.utils import timezone

from tenants.models import AuditArchive, AuditEvent
from tenants.scoping import all_tenants
from tenants.trail.archives.step import archive_due
from tenants.trail.manifest import is_signed
from tenants.trail.signing import trusted_keys
from tests.console.api.asking import ask
from tests.console.conftest import World
from tests.tenants.conftest import last_event
from tests.tenants.trail.test_chain import chain_now


@pytest.fixture(autouse=True)
def _own_directory(settings: object, tmp_path: Path) -> None:
    settings.STATE_DIR = tmp_path  # type: ignore[attr-defined]


def test_an_owner_says_how_long_and_everyone_who_may_export_fetches_the_file(world: World) -> None:
    owner, auditor = world.client("owner"), world.client("auditor")
    assert owner.post(reverse("audit_retention"), {"months": "0"}).status_code == 422
    assert owner.post(reverse("audit_retention"), {"months": "2"}).status_code == 302
    assert auditor.post(reverse("audit_retention"), {"months": "3"}).status_code == 403
    chain_now()
    assert archive_due(timezone.now() + timedelta(days=100)) > 0
    with all_tenants("a test"):
        archive = AuditArchive.objects.get()
    address = reverse("audit_archive_file", args=[archive.pk])
    page = auditor.get(reverse("audit_archives")).content.decode()
    assert address in page and "for 2 months" in page
    body = b"".join(auditor.get(address).streaming_content)  # type: ignore[attr-defined]
    assert sha256(body).hexdigest() == archive.sha256
    assert last_event().action == "audit.archive_fetched"
    auditor.get(address, headers={"range": "bytes=5-"})
    with all_tenants("a test"):
        assert AuditEvent.objects.filter(action="audit.archive_fetched").count() == 1
    manifest = auditor.get(reverse("audit_archive_manifest", args=[archive.pk])).json()
    assert manifest["file"]["sha256"] == archive.sha256 and is_signed(manifest, trusted_keys())
    previous = "00" * 32
    for line in gzip.decompress(body).splitlines():  # as docs/audit.md tells auditors
        record, tail = line[10:-154], line[-153:]
        assert f'"prev_hash":"{previous}"'.encode() in tail
        previous = sha256(bytes.fromhex(previous) + record).hexdigest()
    assert previous == manifest["last_hash"]


def test_the_address_of_an_archived_event_says_where_it_went(world: World) -> None:
    owner = world.client("owner")
    owner.post(reverse("audit_retention"), {"months": "2"})
    chain_now()
    with all_tenants("a test"):
        event = AuditEvent.objects.filter(tenant_id=world.cast.tenant.pk).order_by("seq").first()
    assert event is not None
    address = reverse("audit_event", args=[event.event_id])
    assert owner.get(address).status_code == 200
    archive_due(timezone.now() + timedelta(days=100))
    with all_tenants("a test"):
        archive = AuditArchive.objects.get(tenant_id=world.cast.tenant.pk)
    for client, fetches in ((owner, True), (world.client("operator"), True)):
        answer = client.get(address)
        text = answer.content.decode()
        assert answer.status_code == 410 and archive.pk in text and archive.sha256 in text
        assert (reverse("audit_archive_file", args=[archive.pk]) in text) is fetches
        problem = ask(client, "GET", f"/audit/{event.event_id}")
        assert problem.status_code == 410 and problem.json()["code"] == "archived"
        assert problem.json()["archive"]["sha256"] == archive.sha256
    assert world.client("stranger").get(address).status_code == 404
    assert ask(world.client("stranger"), "GET", f"/audit/{event.event_id}").status_code in {403, 404}
    assert owner.get(reverse("audit_event", args=["evt_never"])).status_code == 404
