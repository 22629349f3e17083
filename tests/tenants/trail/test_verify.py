"""Whoever gets past the triggers is found: the first row that is not what was written is named."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from django.core.management import CommandError, call_command
from django.db import connection

from tenants.actions.tenants import update_tenant
from tenants.models import AuditEvent
from tenants.scoping import all_tenants
from tenants.trail import checkpoints, signing
from tenants.trail.canonical import GENESIS, link_hash, record_text
from tenants.trail.models import AuditCheckpoint, AuditLink
from tenants.trail.verify import verify, verify_all
from tests.tenants.conftest import SYSTEM, Cast
from tests.tenants.trail.test_chain import chain_now, rows

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


@pytest.fixture
def chain(team: Cast) -> str:
    """The first tenant's chain with ten renames, signed at its end."""
    for number in range(10):
        update_tenant(by=SYSTEM, tenant=team.tenant, name=f"Acme {number}")
    chain_now()
    checkpoints.sign_grown_chains(NOW)
    return team.tenant.pk


@pytest.fixture
def tamper(chain: str) -> Callable[..., None]:
    """SQL of the tables' owner, who switched the triggers off."""

    def execute(statement: str, *values: object) -> None:
        switch_triggers("DISABLE")
        with connection.as_owner(), connection.cursor() as cursor:
            cursor.execute(statement, values)
            assert cursor.rowcount > 0
        switch_triggers("ENABLE")

    return execute


def switch_triggers(to: str) -> None:
    with connection.as_owner(), connection.cursor() as cursor:
        for table in ("auditevent", "auditlink", "auditcheckpoint"):
            cursor.execute(f"ALTER TABLE tenants_{table} {to} TRIGGER USER")


def seq_at(chain: str, position: int) -> int:
    return AuditLink.objects.get(chain=chain, position=position).event_seq


def found(chain: str) -> tuple[str, int]:
    broken = verify(chain).broken
    assert broken is not None
    return broken.what, broken.position


def test_a_whole_trail_verifies(chain: str) -> None:
    verdict = verify(chain)
    assert (verdict.broken, verdict.checkpoints) == (None, 1)
    assert verdict.rows == AuditLink.objects.filter(chain=chain).count() > 10
    assert all(each.broken is None for each in verify_all())


@pytest.mark.parametrize(
    "change",
    [
        "reason = 'x'",
        "after = '{}'",
        "before = NULL",
        "at = at + interval '1 microsecond'",
        "outcome = 'failure'",
        "actor_id = 'other'",
        "ip = '192.0.2.1'",
        "request_id = 'req_x'",
        "event_id = 'evt_x'",
    ],
)
def test_an_edited_event_is_found(chain: str, tamper: Callable[..., None], change: str) -> None:
    tamper(f"UPDATE tenants_auditevent SET {change} WHERE seq = %s", seq_at(chain, 12))
    assert found(chain) == ("changed", 12)


def test_an_event_given_to_another_tenant_is_found_in_its_chain(
    chain: str, team: Cast, tamper: Callable[..., None]
) -> None:
    tamper("UPDATE tenants_auditevent SET tenant_id = %s WHERE seq = %s", team.other.pk, seq_at(chain, 5))
    assert found(chain) == ("changed", 5)


def test_a_deleted_event_is_found(chain: str, tamper: Callable[..., None]) -> None:
    tamper("DELETE FROM tenants_auditevent WHERE seq = %s", seq_at(chain, 4))
    assert found(chain) == ("missing", 4)


def test_an_event_deleted_with_its_link_is_found(chain: str, tamper: Callable[..., None]) -> None:
    seq = seq_at(chain, 4)
    tamper("DELETE FROM tenants_auditevent WHERE seq = %s", seq)
    tamper("DELETE FROM tenants_auditlink WHERE event_seq = %s", seq)
    assert found(chain) == ("missing", 4)


def test_a_gap_that_was_closed_is_found(chain: str, tamper: Callable[..., None]) -> None:
    seq = seq_at(chain, 4)
    tamper("DELETE FROM tenants_auditlink WHERE event_seq = %s", seq)
    tamper("DELETE FROM tenants_auditevent WHERE seq = %s", seq)
    for position in range(5, AuditLink.objects.filter(chain=chain).count() + 2):
        tamper(
            "UPDATE tenants_auditlink SET position = position - 1 WHERE chain = %s AND position = %s",
            chain,
            position,
        )
    assert found(chain) == ("link_changed", 4)


def test_an_event_inserted_past_the_chain_is_found(chain: str, tamper: Callable[..., None]) -> None:
    tamper(
        "INSERT INTO tenants_auditevent (event_id, tenant_id, tenant_name, actor_type, actor_id, actor_name,"
        " action, target_type, target_id, target_name, outcome, reason, request_id, trace_id, user_agent)"
        " VALUES ('evt_forged', %s, '', 'user', '1', 'mallory', 'x.done', 'x', '1', 'x', 'success', '', '', '', '')",
        chain,
    )
    assert found(chain)[0] == "not_in_chain"


