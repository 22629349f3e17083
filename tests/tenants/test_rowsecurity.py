"""PostgreSQL shows the rows of the scope and no others, however the question is put."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import psycopg
import pytest
from django.apps import apps
from django.db import DatabaseError, ProgrammingError, connection, transaction
from django.db.utils import InternalError
from django.test.utils import CaptureQueriesContext

from serving.control.catalog.actions import create_model
from serving.control.catalog.models import ModelGrant
from serving.control.profiles.actions import bind_profile, create_profile
from serving.control.profiles.models import ProfileBinding
from tenants.actions.keys import create_key
from tenants.actions.tenants import create_tenant
from tenants.models import ApiKey, AuditEvent, Membership, Tenant, UsageMinute
from tenants.rowsecurity import POLICY
from tenants.scoping import all_tenants, tenant_scope
from tenants.usage import record_usage
from tests.tenants.conftest import SYSTEM, Cast, build_cast
from tests.tenants.test_usage import row

ROWS = [Membership, ApiKey, AuditEvent, UsageMinute, ModelGrant]
"""Models of which `filled` makes rows for both tenants."""


def owned_tables() -> list[str]:
    columns = {
        model._meta.db_table: {f.column for f in model._meta.concrete_fields} for model in apps.get_models()
    }
    return sorted(table for table, names in columns.items() if "tenant_id" in names)


@pytest.fixture
def filled(team: Cast) -> Cast:
    for tenant in (team.tenant, team.other):
        key, _ = create_key(by=SYSTEM, tenant=tenant, name="ci")
        record_usage("gateway-1", [row(team, tenant_id=tenant.pk, key_id=key.pk)])
    profile = create_profile(
        by=SYSTEM, name="quick", sla_class="interactive", target_p95_ms=50, deadline_ms=500
    )
    create_model(by=SYSTEM, name="minilm", tenants=[team.tenant, team.other])
    for bound in (team.tenant, team.other):
        bind_profile(by=SYSTEM, profile=profile, tenant=bound)
    return team


def raw(statement: str, *values: Any) -> list[Any]:
    with connection.cursor() as cursor:
        cursor.execute(statement, values or None)
        return list(cursor.fetchall())


def owners_of(table: str) -> set[str | None]:
    return {tenant_id for (tenant_id,) in raw(f'SELECT DISTINCT tenant_id FROM "{table}"')}


@pytest.mark.parametrize("table", owned_tables())
def test_every_table_of_tenants_rows_has_the_policy_and_binds_its_owner_too(db: None, table: str) -> None:
    """A new one: `ProtectTenantRows("table")` in its migration (`tenants.rowsecurity`)."""
    [flags] = raw("SELECT relrowsecurity, relforcerowsecurity FROM pg_class WHERE relname = %s", table)
    policies = {name for (name,) in raw("SELECT policyname FROM pg_policies WHERE tablename = %s", table)}
    assert flags == (True, True)
    assert POLICY in policies <= {POLICY, f"{POLICY}_shared"}


def test_every_policy_says_the_same(db: None) -> None:
    said = raw("SELECT DISTINCT qual, with_check FROM pg_policies WHERE policyname = %s", POLICY)
    assert len(said) == 1
    assert said[0][0] == said[0][1]


@pytest.mark.parametrize("model", ROWS)
def test_a_raw_query_in_a_tenants_scope_finds_its_rows_only(filled: Cast, model: type[Any]) -> None:
    table = model._meta.db_table
    for tenant in (filled.tenant, filled.other):
        with tenant_scope(tenant.pk):
            assert owners_of(table) == {tenant.pk}
    with tenant_scope([filled.tenant.pk, filled.other.pk]):
        assert owners_of(table) == {filled.tenant.pk, filled.other.pk}
    with all_tenants("a test"):
        assert owners_of(table) >= {filled.tenant.pk, filled.other.pk}


@pytest.mark.parametrize("model", ROWS)
def test_a_raw_query_outside_any_scope_finds_nothing(filled: Cast, model: type[Any]) -> None:
    assert owners_of(model._meta.db_table) == set()
    with tenant_scope([]):
        assert owners_of(model._meta.db_table) == set()


@pytest.mark.parametrize("statement", ["SELECT 1 / %s", "nonsense %s"])
def test_what_failed_in_one_scope_leaves_no_other_scope_behind(filled: Cast, statement: str) -> None:
    """Batches go behind a savepoint of their own: what undoes it undoes what PostgreSQL was told in it."""
    with transaction.atomic(), connection.cursor() as cursor:
        with all_tenants("a test"):
            cursor.execute("SELECT 1")
        with tenant_scope(filled.tenant.pk):
            with pytest.raises(DatabaseError):
                cursor.executemany(statement, [(0,)])
            assert owners_of("tenants_apikey") == {filled.tenant.pk}


def test_what_binds_everybody_is_everybodys_to_read_and_the_platforms_to_change(filled: Cast) -> None:
    table = ProfileBinding._meta.db_table
    assert owners_of(table) == {None}
    with tenant_scope(filled.tenant.pk):
        assert owners_of(table) == {filled.tenant.pk, None}
        assert {row.tenant_id for row in ProfileBinding.objects.all()} == {filled.tenant.pk, None}
        assert ProfileBinding._base_manager.filter(tenant=None).update(endpoint="infer") == 0
        assert ProfileBinding._base_manager.filter(tenant=None).delete()[0] == 0
    with all_tenants("a test"):
        assert owners_of(table) == {filled.tenant.pk, filled.other.pk, None}


def test_a_platforms_own_event_is_shown_to_no_tenant(filled: Cast) -> None:
    with all_tenants("a test"):
        assert None in owners_of("tenants_auditevent")


def test_relations_and_joins_end_at_the_scope(filled: Cast) -> None:
    with tenant_scope(filled.tenant.pk):
        joined = Tenant.objects.filter(api_keys__name="ci")
        assert list(joined) == [filled.tenant]
        assert filled.users["stranger"].memberships(manager="_base_manager").count() == 0


def test_a_row_of_another_tenant_is_neither_written_changed_nor_deleted(filled: Cast) -> None:
    with all_tenants("a test"):
        theirs = ApiKey._base_manager.get(tenant=filled.other)
    with tenant_scope(filled.tenant.pk):
        assert ApiKey._base_manager.filter(pk=theirs.pk).update(name="mine now") == 0
        assert ApiKey._base_manager.filter(pk=theirs.pk).delete()[0] == 0
        mine = ApiKey.objects.get()
        mine.tenant = filled.other
        with pytest.raises(ProgrammingError, match="row-level security"), transaction.atomic():
            mine.save()


@pytest.mark.parametrize("ids", ["*", "tnt_a,*", "x' OR 'a'='a", "tnt_%s", ""])
def test_an_odd_id_opens_nothing(filled: Cast, ids: str) -> None:
    with tenant_scope(ids):
        assert owners_of("tenants_apikey") == set()


def test_a_scope_that_changes_in_a_transaction_is_told_again(filled: Cast) -> None:
    with transaction.atomic(), tenant_scope(filled.tenant.pk):
        with all_tenants("a test"):
            assert len(owners_of("tenants_apikey")) == 2
        assert owners_of("tenants_apikey") == {filled.tenant.pk}
        with tenant_scope(filled.other.pk):
            assert owners_of("tenants_apikey") == {filled.other.pk}
    assert owners_of("tenants_apikey") == set()


def test_a_savepoint_that_is_rolled_back_takes_no_scope_along(filled: Cast) -> None:
    with tenant_scope(filled.tenant.pk):
        for fail in (KeyError, DatabaseError):
            with pytest.raises(fail), transaction.atomic(), tenant_scope(filled.other.pk):
                assert owners_of("tenants_apikey") == {filled.other.pk}
                if fail is DatabaseError:
                    raw("SELECT 1 / 0")
                raise KeyError
            assert owners_of("tenants_apikey") == {filled.tenant.pk}
        with pytest.raises(KeyError), transaction.atomic():
            with all_tenants("a test"):
                owners_of("tenants_apikey")
            raise KeyError
        assert owners_of("tenants_apikey") == {filled.tenant.pk}


def test_telling_is_no_statement_of_its_own(filled: Cast) -> None:
    with CaptureQueriesContext(connection) as seen, tenant_scope(filled.tenant.pk):
        ApiKey.objects.count()
    assert len(seen) == 1


def test_many_at_once_and_copies_see_the_scope(filled: Cast) -> None:
    with tenant_scope(filled.tenant.pk), connection.cursor() as cursor:
        cursor.executemany("UPDATE tenants_apikey SET name = %s", [("a",), ("b",)])
        assert cursor.rowcount == 2
        with cursor.copy("COPY (SELECT tenant_id FROM tenants_apikey) TO STDOUT") as copy:
            assert [tenant_id for (tenant_id,) in copy.rows()] == [filled.tenant.pk]


def test_a_read_in_pieces_sees_the_scope(filled: Cast) -> None:
    with tenant_scope(filled.tenant.pk):
        found = {key.tenant_id for key in ApiKey._base_manager.iterator(chunk_size=1)}
    assert found == {filled.tenant.pk}


def test_the_application_works_as_a_role_that_owns_nothing(db: None) -> None:
    from django.conf import settings

    [(role,)] = raw("SELECT current_user")
    assert role == settings.DATABASE_ROLE
    assert raw("SELECT tablename FROM pg_tables WHERE tableowner = current_user") == []
    with connection.as_owner():  # type: ignore[attr-defined]
        assert raw("SELECT current_user") != [(role,)]
    assert raw("SELECT current_user") == [(role,)]


def test_the_application_cannot_lift_the_policy(db: None) -> None:
    for statement in (
        "ALTER TABLE tenants_apikey DISABLE ROW LEVEL SECURITY",
        "ALTER TABLE tenants_apikey NO FORCE ROW LEVEL SECURITY",
        f"DROP POLICY {POLICY} ON tenants_apikey",
        "TRUNCATE tenants_apikey",
    ):
        with (
            pytest.raises((ProgrammingError, InternalError)),
            transaction.atomic(),
            connection.cursor() as cursor,
        ):
            cursor.execute(statement)


@pytest.fixture
def committed(transactional_db: None) -> Iterator[Cast]:
    cast = build_cast()
    for tenant in (cast.tenant, cast.other):
        create_key(by=SYSTEM, tenant=tenant, name="ci")
    yield cast


def test_outside_a_transaction_each_statement_sees_its_scope_and_leaves_nothing(committed: Cast) -> None:
    mine = {committed.tenant.pk}
    with tenant_scope(committed.tenant.pk), connection.cursor() as cursor:
        assert owners_of("tenants_apikey") == mine
        cursor.executemany("UPDATE tenants_apikey SET name = %s", [("a",), ("b",)])
        assert cursor.rowcount == 2
        with cursor.copy("COPY (SELECT tenant_id FROM tenants_apikey) TO STDOUT") as copy:
            assert {tenant_id for (tenant_id,) in copy.rows()} == mine
        assert {key.tenant_id for key in ApiKey._base_manager.iterator(chunk_size=1)} == mine
        with pytest.raises(DatabaseError):
            cursor.execute("SELECT 1 / 0")
        assert owners_of("tenants_apikey") == mine
    left = connection.connection.execute("SELECT current_setting('tidegate.tenants', true)").fetchone()
    assert left[0] in (None, "")
    assert owners_of("tenants_apikey") == set()


def test_the_next_borrower_of_a_pooled_connection_inherits_no_scope(committed: Cast) -> None:
    with tenant_scope(committed.tenant.pk):
        assert owners_of("tenants_apikey")
        pid = connection.connection.info.backend_pid
        connection.close()
    for _ in range(20):
        assert owners_of("tenants_apikey") == set()
        if connection.connection.info.backend_pid == pid:
            break
        connection.close()


def test_a_transaction_that_is_rolled_back_leaves_no_scope_behind(committed: Cast) -> None:
    with pytest.raises(KeyError), transaction.atomic(), all_tenants("a test"):
        assert owners_of("tenants_apikey")
        raise KeyError
    with transaction.atomic():
        assert owners_of("tenants_apikey") == set()


@pytest.mark.parametrize("is_in_transaction", [False, True])
def test_statements_of_every_kind_are_told(committed: Cast, is_in_transaction: bool) -> None:
    block: AbstractContextManager[Any] = transaction.atomic() if is_in_transaction else nullcontext()
    statement = "SELECT tenant_id FROM tenants_apikey"
    with block, tenant_scope(committed.other.pk), connection.cursor() as cursor:
        for query in (statement, psycopg.sql.SQL(statement), statement.encode()):
            cursor.cursor.execute(query)
            assert cursor.cursor.fetchall() == [(committed.other.pk,)]


def test_the_owner_of_a_table_is_bound_as_well(committed: Cast) -> None:
    """The login, where no role could be made: FORCE."""
    params = connection.get_connection_params() | {"autocommit": True}
    with psycopg.connect(**params) as owner:
        assert owner.execute("SELECT count(*) FROM tenants_apikey").fetchone() == (0,)
        owner.execute("SET tidegate.tenants = '*'")
        assert owner.execute("SELECT count(*) FROM tenants_apikey").fetchone() == (2,)


def test_a_tenant_made_by_an_operator_who_looks_at_another_gets_its_rows(filled: Cast) -> None:
    with tenant_scope(filled.tenant.pk):
        fresh = create_tenant(by=SYSTEM, slug="initech", name="Initech")
        key, _ = create_key(by=SYSTEM, tenant=fresh, name="ci")
    with tenant_scope(fresh.pk):
        assert ApiKey.objects.get() == key


def test_statements_that_make_databases_go_alone_in_any_scope(db: None) -> None:
    with all_tenants("a test"), connection._nodb_cursor() as cursor:
        cursor.execute("SELECT current_setting('tidegate.tenants', true)")
        assert cursor.fetchone()[0] in (None, "")


def test_sums_over_all_tenants_exist_only_for_who_sees_them_all(filled: Cast) -> None:
    statement = "SELECT count(*) FROM tenants_usageplatformday"
    with tenant_scope([filled.tenant.pk, filled.other.pk]):
        assert raw(statement) == [(0,)]
        with pytest.raises(ProgrammingError, match="row-level security"), transaction.atomic():
            raw("INSERT INTO tenants_usageplatformday (day, model) SELECT DATE '2026-01-05', 'm'")
    with all_tenants("a test"):
        assert raw(statement) != [(0,)]
