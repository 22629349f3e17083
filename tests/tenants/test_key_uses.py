"""What gateways tell of keys becomes what people see: from where one was used last, and each misuse in the trail."""

from __future__ import annotations

from typing import Any

import pytest
from django.conf import settings

from serving.contract import KeyMisuse, KeySeen
from tenants.actions.keys import create_key, revoke_key
from tenants.key_uses import record_misuse, record_seen
from tenants.keys import digest_secret, parse_token
from tenants.models import ApiKey, AuditEvent
from tenants.scoping import all_tenants
from tests.tenants.conftest import SYSTEM, Cast, count_events, last_event


def seen(team: Cast, key: ApiKey, **fields: Any) -> KeySeen:
    values = {"key_id": key.pk, "tenant_id": team.tenant.pk, "address_class": "public"} | fields
    return KeySeen(**values)


def misuse(team: Cast, key: ApiKey, **fields: Any) -> KeyMisuse:
    facts = {
        "tenant_id": team.tenant.pk,
        "address": "192.0.2.7",
        "request_id": "req_1",
        "trace_id": "ab" * 16,
    }
    return KeyMisuse(**({"key_id": key.pk, "reason": "scope", "count": 3, "at": 1.0} | facts | fields))


def credential(team: Cast, key: ApiKey, token: str, **fields: Any) -> KeyMisuse:
    parsed = parse_token(token)
    assert parsed is not None
    digest = digest_secret(parsed[1], settings.KEY_PEPPER)
    return misuse(team, key, **({"reason": "credential", "tenant_id": "", "digest": digest} | fields))


def test_a_key_remembers_from_where_it_was_last_used(team: Cast) -> None:
    key, _ = create_key(by=SYSTEM, tenant=team.tenant, name="ci")
    record_seen([seen(team, key, network="192.0.2.0/24")])
    record_seen([seen(team, key, tenant_id=team.other.pk, address_class="loopback")])
    with all_tenants("a test"):
        key.refresh_from_db()
    assert (key.last_used_class, key.last_used_network) == ("public", "192.0.2.0/24")


@pytest.mark.parametrize(
    ("reason", "detail", "after"),
    [
        ("scope", "infer", {"misuse": "scope", "requests": 3, "scope": "infer"}),
        ("network", "", {"misuse": "network", "requests": 3}),
        ("model", "m", {"misuse": "model", "requests": 3, "model": "m"}),
    ],
)
def test_a_misuse_is_an_event_of_the_keys_tenant(
    team: Cast, reason: str, detail: str, after: dict[str, Any]
) -> None:
    key, _ = create_key(by=SYSTEM, tenant=team.tenant, name="ci")
    assert record_misuse([misuse(team, key, reason=reason, detail=detail)]) == 1
    event = last_event()
    assert (event.action, event.outcome, event.tenant_id) == ("key.misused", "failure", team.tenant.pk)
    assert (event.actor_type, event.actor_id, event.target_id) == ("api_key", key.pk, key.pk)
    assert (event.ip, event.request_id, event.trace_id) == ("192.0.2.7", "req_1", "ab" * 16)
    assert event.after == after


def test_a_revoked_key_that_is_used_is_an_event_when_the_token_is_its_own(team: Cast) -> None:
    key, token = create_key(by=SYSTEM, tenant=team.tenant, name="ci")
    before = count_events()
    assert record_misuse([credential(team, key, token)]) == 0  # it was just made, and not known there yet
    revoke_key(by=SYSTEM, key=key)
    made_up = credential(team, key, token, digest=bytes(32))
    unknown = credential(team, key, token, key_id="key_nobodysown00")
    assert record_misuse([made_up, unknown]) == 0
    assert count_events() == before + 1
    assert record_misuse([credential(team, key, token)]) == 1
    assert last_event().after == {"misuse": "revoked", "requests": 3}


def test_no_tenant_can_be_told_about_anothers_key(team: Cast) -> None:
    key, _ = create_key(by=SYSTEM, tenant=team.tenant, name="ci")
    odd = [misuse(team, key, tenant_id=team.other.pk), misuse(team, key, reason="of a newer release")]
    assert record_misuse(odd) == 0
    with all_tenants("a test"):
        assert not AuditEvent.objects.filter(action="key.misused").exists()


def test_a_report_of_nothing_is_fine(db: None) -> None:
    record_seen([])
    assert record_misuse([]) == 0
