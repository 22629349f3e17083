"""API keys: shown once, digested, checked by field, revoked once."""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.conf import settings
from django.core import serializers
from django.db import IntegrityError, transaction
from django.utils import timezone

from tenants.actions import keys
from tenants.actions.keys import create_key, revoke_key
from tenants.errors import Conflict, Invalid
from tenants.keys import digest_secret, parse_token
from tenants.models import ApiKey
from tenants.scoping import all_tenants
from tests.tenants.conftest import SYSTEM, Cast, last_event


def test_the_token_opens_the_key_and_is_kept_only_as_a_digest(
    team: Cast, announced: list[tuple[str, str]], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    key, token = create_key(by=team.actor("developer"), tenant=team.tenant, name="ci")
    parsed = parse_token(token)
    assert parsed is not None
    key_id, secret = parsed
    assert key_id == key.pk
    with all_tenants("a test"):
        stored = ApiKey.objects.get(pk=key.pk)
    assert bytes(stored.digest) == digest_secret(secret, settings.KEY_PEPPER)
    assert (stored.prefix, stored.last_four) == (f"tg_{key.pk.removeprefix('key_')}", token[-4:])
    assert stored.created_by == "developer"
    assert announced == [("key", key.pk)]
    shown = [
        repr(key),
        str(key),
        key.display,
        caplog.text.replace("%s", ""),
        *map(str, vars(stored).values()),
    ]
    assert not any(secret.decode() in text for text in shown)


def test_a_key_by_default_may_infer_with_every_model_for_ever(team: Cast) -> None:
    key, _ = create_key(by=SYSTEM, tenant=team.tenant, name="ci")
    assert (key.scopes, key.allowed_models, key.expires_at, key.state) == (["infer"], None, None, "active")


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"name": ""}, "name"),
        ({"name": "x" * 101}, "name"),
        ({"scopes": []}, "scopes"),
        ({"scopes": ["infer", "root"]}, "scopes"),
        ({"allowed_models": []}, "allowed_models"),
        ({"allowed_models": ["ok", "../etc"]}, "allowed_models"),
        ({"allowed_models": [f"m{n}" for n in range(101)]}, "allowed_models"),
        ({"expires_at": datetime(2020, 1, 1, tzinfo=UTC)}, "expires_at"),
        ({"expires_at": datetime(2999, 1, 1)}, "expires_at"),
    ],
)
def test_a_wrong_value_is_refused_at_its_field(team: Cast, values: dict[str, Any], field: str) -> None:
    with pytest.raises(Invalid) as caught:
        create_key(by=SYSTEM, tenant=team.tenant, **{"name": "ci", **values})
    assert set(caught.value.errors) == {field}


def test_every_wrong_field_is_told_at_once(team: Cast) -> None:
    with pytest.raises(Invalid) as caught:
        create_key(by=SYSTEM, tenant=team.tenant, name="ci", scopes=["root"], allowed_models=[])
    assert set(caught.value.errors) == {"scopes", "allowed_models"}


def test_a_name_is_used_by_one_active_key_of_a_tenant(team: Cast) -> None:
    key, _ = create_key(by=SYSTEM, tenant=team.tenant, name="ci")
    create_key(by=SYSTEM, tenant=team.other, name="ci")
    with pytest.raises(Invalid) as caught:
        create_key(by=SYSTEM, tenant=team.tenant, name="ci")
    assert caught.value.errors == {"name": "Another key of this tenant has this name."}
    revoke_key(by=SYSTEM, key=key)
    assert create_key(by=SYSTEM, tenant=team.tenant, name="ci")[0].state == "active"


def test_a_key_is_revoked_once_and_for_ever(team: Cast, announced: list[tuple[str, str]]) -> None:
    key, _ = create_key(by=SYSTEM, tenant=team.tenant, name="ci")
    assert revoke_key(by=team.actor("owner"), key=key).state == "revoked"
    assert (last_event().action, last_event().target_id) == ("key.revoked", key.pk)
    with pytest.raises(Conflict):
        revoke_key(by=SYSTEM, key=key)
    assert announced == [("key", key.pk)] * 2


def test_a_key_expires_by_itself(team: Cast) -> None:
    key, _ = create_key(
        by=SYSTEM, tenant=team.tenant, name="ci", expires_at=timezone.now() + timedelta(hours=1)
    )
    key.expires_at = timezone.now() - timedelta(seconds=1)
    assert key.state == "expired"


@pytest.mark.parametrize("values", [{"digest": b"short"}, {"scopes": []}])
def test_the_database_keeps_the_promises_behind_the_actions(team: Cast, values: dict[str, Any]) -> None:
    key, _ = create_key(by=SYSTEM, tenant=team.tenant, name="ci")
    with all_tenants("a test"), pytest.raises(IntegrityError), transaction.atomic():
        ApiKey.objects.filter(pk=key.pk).update(**values)


def test_the_digest_is_never_serialised(team: Cast) -> None:
    create_key(by=SYSTEM, tenant=team.tenant, name="ci")
    with all_tenants("a test"):
        text = serializers.serialize("json", ApiKey.objects.all())
    assert "digest" not in text


def test_a_tenant_holds_a_bounded_number_of_active_keys(team: Cast, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every gateway keeps them all in memory, and a page lists them all."""
    monkeypatch.setattr(keys, "MAX_ACTIVE_KEYS", 2)
    first, _ = create_key(by=SYSTEM, tenant=team.tenant, name="a")
    create_key(by=SYSTEM, tenant=team.tenant, name="b")
    with pytest.raises(Conflict, match="2 active keys"):
        create_key(by=SYSTEM, tenant=team.tenant, name="c")
    create_key(by=SYSTEM, tenant=team.other, name="c")
    revoke_key(by=SYSTEM, key=first)
    create_key(by=SYSTEM, tenant=team.tenant, name="c")
