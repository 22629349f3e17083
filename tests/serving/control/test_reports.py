"""Reports are applied once, in order, and a poisoned one harms nobody else."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from django.db import OperationalError, connections
from django.utils import timezone

from serving.contract import (
    CostCurve,
    EventReport,
    HostReport,
    KeyMisuse,
    KeySeen,
    KeysReport,
    ReplicaReport,
    ReportBody,
    TensorSpec,
    UsageReport,
    UsageRow,
    ValidationReport,
    encode_body,
)
from serving.control import reports
from serving.control.catalog.models import Version
from serving.control.fleet.actions import deploy
from serving.control.fleet.models import Host
from serving.control.seam_tables import ReportRow
from tenants.actions.keys import create_key
from tenants.actions.tenants import create_tenant
from tenants.actors import Actor
from tenants.models import AuditEvent, UsageMinute
from tenants.scoping import all_tenants

pytestmark = pytest.mark.django_db

SYSTEM = Actor.system("tests")


def usage(minute: int = 60, requests: int = 1) -> UsageReport:
    row = UsageRow(
        minute=minute,
        tenant_id="tnt_a",
        key_id="key_a",
        model="m",
        version_id="mv_a",
        sla_class="batch",
        requests=requests,
        device_us=5,
    )
    return UsageReport(rows=(row,))


_sequence = iter(range(1, 1_000_000))


def send(body: ReportBody, process: str = "gateway-0:1") -> ReportRow:
    return ReportRow.objects.create(
        process=process,
        sequence=next(_sequence),
        kind=str(type(body).__struct_config__.tag),
        body=msgspec.json.decode(encode_body(body)),
    )


def counted() -> int:
    with all_tenants("test"):
        return sum(UsageMinute.objects.values_list("requests", flat=True))


def test_usage_is_added_to_the_ledger_once() -> None:
    send(usage(requests=3))
    send(usage(requests=4))
    assert reports.ingest() == 2
    assert reports.ingest() == 0
    assert counted() == 7


def test_a_poisoned_report_is_set_aside_with_its_error_and_the_rest_goes_on() -> None:
    send(usage(requests=1))
    poison = ReportRow.objects.create(
        process="p", sequence=1, kind="usage", body={"type": "usage", "rows": 7}
    )
    unknown = ReportRow.objects.create(process="p", sequence=2, kind="news", body={"type": "news"})
    below_zero = send(usage(requests=-5))
    send(usage(requests=1))
    assert reports.ingest() == 5
    assert counted() == 2
    for row in (poison, unknown, below_zero):
        row.refresh_from_db()
        assert row.error and row.applied_at is None
    assert reports.ingest() == 0


def test_the_databases_own_trouble_poisons_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    row = send(usage())

    def fail(*_: Any) -> None:
        raise OperationalError("deadlock detected")

    with monkeypatch.context() as patched:
        patched.setattr(reports, "record_usage", fail)
        with pytest.raises(OperationalError):
            reports.ingest()
    row.refresh_from_db()
    assert row.error == "" and row.applied_at is None
    assert reports.ingest() == 1


def test_a_heartbeat_makes_the_host_known() -> None:
    send(HostReport(host="alpha", epoch=2, devices=(), replica_dir="/r"))
    send(HostReport(host="alpha", epoch=1, devices=(), replica_dir="/older"))
    reports.ingest()
    host = Host.objects.get(name="alpha")
    assert (host.epoch, host.replica_dir, host.is_live()) == (2, "/r", True)


def test_a_replicas_state_arrives(
    operator: Actor, make_version: Callable[..., Version], make_host: Callable[..., Host]
) -> None:
    make_host()
    version = make_version()
    deployment = deploy(by=operator, model=version.model, version=version)
    replica = deployment.replicas.get()
    send(ReplicaReport(replica_id=replica.pk, version_id=version.pk, host="alpha", epoch=1, state="ready"))
    reports.ingest()
    assert deployment.is_ready


def test_what_happened_in_a_replica_stands_in_the_audit_trail(
    operator: Actor, make_version: Callable[..., Version], make_host: Callable[..., Host]
) -> None:
    make_host()
    version = make_version()
    replica = deploy(by=operator, model=version.model, version=version).replicas.get()
    happened = EventReport(
        replica_id=replica.pk, host="alpha", epoch=3, event="batch.out_of_memory", numbers={"cap_tokens": 200}
    )
    send(happened)
    send(msgspec.structs.replace(happened, replica_id="rep_unknown"))
    send(msgspec.structs.replace(happened, host="elsewhere"))
    assert reports.ingest() == 3
    with all_tenants("test"):
        event = AuditEvent.objects.get(action="replica.batch.out_of_memory")
    assert (event.actor_name, event.target_id, event.outcome) == ("agent", replica.pk, "failure")
    assert event.after == {"host": "alpha", "epoch": 3, "cap_tokens": 200}


def test_a_validation_makes_its_version_ready(make_version: Callable[..., Version]) -> None:
    version = make_version(state="validating", validation_attempt=2)
    late = ValidationReport(version_id=version.pk, attempt=1, ok=False, reason="of an earlier attempt")
    good = ValidationReport(
        version_id=version.pk,
        attempt=2,
        ok=True,
        inputs=(TensorSpec(name="x", datatype="FP32", shape=(-1, 4)),),
        cost=CostCurve(a_ms=1.0, b_ms_per_row=0.0, c_ms_per_token=0.1),
        memory_bytes=123,
    )
    send(late)
    send(good)
    assert reports.ingest() == 2
    version.refresh_from_db()
    assert version.state == "ready"
    assert version.input_specs() == good.inputs and version.cost_curve() == good.cost


@pytest.mark.django_db(transaction=True)
def test_ingesters_share_the_work_and_count_nothing_twice() -> None:
    for _ in range(60):
        send(usage())
    done: list[int] = []

    def run() -> None:
        try:
            done.append(reports.ingest())
        finally:
            connections.close_all()

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    done.append(reports.ingest())
    assert sum(done) == 60 and counted() == 60


def test_applied_reports_are_forgotten_usage_last_and_poison_never() -> None:
    send(usage())
    send(HostReport(host="h", epoch=1, devices=(), replica_dir="/r"))
    ReportRow.objects.create(process="p", sequence=1, kind="usage", body={}, error="poison")
    reports.ingest()
    later = timezone.now() + timedelta(hours=1)
    assert reports.prune(usage_before=later - timedelta(days=7), others_before=later) == 1
    assert reports.prune(usage_before=later, others_before=later) == 1
    assert ReportRow.objects.count() == 1


def test_what_keys_did_arrives() -> None:
    tenant = create_tenant(by=SYSTEM, slug="acme", name="Acme")
    key, _ = create_key(by=SYSTEM, tenant=tenant, name="ci")
    row = {"key_id": key.pk, "tenant_id": tenant.pk}
    send(
        KeysReport(
            at=1.0,
            seen=(KeySeen(**row, address_class="private", network="10.0.0.0/24"),),
            misused=(KeyMisuse(**row, reason="model", count=2, at=1.0, detail="m", digest=b"\x00\xff"),),
        )
    )
    reports.ingest()
    with all_tenants("test"):
        key.refresh_from_db()
        assert AuditEvent.objects.filter(action="key.misused", tenant_id=tenant.pk).count() == 1
    assert key.last_used_network == "10.0.0.0/24"