def test_two_events_that_changed_places_are_found(chain: str, tamper: Callable[..., None]) -> None:
    first, second = seq_at(chain, 5), seq_at(chain, 6)
    for old, new in ((first, -1), (second, first), (-1, second)):
        tamper("UPDATE tenants_auditlink SET event_seq = %s WHERE event_seq = %s", new, old)
    assert found(chain) == ("changed", 5)


def test_a_tail_cut_off_before_a_checkpoint_is_found(chain: str, tamper: Callable[..., None]) -> None:
    cut = seq_at(chain, 8)
    tamper("DELETE FROM tenants_auditlink WHERE chain = %s AND position >= 8", chain)
    tamper("DELETE FROM tenants_auditevent WHERE tenant_id = %s AND seq >= %s", chain, cut)
    assert found(chain) == ("cut_off", 8)


def test_a_chain_computed_anew_contradicts_what_was_signed(chain: str, tamper: Callable[..., None]) -> None:
    """The attacker knows how hashes are made; the key they lack."""
    tamper("UPDATE tenants_auditevent SET reason = 'harmless' WHERE seq = %s", seq_at(chain, 5))
    previous = GENESIS
    for row in rows(chain):
        digest = link_hash(previous, record_text(row))
        tamper(
            "UPDATE tenants_auditlink SET prev_hash = %s, hash = %s WHERE event_seq = %s",
            previous,
            digest,
            row["event_seq"],
        )
        previous = digest
    assert found(chain) == ("rewritten", AuditLink.objects.filter(chain=chain).count())


@pytest.mark.parametrize("key", ["0" * 64, "zz", ""])
def test_a_checkpoint_signed_with_another_key_proves_nothing(
    chain: str, tamper: Callable[..., None], key: str
) -> None:
    tamper("UPDATE tenants_auditcheckpoint SET public_key = %s WHERE chain = %s", key, chain)
    assert found(chain)[0] == "forged"


def test_a_signature_over_something_else_proves_nothing(chain: str, tamper: Callable[..., None]) -> None:
    tamper("UPDATE tenants_auditcheckpoint SET at = at + interval '1 day' WHERE chain = %s", chain)
    assert found(chain)[0] == "forged"


def test_what_a_retired_key_signed_stays_proven(chain: str, settings: object) -> None:
    retired = signing.public_key()
    settings.AUDIT_KEY = b"another key, of this year"  # type: ignore[attr-defined]
    assert found(chain)[0] == "forged"
    settings.AUDIT_TRUSTED_KEYS = [retired]  # type: ignore[attr-defined]
    assert verify(chain).broken is None


def test_a_chain_is_signed_again_only_when_it_grew(chain: str, team: Cast) -> None:
    assert checkpoints.sign_grown_chains(NOW) == 0
    update_tenant(by=SYSTEM, tenant=team.tenant, name="Acme")
    chain_now()
    assert checkpoints.sign_grown_chains(NOW) == 1
    assert verify(chain).checkpoints == 2


def test_without_a_key_nothing_is_signed(team: Cast, settings: object) -> None:
    settings.AUDIT_KEY = b""  # type: ignore[attr-defined]
    chain_now()
    assert checkpoints.sign_grown_chains(NOW) == 0
    assert not AuditCheckpoint.objects.exists()
    assert verify(team.tenant.pk).broken is None


def test_the_command_tells_what_is_broken_and_fails(
    chain: str, tamper: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    call_command("audit", "verify")
    assert f"{chain}: " in capsys.readouterr().out
    tamper("UPDATE tenants_auditevent SET reason = 'x' WHERE seq = %s", seq_at(chain, 5))
    with pytest.raises(CommandError, match="position 5"):
        call_command("audit", "verify", "--tenant", "acme")
    assert "BROKEN" in capsys.readouterr().out
    call_command("audit", "verify", "--tenant", "platform")
    with pytest.raises(CommandError, match="no tenant"):
        call_command("audit", "verify", "--tenant", "initech")


def test_events_that_exist_before_a_migration_are_chained_by_it(
    chain: str, tamper: Callable[..., None]
) -> None:
    """The migration calls what the trigger calls, in the order of their numbers."""
    tamper("DELETE FROM tenants_auditlink")
    tamper("DELETE FROM tenants_auditcheckpoint")
    with connection.as_owner(), connection.cursor() as cursor:
        cursor.execute(
            "SELECT tenants_link_audit_event(e) FROM (SELECT * FROM tenants_auditevent ORDER BY seq) e"
        )
    assert [each.broken for each in verify_all()] == [None, None, None]
    with all_tenants("a test"):
        assert AuditLink.objects.count() == AuditEvent.objects.count()
