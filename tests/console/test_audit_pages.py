"""The audit page: proof on top, exports in two clicks, and an address for every event."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path

import pytest
from django.db import transaction
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from console import tasks
from serving.control.task_outbox import TaskOutbox
from tenants.actions.members import add_member
from tenants.audit import Target, record
from tenants.models import AuditEvent, AuditExport, AuditVerification
from tenants.scoping import all_tenants
from tenants.trail import checkpoints
from tests.console.conftest import World
from tests.tenants.conftest import SYSTEM, last_event
from tests.tenants.trail.test_chain import chain_now


@pytest.fixture(autouse=True)
def _own_directory(settings: object, tmp_path: Path) -> None:
    settings.STATE_DIR = tmp_path  # type: ignore[attr-defined]


def run_asked_for() -> None:
    """What dispatcher and worker would do."""
    chain_now()
    for task in TaskOutbox.objects.filter(name__contains="audit"):
        getattr(tasks, task.name.rpartition(".")[2])(**task.arguments)


def exported(client: Client, **typed: str) -> AuditExport:
    answer = client.post(reverse("audit_exports"), {"format": "jsonl"} | typed)
    assert answer.status_code == 302
    run_asked_for()
    with all_tenants("a test"):
        return AuditExport.objects.get()


def file_of(client: Client, export: AuditExport, **headers: str) -> object:
    return client.get(reverse("audit_export_file", args=[export.pk]), headers=headers)


def body_of(answer: object) -> bytes:
    return b"".join(answer.streaming_content)  # type: ignore[attr-defined]


def test_an_export_is_asked_for_watched_and_fetched(world: World) -> None:
    client = world.client("auditor")
    assert "hx-get" not in client.get(reverse("audit_exports")).content.decode()
    client.post(reverse("audit_exports"), {"format": "jsonl", "action": "key.created"})
    waiting = client.get(reverse("audit_exports")).content.decode()
    assert 'data-state="pending"' in waiting and "every 2s" in waiting and "action = key.created" in waiting
    run_asked_for()
    done = client.get(reverse("audit")).content.decode()
    with all_tenants("a test"):
        export = AuditExport.objects.get()
    assert reverse("audit_export_file", args=[export.pk]) in done
    answer = file_of(client, export)
    (line,) = [json.loads(line) for line in body_of(answer).splitlines()]
    assert (line["record"]["action"], line["record"]["target_id"]) == ("key.created", world.key.pk)
    assert (last_event().action, last_event().actor_name) == ("audit.exported", "auditor")
    manifest = client.get(reverse("audit_export_manifest", args=[export.pk])).json()
    assert manifest["file"]["sha256"] == export.sha256


def test_a_broken_download_goes_on_where_it_was(world: World) -> None:
    client = world.client("auditor")
    export = exported(client)
    whole = body_of(file_of(client, export))
    events = len(whole.splitlines())
    first = file_of(client, export, range="bytes=0-99")
    assert (first.status_code, first.headers["Content-Range"]) == (206, f"bytes 0-99/{len(whole)}")  # type: ignore[attr-defined]
    rest = file_of(client, export, range="bytes=100-", if_range=first.headers["ETag"])  # type: ignore[attr-defined]
    assert rest.headers["Content-Length"] == str(len(whole) - 100)  # type: ignore[attr-defined]
    together = body_of(first) + body_of(rest)
    assert sha256(together).hexdigest() == export.sha256 and events > 1
    with all_tenants("a test"):
        assert (
            AuditEvent.objects.filter(action="audit.exported").count() == 2
        )  # a later part is no second one


@pytest.mark.parametrize(
    ("headers", "status", "length"),
    [
        ({"range": "bytes=-10"}, 206, 10),
        ({"range": "bytes=0-"}, 200, None),
        ({"range": "bytes=5-2"}, 200, None),
        ({"range": "bytes=0-1,4-5"}, 200, None),
        ({"range": "lines=0-1"}, 200, None),
        ({"range": "bytes=999999999-"}, 416, 0),
        ({"range": "bytes=-0"}, 416, 0),
        ({"range": "bytes=0-9", "if_range": '"other"'}, 200, None),
    ],
)
def test_ranges_are_read_as_rfc_9110_says(
    world: World, headers: dict[str, str], status: int, length: int | None
) -> None:
    client = world.client("auditor")
    export = exported(client)
    answer = file_of(client, export, **headers)
    assert answer.status_code == status  # type: ignore[attr-defined]
    if status != 416:
        wanted = export.size_bytes if length is None else length
        assert len(body_of(answer)) == wanted


def test_what_is_known_already_is_not_sent_again(world: World) -> None:
    client = world.client("auditor")
    export = exported(client)
    assert file_of(client, export, if_none_match=f'"{export.sha256}"').status_code == 304  # type: ignore[attr-defined]


def test_a_file_that_is_not_there_yet_is_not_found(world: World) -> None:
    client = world.client("auditor")
    client.post(reverse("audit_exports"), {"format": "csv"})
    with all_tenants("a test"):
        export = AuditExport.objects.get()
    assert file_of(client, export).status_code == 404  # type: ignore[attr-defined]


def test_what_cannot_be_exported_is_told_on_the_page(world: World) -> None:
    client = world.client("auditor")
    client.post(reverse("audit_exports"), {"format": "xlsx"})
    assert "csv" in client.get(reverse("audit")).content.decode()
    for _ in range(4):
        client.post(reverse("audit_exports"), {"format": "csv"})
    assert "being written already" in client.get(reverse("audit")).content.decode()


def test_the_button_verifies_and_the_page_says_what_was_found(world: World) -> None:
    client = world.client("auditor")
    chain_now()
    checkpoints.sign_grown_chains(timezone.now())
    assert "nobody has followed" in client.get(reverse("audit")).content.decode()
    client.post(reverse("audit_verify"))
    client.post(reverse("audit_verify"))  # twice is once
    assert "every 2s" in client.get(reverse("audit_proof")).content.decode()
    run_asked_for()
    card = client.get(reverse("audit_proof")).content.decode()
    assert 'data-state="whole"' in card and "Signatures that agree: 1." in card
    with all_tenants("a test"):
        assert AuditVerification.objects.get().tenant_id == world.cast.tenant.pk


def test_a_broken_chain_is_told_and_is_an_event(world: World) -> None:
    client = world.client("operator")
    with all_tenants("a test"):
        AuditVerification.objects.create(
            requested_by_name="x",
            state="done",
            finished_at=timezone.now(),
            broken={"chain": "platform", "position": 7, "seq": 12, "what": "changed"},
        )
    card = client.get(reverse("audit_proof")).content.decode()
    assert "broken at position 7" in card and 'data-state="broken"' in card


def test_every_event_has_an_address_with_its_diff_and_its_place(world: World) -> None:
    client = world.client("owner")
    client.post(reverse("tenant_edit", args=["acme"]), {"name": "Acme Inc."})
    chain_now()
    event = last_event()
    page = client.get(reverse("audit_event", args=[event.event_id])).content.decode()
    assert "<del>Acme</del>" in page and "<ins>Acme Inc.</ins>" in page
    assert world.cast.tenant.pk in page and "tenant.created" in page
    assert reverse("audit_event", args=[event.event_id]) in client.get(reverse("audit")).content.decode()


@pytest.mark.parametrize("word", ["ACME INC", "tenant.updated acme", "Inc."])
def test_words_are_found_wherever_they_stand(world: World, word: str) -> None:
    client = world.client("owner")
    client.post(reverse("tenant_edit", args=["acme"]), {"name": "Acme Inc."})
    found = client.get(reverse("audit"), {"q": word}).content.decode()
    assert "<ins>Acme Inc.</ins>" in found
    assert "<ins>Acme Inc.</ins>" not in client.get(reverse("audit"), {"q": f"{word} zebra"}).content.decode()


@pytest.mark.parametrize("asked", ["bytes=1-", "bytes=-999999999", "bytes=5-2", "bytes=1-1,2-", "bytes=00-"])
def test_no_range_carries_events_away_unseen(world: World, asked: str) -> None:
    export = exported(world.client("auditor"))
    operator = world.client("operator")
    assert file_of(operator, export, range=asked).status_code in (200, 206)  # type: ignore[attr-defined]
    assert (last_event().action, last_event().actor_name) == ("audit.exported", "operator")
    assert file_of(operator, export, range="bytes=100-").status_code == 206  # type: ignore[attr-defined]
    with all_tenants("a test"):
        assert AuditEvent.objects.filter(action="audit.exported").count() == 1


def test_nothing_of_a_trail_that_is_not_theirs_stands_beside_an_event(world: World) -> None:
    """An auditor here, a viewer there: the same key of a target leads into the other trail."""
    team, auditor = world.cast, world.client("auditor")
    with all_tenants("a test"):
        add_member(by=SYSTEM, tenant=team.other, user=team.users["auditor"], role="viewer")
    with transaction.atomic():
        for tenant in (team.other, team.tenant):
            for target_id in ("", "shared"):
                told = Target("usage", target_id, f"{tenant.slug}-ledger")
                record(by=SYSTEM, action="usage.exported", target=told, tenant=tenant)
    with all_tenants("a test"):
        own = AuditEvent.objects.filter(tenant_id=team.tenant.pk, action="usage.exported")
        addresses = [reverse("audit_event", args=[event.event_id]) for event in own]
    with all_tenants("a test"):
        foreign = AuditEvent.objects.filter(tenant_id=team.other.pk, action="usage.exported")
        theirs = [event.event_id for event in foreign]
    for address in addresses:
        answer = auditor.get(address)
        assert answer.status_code == 200
        assert not any(event_id in answer.content.decode() for event_id in theirs)
