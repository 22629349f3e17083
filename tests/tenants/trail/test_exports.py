"""An export holds exactly what one may see, proves itself, and is gone after a week."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path

import pytest
from django.db import transaction
from pyarrow import parquet

from tenants.actions.tenants import update_tenant
from tenants.audit import Target, record
from tenants.errors import Conflict, Invalid, NotAllowed, NotFound
from tenants.models import AuditExport
from tenants.scoping import all_tenants
from tenants.trail import exports, reading
from tenants.trail.exports import access_export, file_of, left, request_export, run_export
from tenants.trail.formats import FORMATS
from tenants.trail.formats.delimited import CsvWriter
from tenants.trail.formats.writer import Row
from tenants.trail.manifest import is_signed
from tenants.trail.search import Asked
from tenants.trail.signing import trusted_keys
from tests.tenants.conftest import SYSTEM, Cast, last_event
from tests.tenants.trail.test_chain import chain_now, links

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
ALL = Asked()


@pytest.fixture(autouse=True)
def _own_directory(settings: object, tmp_path: Path) -> None:
    settings.STATE_DIR = tmp_path  # type: ignore[attr-defined]


def exported(team: Cast, format: str = "jsonl", who: str = "auditor", **filters: str) -> AuditExport:
    """What `who` gets of the first tenant; of the platform as operator."""
    tenant = None if who == "operator" else team.tenant
    export = request_export(by=team.actor(who), tenant=tenant, format=format, asked=Asked.of(filters))
    chain_now()
    assert run_export(export.pk, NOW)
    return reread(export)


def reread(export: AuditExport) -> AuditExport:
    with all_tenants("a test"):
        return AuditExport.objects.get(pk=export.pk)


def text_of(export: AuditExport) -> str:
    return file_of(export).read_bytes().decode()


def lines_of(export: AuditExport) -> list[dict[str, object]]:
    return [json.loads(line) for line in text_of(export).splitlines()]


@pytest.mark.parametrize("format", FORMATS)
def test_no_number_in_an_event_stops_an_export(team: Cast, format: str) -> None:
    facts = {"huge": 2**70, "tiny": -(2**70), "long": 10**400, "deep": [[[1e308]]]}
    with transaction.atomic():
        target = Target("key", "key_x", "\x7f\u2028\u2029\x85 \U0001f600")
        record(by=SYSTEM, action="key.created", target=target, after=facts, tenant=team.tenant)
    export = exported(team, format)
    assert export.state == "done"
    if format in ("jsonl", "ocsf", "ecs", "cadf"):
        assert f"{2**70}" in text_of(export) and f"{10**400}" in text_of(export)


def test_an_export_that_cannot_be_written_fails_and_says_so(
    team: Cast, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*given: object) -> bytes:
        raise ValueError("an event nobody thought of")

    monkeypatch.setattr(CsvWriter, "write", broken)
    assert exported(team, "csv").state == "failed"
    assert (last_event().action, last_event().outcome) == ("audit.export_failed", "failure")
    assert left(NOW + timedelta(days=1)) == []


def test_a_tenants_export_holds_its_whole_chain_and_nothing_of_others(team: Cast) -> None:
    export = exported(team)
    records = [line["record"] for line in lines_of(export)]
    assert [each["position"] for each in records] == list(range(1, len(links(team.tenant.pk)) + 1))  # type: ignore[index]
    assert {each["tenant_id"] for each in records} == {team.tenant.pk}  # type: ignore[index]
    assert (export.state, export.rows_done, export.rows_total) == ("done", len(records), len(records))


def test_the_platforms_export_holds_every_chain(team: Cast) -> None:
    export = exported(team, who="operator")
    assert export.manifest is not None
    assert set(export.manifest["chains"]) == {"platform", team.tenant.pk, team.other.pk}


def test_an_auditor_verifies_an_export_with_nothing_of_ours(team: Cast) -> None:
    """Exactly what docs/audit.md tells them to do."""
    update_tenant(by=SYSTEM, tenant=team.tenant, name='"Ωmega" \\ {x}', requests_per_s=1e22)
    export = exported(team)
    previous = "00" * 32
    for line in file_of(export).read_bytes().splitlines():
        record, tail = line[10:-154], json.loads(b"{" + line[-153:])
        assert tail["prev_hash"] == previous
        assert sha256(bytes.fromhex(previous) + record).hexdigest() == tail["hash"]
        previous = tail["hash"]
    assert export.manifest is not None
    span = export.manifest["chains"][team.tenant.pk]
    assert (span["last_hash"], span["has_every_row"]) == (previous, True)
    assert span["checkpoint"]["position"] >= span["last_position"]


def test_the_manifest_names_the_files_digest_and_is_signed(team: Cast) -> None:
    export = exported(team, format="csv")
    manifest = export.manifest
    assert manifest is not None
    content = file_of(export).read_bytes()
    assert manifest["file"]["sha256"] == export.sha256 == sha256(content).hexdigest()
    assert manifest["file"]["size_bytes"] == len(content)
    assert manifest["requested_by"] == {
        "type": "user",
        "id": str(team.users["auditor"].pk),
        "name": "auditor",
    }
    assert is_signed(manifest, trusted_keys())
    assert not is_signed(manifest | {"rows": 1}, trusted_keys())
    assert not is_signed(manifest, [])
    assert not is_signed(manifest | {"signature": "xyz"}, trusted_keys())


def test_without_a_key_a_manifest_is_unsigned_and_says_so(team: Cast, settings: object) -> None:
    settings.AUDIT_KEY = b""  # type: ignore[attr-defined]
    manifest = exported(team).manifest
    assert manifest is not None
    assert "signature" not in manifest
    assert not is_signed(manifest, ["ab"])


def test_csv_obeys_rfc_4180_and_no_cell_is_a_formula(team: Cast) -> None:
    names = ['=HYPERLINK("http://evil.example")', "@SUM(A1)", "-1+2", 'a,b\r\nc "d"', "+x", "\t=1"]
    for name in names:
        target = Target("x", "1", name)
        record(by=SYSTEM, action="x.done", target=target, tenant=team.tenant, reason=name)
    text = text_of(exported(team, format="csv"))
    rows = list(csv.DictReader(io.StringIO(text, newline="")))
    assert text.endswith("\r\n")
    assert not [cell for row in rows for cell in row.values() if cell[:1] in tuple("=+-@")]
    wanted = {f"'{names[0]}", "'@SUM(A1)", "'-1+2", names[3], "'+x", "'\t=1"}
    assert {row["target_name"] for row in rows} >= wanted
    assert {row["reason"] for row in rows} >= wanted


def test_ocsf_events_have_what_their_class_requires(team: Cast) -> None:
    exported_lines = lines_of(exported(team, format="ocsf"))
    required = {"activity_id", "category_uid", "class_uid", "type_uid", "time", "severity_id", "metadata"}
    for event in exported_lines:
        assert required | {"actor", "api", "src_endpoint"} <= event.keys()
        assert event["type_uid"] == event["class_uid"] * 100 + event["activity_id"]  # type: ignore[operator]
    created = exported_lines[0]
    assert (created["class_uid"], created["activity_id"], created["status_id"]) == (6003, 1, 1)
    assert created["api"]["operation"] == "tenant.created"  # type: ignore[index]
    assert created["metadata"]["tenant_uid"] == team.tenant.pk  # type: ignore[index]


def test_ecs_and_cadf_say_who_did_what_to_what(team: Cast) -> None:
    ecs = lines_of(exported(team, format="ecs", action="member.added"))[0]
    assert ecs["event"]["action"] == "member.added"  # type: ignore[index]
    assert ecs["event"]["category"] == ["iam"] and ecs["event"]["type"] == ["creation"]  # type: ignore[index]
    assert ecs["organization"] == {"id": team.tenant.pk, "name": "Acme"}
    cadf = lines_of(exported(team, format="cadf", action="member.added"))[0]
    assert (cadf["action"], cadf["outcome"], cadf["eventType"]) == ("create", "success", "activity")
    assert cadf["initiator"]["name"] == "tests"  # type: ignore[index]
    assert {each["name"] for each in cadf["attachments"]} >= {"after", "chain"}  # type: ignore[attr-defined]


def test_parquet_has_times_and_numbers(team: Cast) -> None:
    table = parquet.read_table(io.BytesIO(file_of(exported(team, format="parquet")).read_bytes()))
    assert table.column("position").to_pylist()[:2] == [1, 2]
    assert str(table.schema.field("at").type) == "timestamp[us, tz=UTC]"
    assert table.column("action").to_pylist()[0] == "tenant.created"


@pytest.mark.parametrize("format", sorted(FORMATS))
def test_every_format_is_written_page_by_page(
    team: Cast, format: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = file_of(exported(team, format=format, until="2000-01-01")).read_bytes()
    assert reread_rows(exported(team, format=format)) > 5
    assert len(whole) < 10_000


def reread_rows(export: AuditExport) -> int:
    return reread(export).rows_done


def test_pages_leave_nothing_out_and_repeat_nothing(team: Cast, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = text_of(exported(team, who="operator", action="member.added"))
    monkeypatch.setattr(reading, "PAGE_ROWS", 2)
    assert text_of(exported(team, who="operator", action="member.added")) == whole
    assert whole.count("\n") == len(team.members)


def test_filters_narrow_an_export_and_the_manifest_says_so(team: Cast) -> None:
    update_tenant(by=SYSTEM, tenant=team.tenant, name="Acme Inc.", requests_per_s=7.0)
    export = exported(team, q="INC. 7.0", action="tenant.updated")
    assert [line["record"]["action"] for line in lines_of(export)] == ["tenant.updated"]  # type: ignore[index]
    assert export.manifest is not None
    assert export.manifest["filters"] == {"q": "INC. 7.0", "action": "tenant.updated"}
    assert reread_rows(exported(team, since="2100-01-01")) == 0
    assert reread_rows(exported(team, since="nonsense", until="2026-02-31")) > 5


@pytest.mark.parametrize("who", ["viewer", "developer"])
def test_who_may_not_export_is_refused(team: Cast, who: str) -> None:
    with pytest.raises(NotAllowed):
        request_export(by=team.actor(who), tenant=team.tenant, format="csv", asked=ALL)


@pytest.mark.parametrize("who", ["stranger", "nobody", "anonymous"])
def test_others_exports_are_not_there(team: Cast, who: str) -> None:
    with pytest.raises(NotFound):
        request_export(by=team.actor(who), tenant=team.tenant, format="csv", asked=ALL)
    with pytest.raises(NotFound):
        access_export(team.actor(who), exported(team).pk)
    with pytest.raises(NotFound):
        access_export(team.actor(who), "exp_unknown")


def test_only_operators_export_the_platform(team: Cast) -> None:
    with pytest.raises(NotAllowed):
        request_export(by=team.actor("owner"), tenant=None, format="csv", asked=ALL)
    export = exported(team, who="operator")
    with pytest.raises(NotFound):
        access_export(team.actor("owner"), export.pk)


def test_an_unknown_format_is_refused(team: Cast) -> None:
    with pytest.raises(Invalid):
        request_export(by=team.actor("owner"), tenant=team.tenant, format="xlsx", asked=ALL)


def test_exports_that_are_written_already_are_few(team: Cast) -> None:
    for _ in range(exports.MAX_UNFINISHED):
        request_export(by=team.actor("owner"), tenant=team.tenant, format="csv", asked=ALL)
    with pytest.raises(Conflict):
        request_export(by=team.actor("owner"), tenant=team.tenant, format="csv", asked=ALL)
    request_export(by=team.actor("operator"), tenant=None, format="csv", asked=ALL)


def test_an_export_is_written_once_and_begun_anew_when_it_was_left(team: Cast) -> None:
    export = request_export(by=team.actor("owner"), tenant=team.tenant, format="csv", asked=ALL)
    with all_tenants("a test"):
        AuditExport.objects.filter(pk=export.pk).update(state="running", progressed_at=NOW)
    assert left(NOW) == []
    assert not run_export(export.pk, NOW)
    later = NOW + exports.SILENT_FOR + timedelta(seconds=1)
    assert left(later) == [export.pk]
    assert run_export(export.pk, later)
    assert not run_export(export.pk, later)


def test_a_writer_that_stood_still_and_goes_on_leaves_alone_what_another_wrote(
    team: Cast, monkeypatch: pytest.MonkeyPatch
) -> None:
    export = request_export(by=team.actor("auditor"), tenant=team.tenant, format="jsonl", asked=ALL)
    chain_now()
    monkeypatch.setattr(reading, "PAGE_ROWS", 1)
    another_done: list[bool] = []

    def stands_still(page: list[Row]) -> None:
        if not another_done:
            another_done.append(True)
            assert run_export(export.pk, datetime.now(UTC) + 2 * exports.SILENT_FOR), "it was silent for long"

    monkeypatch.setattr(exports, "pages", lambda events: _with(stands_still, reading.pages(events)))
    assert run_export(export.pk, NOW)
    done = reread(export)
    assert (done.state, done.rows_done) == ("done", len(links(team.tenant.pk)))
    assert sha256(file_of(done).read_bytes()).hexdigest() == done.sha256
    assert [path.name for path in file_of(done).parent.iterdir()] == [done.pk], "and no draft"


def test_a_file_that_cannot_be_put_in_its_place_fails_and_says_so(
    team: Cast, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*given: object) -> None:
        raise OSError("no space is left")

    monkeypatch.setattr(Path, "replace", full)
    export = exported(team)
    assert (export.state, export.error) == ("failed", "The file could not be written.")


def _with(each: Callable[[list[Row]], None], found: Iterable[list[Row]]) -> Iterator[list[Row]]:
    for page in found:
        each(page)
        yield page


def test_what_cannot_be_written_fails_alone_and_is_told(team: Cast, settings: object, tmp_path: Path) -> None:
    (tmp_path / "audit").write_text("a file where a directory should be")
    export = request_export(by=team.actor("owner"), tenant=team.tenant, format="csv", asked=ALL)
    assert run_export(export.pk, NOW)
    assert (reread(export).state, last_event().action) == ("failed", "audit.export_failed")
    with pytest.raises(NotFound):
        file_of(reread(export))


def test_a_file_is_gone_after_a_week_and_the_row_says_so(team: Cast) -> None:
    export = exported(team)
    path = file_of(export)
    assert exports.prune(NOW + exports.KEPT - timedelta(seconds=1)) == 0
    assert exports.prune(NOW + exports.KEPT) == 1
    assert not path.exists()
    assert reread(export).state == "expired"


def test_asking_and_carrying_away_are_in_the_trail(team: Cast) -> None:
    export = exported(team)
    assert last_event().action == "audit.export_requested"
    exports.record_download(by=team.actor("auditor"), export=export)
    event = last_event()
    assert (event.action, event.actor_name, event.tenant_id) == ("audit.exported", "auditor", team.tenant.pk)
    assert event.after is not None
    assert event.after["sha256"] == export.sha256
