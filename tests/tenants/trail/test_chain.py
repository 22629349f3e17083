"""Every event gets its place in its chain when its transaction commits, and the bytes hashed are documented."""

from __future__ import annotations

import json
from hashlib import sha256
from threading import Barrier, Thread

import pytest
from django.db import IntegrityError, connection, transaction
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tenants.actions.tenants import update_tenant
from tenants.audit import Target, record
from tenants.models import Tenant
from tenants.scoping import all_tenants
from tenants.trail.canonical import GENESIS, record_text
from tenants.trail.models import AuditLink
from tenants.trail.verify import _ROWS, verify, verify_all
from tests.tenants.conftest import SYSTEM, Cast


def chain_now() -> None:
    """What a commit would do."""
    with connection.cursor() as cursor:
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
        cursor.execute("SET CONSTRAINTS ALL DEFERRED")


def links(chain: str) -> list[AuditLink]:
    return list(AuditLink.objects.filter(chain=chain).order_by("position"))


def rows(chain: str) -> list[dict[str, object]]:
    with all_tenants("a test reads the trail"), connection.cursor() as cursor:
        cursor.execute(_ROWS, [chain, 0, 1_000])
        names = [column.name for column in cursor.description]
        return [dict(zip(names, values, strict=True)) for values in cursor.fetchall()]


def test_each_tenant_has_a_chain_and_the_platform_one(team: Cast) -> None:
    chain_now()
    found = {link.chain for link in AuditLink.objects.all()}
    assert found == {team.tenant.pk, team.other.pk, "platform"}
    for chain in found:
        assert [link.position for link in links(chain)] == list(range(1, len(links(chain)) + 1))


def test_a_link_holds_the_hash_of_the_one_before_and_its_own_record(team: Cast) -> None:
    update_tenant(by=SYSTEM, tenant=team.tenant, name='Acme "Ω" Inc.', requests_per_s=2.5)
    chain_now()
    previous = GENESIS
    for row in rows(team.tenant.pk):
        text = record_text(row)
        assert bytes(row["prev_hash"]) == previous  # type: ignore[arg-type]
        assert bytes(row["hash"]) == sha256(previous + text.encode()).digest()  # type: ignore[arg-type]
        assert json.loads(text)["position"] == row["position"]
        previous = bytes(row["hash"])  # type: ignore[arg-type]
    last = json.loads(text)
    assert last["after"] == {"name": 'Acme "Ω" Inc.', "requests_per_s": 2.5}
    assert list(last) == sorted(last)


TEXTS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=40)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(text=TEXTS, facts=st.none() | st.dictionaries(TEXTS, VALUES, max_size=4))
def test_what_the_database_hashes_is_what_is_documented(
    team: Cast, text: str, facts: dict[str, object] | None
) -> None:
    with transaction.atomic():
        record(by=SYSTEM, action="x.done", target=Target("x", "1", text), after=facts, reason=text)
        chain_now()
        verdict = verify("platform")
        assert verdict.broken is None
        assert verdict.rows == len(links("platform"))
        transaction.set_rollback(True)


@pytest.mark.django_db(transaction=True)
def test_many_writers_of_two_chains_leave_both_whole_and_wait_in_no_circle() -> None:
    """In both orders, in one transaction each: a lock per chain would deadlock."""
    tenants = [Tenant.objects.create(slug=f"team-{n}", name=f"Team {n}") for n in (1, 2)]
    start, failures = Barrier(4), []

    def write(order: list[Tenant]) -> None:
        try:
            start.wait(10)
            for _ in range(20):
                with transaction.atomic():
                    for tenant in order:
                        record(by=SYSTEM, action="x.done", target=tenant, tenant=tenant)
        except Exception as error:  # told below, by the thread that may fail the test
            failures.append(error)
        finally:
            connection.close()

    threads = [Thread(target=write, args=(tenants[:: 1 if n % 2 else -1],)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert failures == []
    assert [len(links(tenant.pk)) for tenant in tenants] == [80, 80]
    assert [verdict.broken for verdict in verify_all()] == [None, None]


@pytest.mark.parametrize("table", ["auditevent", "auditlink", "auditcheckpoint"])
def test_the_database_refuses_to_empty_what_proves_the_trail(team: Cast, table: str) -> None:
    chain_now()
    with connection.as_owner(), connection.cursor() as cursor:
        cursor.execute(f"ALTER TABLE tenants_{table} ENABLE TRIGGER tenants_{table}_no_truncate")
        with pytest.raises(IntegrityError, match="append-only"), transaction.atomic():
            cursor.execute(f"TRUNCATE tenants_{table} CASCADE")


@pytest.mark.parametrize(
    "statement", ["UPDATE tenants_auditlink SET position = 9", "DELETE FROM tenants_auditlink"]
)
def test_the_database_refuses_to_change_a_link(team: Cast, statement: str) -> None:
    chain_now()
    with (
        pytest.raises(IntegrityError, match="append-only"),
        transaction.atomic(),
        connection.cursor() as cursor,
    ):
        cursor.execute(statement)
