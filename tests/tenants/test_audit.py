"""The audit trail: in the transaction or not at all, for ever, and without secrets."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from django.db import DatabaseError, IntegrityError, connection, transaction
from django.test import RequestFactory

from tenants import changes
from tenants.actions.keys import create_key, revoke_key
from tenants.actions.members import change_role
from tenants.actions.tenants import create_tenant, suspend_tenant, update_tenant
from tenants.actions.users import create_user
from tenants.actors import Actor
from tenants.audit import Target, changed, record
from tenants.models import AuditEvent, Tenant
from tenants.roles import Role
from tenants.scoping import all_tenants, tenant_scope
from tests.tenants.conftest import SYSTEM, Cast, count_events, last_event


def test_an_event_tells_who_did_what_to_what_from_where(team: Cast) -> None:
    request = RequestFactory().get("/", REMOTE_ADDR="203.0.113.9", HTTP_USER_AGENT="curl/8 " + "x" * 400)
    request.request_id = "req_abc"  # type: ignore[attr-defined]
    by = Actor.of_user(team.users["owner"], request)
    change_role(by=by, membership=team.members["viewer"], role=Role.DEVELOPER)
    event = last_event()
    assert (event.actor_type, event.actor_id, event.actor_name) == ("user", by.id, "owner")
    assert (event.action, event.target_type, event.target_id, event.target_name) == (
        "member.role_changed",
        "member",
        team.members["viewer"].pk,
        "viewer",
    )
    assert (event.before, event.after) == ({"role": "viewer"}, {"role": "developer"})
    assert (event.tenant_id, event.tenant_name) == (team.tenant.pk, "Acme")
    assert (event.ip, event.request_id, len(event.user_agent)) == ("203.0.113.9", "req_abc", 256)
    assert event.event_id.startswith("evt_") and event.outcome == "success"


def test_an_update_records_only_what_differs(team: Cast) -> None:
    update_tenant(by=SYSTEM, tenant=team.tenant, name="Acme", requests_per_s=50.0, burst=100)
    event = last_event()
    assert event.before == {"requests_per_s": None, "burst": None}
    assert event.after == {"requests_per_s": 50.0, "burst": 100}
    count = count_events()
    update_tenant(by=SYSTEM, tenant=team.tenant, name="Acme")
    assert count_events() == count


def test_a_refused_change_leaves_no_event(team: Cast) -> None:
    count = count_events()

    def refuse(kind: str, object_id: str) -> None:
        raise RuntimeError("not published")

    changes.subscribe(refuse)
    try:
        with pytest.raises(RuntimeError, match="not published"):
            suspend_tenant(by=SYSTEM, tenant=team.tenant)
    finally:
        changes.unsubscribe(refuse)
    assert count_events() == count
    assert Tenant.objects.get(pk=team.tenant.pk).is_active


@pytest.mark.django_db(transaction=True)
def test_an_event_cannot_be_recorded_outside_a_transaction() -> None:
    with pytest.raises(RuntimeError, match="transaction"):
        record(by=SYSTEM, action="x.done", target=Target("x", "1", "x"))


@pytest.mark.django_db(transaction=True)
def test_a_change_cannot_be_announced_outside_a_transaction() -> None:
    with pytest.raises(RuntimeError, match="transaction"):
        changes.announce("tenant", "tnt_x")


@pytest.mark.parametrize(
    "statement", ["UPDATE tenants_auditevent SET reason = 'x'", "DELETE FROM tenants_auditevent"]
)
def test_the_database_refuses_to_change_an_event(team: Cast, statement: str) -> None:
    count = count_events()
    with (
        all_tenants("a test goes past the managers"),
        pytest.raises(IntegrityError, match="append-only"),
        transaction.atomic(),
        connection.cursor() as cursor,
    ):
        cursor.execute(statement)
    assert count_events() == count


def test_the_orm_cannot_change_an_event_either(team: Cast) -> None:
    event = last_event()
    event.reason = "rewritten"
    for change in (event.save, event.delete):
        with all_tenants("a test"), pytest.raises(DatabaseError), transaction.atomic():
            change()


def test_no_secret_reaches_the_trail(team: Cast) -> None:
    key, token = create_key(by=team.actor("developer"), tenant=team.tenant, name="ci")
    revoke_key(by=team.actor("owner"), key=key)
    create_user(by=SYSTEM, username="fresh", password="correct horse battery staple")
    with all_tenants("a test reads the trail"), connection.cursor() as cursor:
        cursor.execute("SELECT coalesce(string_agg(e::text, '|'), '') FROM tenants_auditevent e")
        (everything,) = cursor.fetchone()
    assert "key.revoked" in everything
    secret = token.split("_", 2)[2]
    assert secret not in everything
    assert bytes(key.digest).hex() not in everything
    assert "correct horse" not in everything


def test_values_under_secret_names_are_hidden_and_the_rest_is_kept(team: Cast) -> None:
    facts = {
        "password": "p",
        "signing_secret": "s",
        "url": "https://example.org",
        "nested": {"api_token": "t", "at": datetime(2026, 1, 2, tzinfo=UTC)},
        "tags": {"a"},
    }
    record(by=SYSTEM, action="x.done", target=Target("x", "1", "x"), after=facts)
    assert last_event().after == {
        "password": "***",
        "signing_secret": "***",
        "url": "https://example.org",
        "nested": {"api_token": "***", "at": "2026-01-02T00:00:00+00:00"},
        "tags": ["a"],
    }


def test_a_tenants_people_see_their_events_and_no_platform_ones(team: Cast) -> None:
    create_user(by=SYSTEM, username="fresh")
    with tenant_scope(team.tenant.pk):
        assert set(AuditEvent.objects.values_list("tenant_id", flat=True)) == {team.tenant.pk}
    with all_tenants("a test"):
        assert AuditEvent.objects.filter(tenant_id=None, action="user.created").exists()


def test_events_number_themselves_in_order(team: Cast) -> None:
    create_tenant(by=SYSTEM, slug="initech", name="Initech")
    with all_tenants("a test"):
        seqs = list(AuditEvent.objects.order_by("at", "seq").values_list("seq", flat=True))
    assert seqs == sorted(seqs)


def test_changed_names_both_sides() -> None:
    assert changed({"a": 1, "b": 2, "c": 3}, {"a": 1, "b": 5}) == ({"b": 2}, {"b": 5})


@pytest.mark.django_db(transaction=True)
def test_counts_of_tokens_are_no_secrets() -> None:
    with transaction.atomic():
        event = record(
            by=SYSTEM,
            action="x.done",
            target=Target("x", "1", "x"),
            after={"max_tokens": 256, "tokens": 3, "id_token": "t"},
        )
    assert event.after == {"max_tokens": 256, "tokens": 3, "id_token": "***"}


TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"


@pytest.mark.parametrize(
    ("traceparent", "trace_id"),
    [
        (f"00-{TRACE}-00f067aa0ba902b7-01", TRACE),
        (f"cc-{TRACE}-00f067aa0ba902b7-01-more", TRACE),
        (f"00-{TRACE}-00f067aa0ba902b7-01-more", ""),
        (f"ff-{TRACE}-00f067aa0ba902b7-01", ""),
        (f"00-{'0' * 32}-00f067aa0ba902b7-01", ""),
        (f"00-{TRACE}-{'0' * 16}-01", ""),
        (f"00-{TRACE.upper()}-00f067aa0ba902b7-01", ""),
        ("", ""),
        ("nonsense", ""),
    ],
)
def test_an_event_holds_the_callers_trace(team: Cast, traceparent: str, trace_id: str) -> None:
    request = RequestFactory().post("/", headers={"traceparent": traceparent})
    by = Actor.of_user(team.users["owner"], request)
    update_tenant(by=by, tenant=team.tenant, name="Traced")
    assert last_event().trace_id == trace_id
