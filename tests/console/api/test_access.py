"""Every address and method of the API × everybody, from one table. What is not listed fails."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import transaction
from django.test import Client
from django.urls import URLPattern, reverse

from console.api.urls import urlpatterns
from tests.console.alerting import MATCHERS, SLOW, alert, alert_rule, channel, silence, tomorrow
from tests.console.api.asking import ask, token_of, with_key
from tests.console.api.rows import (
    RECEIVER,
    account,
    alias,
    archive,
    binding,
    deployment,
    encoder,
    event,
    export,
    grant,
    invitation,
    key,
    member,
    model,
    next_year,
    nothing,
    organisation,
    organisation_admin,
    organisation_tenant,
    price,
    profile,
    quota,
    session,
    tenant,
    tuning,
    verification,
    version,
    webhook,
)
from tests.console.conftest import World

PEOPLE = ("operator", "owner", "viewer", "stranger", "reader", "robot")
"""The stranger owns another tenant; `reader` is a key with `manage:read`, `robot` one with `infer`."""


Arguments = Callable[[World], list[object]]
Statuses = tuple[int, int, int, int, int, int]


def body_of(world: World, name: str) -> dict[str, Any]:
    """A body with which the request succeeds for whoever may send it."""
    bodies: dict[str, dict[str, Any]] = {
        "POST api_tenants": {"slug": "initech", "name": "Initech"},
        "POST api_members": {"login": "nobody", "role": "viewer"},
        "PATCH api_member": {"role": "viewer"},
        "POST api_accounts": {"username": "new"},
        "PATCH api_account": {"platform_role": "support"},
        "POST api_invitations": {"email": "new@example.org", "role": "viewer"},
        "POST api_organisations": {"name": "new"},
        "PATCH api_organisation": {"max_tenants": 3},
        "POST api_organisation_admins": {"login": "developer"},
        "POST api_organisation_tenants": {"slug": "initech", "name": "Initech"},
        "POST api_tenant_keys": {"name": "new"},
        "POST api_models": {"name": "new"},
        "POST api_versions": {"engine": "echo"},
        "POST api_grants": {"tenant": world.cast.other.pk},
        "PUT api_alias": {"version": world.version.pk},
        "POST api_deployments": {"model": world.model.pk, "version": world.version.pk},
        "POST api_deployment_scale": {"replicas": 0},
        "POST api_deployment_switch": {"version": world.version.pk},
        "POST api_version_trust": {"reason": "read"},
        "POST api_profiles": {"name": "new"},
        "POST api_bindings": {"profile": world.profile.pk, "endpoint": "infer"},
        "POST api_tenant_quotas": {"resource": "requests", "window": "day", "limit": 5, "key": world.key.pk},
        "PATCH api_quota": {"limit": 9},
        "POST api_price_end": {"effective_from": (next_year() + timedelta(days=1)).isoformat()},
        "POST api_exports": {"format": "csv", "tenant": world.cast.tenant.pk},
        "PUT api_audit_retention": {"months": 12},
        "POST api_audit_verifications": {"tenant": world.cast.tenant.pk},
        "POST api_audit_webhooks": {"tenant": world.cast.tenant.pk, "url": RECEIVER},
        "PATCH api_audit_webhook": {"url": RECEIVER},
        "POST api_tuning_apply": {"candidate": 1},
        "POST api_alert_rules": {"tenant": world.cast.tenant.pk, "name": "new", "condition": SLOW},
        "PATCH api_alert_rule": {"severity": "critical"},
        "POST api_alert_channels": {
            "tenant": world.cast.tenant.pk,
            "name": "new",
            "kind": "webhook",
            "address": RECEIVER,
        },
        "POST api_silences": {
            "tenant": world.cast.tenant.pk,
            "matchers": MATCHERS,
            "ends_at": tomorrow().isoformat(),
            "comment": "known",
        },
    }
    return bodies.get(name, {})


# method and name → arguments, status for each of PEOPLE
TABLE: dict[str, tuple[Arguments, Statuses]] = {
    "GET api_me": (nothing, (200, 200, 200, 200, 200, 200)),
    "GET api_tenants": (nothing, (200, 200, 200, 200, 200, 200)),
    "POST api_tenants": (nothing, (201, 403, 403, 403, 403, 403)),
    "GET api_tenant": (tenant, (200, 200, 200, 404, 200, 403)),
    "PATCH api_tenant": (tenant, (200, 200, 403, 404, 403, 403)),
    "POST api_tenant_suspend": (tenant, (200, 403, 403, 404, 403, 403)),
    "POST api_tenant_resume": (tenant, (409, 403, 403, 404, 403, 403)),
    "GET api_members": (tenant, (200, 200, 200, 404, 200, 403)),
    "POST api_members": (
        tenant,
        (201, 422, 403, 404, 403, 403),
    ),  # a tenant's people invite whom they never met
    "GET api_member": (member, (200, 200, 200, 404, 200, 403)),
    "PATCH api_member": (member, (200, 200, 403, 404, 403, 403)),
    "DELETE api_member": (member, (204, 204, 403, 404, 403, 403)),
    "GET api_accounts": (nothing, (200, 403, 403, 403, 403, 403)),
    "POST api_accounts": (nothing, (201, 403, 403, 403, 403, 403)),
    "GET api_account": (account, (200, 404, 404, 404, 404, 404)),
    "PATCH api_account": (account, (200, 404, 404, 404, 404, 404)),
    "GET api_account_memberships": (account, (200, 404, 404, 404, 404, 404)),
    "POST api_account_reset_factor": (account, (409, 404, 404, 404, 404, 404)),
    "GET api_account_sessions": (account, (200, 404, 404, 404, 404, 404)),
    "POST api_account_end_sessions": (account, (200, 404, 404, 404, 404, 404)),
    "GET api_sessions": (nothing, (200, 200, 200, 200, 403, 403)),
    "POST api_sessions_end_others": (nothing, (200, 200, 200, 200, 403, 403)),
    "DELETE api_session": (session, (204, 404, 404, 404, 403, 403)),
    "GET api_invitations": (tenant, (200, 200, 403, 404, 403, 403)),
    "POST api_invitations": (tenant, (201, 201, 403, 404, 403, 403)),
    "GET api_invitation": (invitation, (200, 200, 403, 404, 403, 403)),
    "POST api_invitation_renew": (invitation, (201, 201, 403, 404, 403, 403)),
    "POST api_invitation_withdraw": (invitation, (200, 200, 403, 404, 403, 403)),
    "GET api_organisations": (nothing, (200, 403, 403, 403, 403, 403)),
    "POST api_organisations": (nothing, (201, 403, 403, 403, 403, 403)),
    "GET api_organisation": (organisation, (200, 404, 404, 404, 404, 404)),
    "PATCH api_organisation": (organisation, (200, 404, 404, 404, 404, 404)),
    "GET api_organisation_admins": (organisation, (200, 404, 404, 404, 404, 404)),
    "POST api_organisation_admins": (organisation, (201, 404, 404, 404, 404, 404)),
    "DELETE api_organisation_admin": (organisation_admin, (204, 404, 404, 404, 404, 404)),
    "GET api_organisation_tenants": (organisation, (200, 404, 404, 404, 404, 404)),
    "POST api_organisation_tenants": (organisation, (201, 404, 404, 404, 404, 404)),
    "PUT api_organisation_tenant": (organisation_tenant, (200, 404, 404, 404, 404, 404)),
    "DELETE api_organisation_tenant": (organisation_tenant, (204, 404, 404, 404, 404, 404)),
    "GET api_keys": (nothing, (200, 200, 200, 200, 200, 200)),
    "GET api_tenant_keys": (tenant, (200, 200, 200, 404, 200, 403)),
    "POST api_tenant_keys": (tenant, (201, 201, 403, 404, 403, 403)),
    "GET api_key": (key, (200, 200, 200, 404, 200, 403)),
    "POST api_key_roll": (key, (201, 201, 403, 404, 403, 403)),
    "POST api_key_revoke": (key, (200, 200, 403, 404, 403, 403)),
    "GET api_models": (nothing, (200, 200, 200, 200, 200, 200)),
    "POST api_models": (nothing, (201, 403, 403, 403, 403, 403)),
    "GET api_model": (model, (200, 200, 200, 404, 200, 200)),
    "PATCH api_model": (model, (200, 403, 403, 404, 403, 403)),
    "GET api_grants": (model, (200, 403, 403, 404, 403, 403)),
    "POST api_grants": (model, (201, 403, 403, 404, 403, 403)),
    "DELETE api_grant": (grant, (204, 403, 403, 404, 403, 403)),
    "GET api_aliases": (model, (200, 200, 200, 404, 200, 200)),
    "PUT api_alias": (alias, (200, 403, 403, 404, 403, 403)),
    "GET api_versions": (model, (200, 200, 200, 404, 200, 200)),
    "POST api_versions": (model, (201, 403, 403, 404, 403, 403)),
    "GET api_version": (version, (200, 200, 200, 404, 200, 200)),
    "PATCH api_version": (version, (200, 403, 403, 404, 403, 403)),
    "POST api_version_validate": (version, (409, 403, 403, 404, 403, 403)),
    "POST api_version_trust": (version, (409, 403, 403, 404, 403, 403)),
    "POST api_version_archive": (version, (409, 403, 403, 404, 403, 403)),
    "GET api_deployments": (nothing, (200, 403, 403, 403, 403, 403)),
    "POST api_deployments": (nothing, (409, 403, 403, 403, 403, 403)),
    "GET api_deployment": (deployment, (200, 404, 404, 404, 404, 404)),
    "POST api_deployment_scale": (deployment, (200, 404, 404, 404, 404, 404)),
    "POST api_deployment_switch": (deployment, (200, 404, 404, 404, 404, 404)),
    "POST api_deployment_stop": (deployment, (200, 404, 404, 404, 404, 404)),
    "GET api_profiles": (nothing, (200, 200, 200, 200, 200, 200)),
    "POST api_profiles": (nothing, (201, 403, 403, 403, 403, 403)),
    "GET api_profile": (profile, (200, 200, 200, 404, 200, 200)),
    "PATCH api_profile": (profile, (200, 403, 403, 404, 403, 403)),
    "DELETE api_profile": (profile, (409, 403, 403, 404, 403, 403)),
    "GET api_bindings": (nothing, (200, 200, 200, 200, 200, 200)),
    "POST api_bindings": (nothing, (201, 403, 403, 403, 403, 403)),
    "GET api_binding": (binding, (200, 200, 200, 404, 200, 200)),
    "DELETE api_binding": (binding, (204, 403, 403, 404, 403, 403)),
    "GET api_quotas": (nothing, (200, 200, 200, 200, 200, 200)),
    "GET api_quota": (quota, (200, 200, 200, 404, 200, 404)),
    "PATCH api_quota": (quota, (200, 200, 403, 404, 403, 404)),
    "DELETE api_quota": (quota, (204, 204, 403, 404, 403, 404)),
    "GET api_tenant_quotas": (tenant, (200, 200, 200, 404, 200, 403)),
    "POST api_tenant_quotas": (tenant, (201, 201, 403, 404, 403, 403)),
    "GET api_prices": (nothing, (200, 200, 200, 200, 200, 200)),
    "POST api_prices": (nothing, (201, 403, 403, 403, 403, 403)),
    "GET api_price": (price, (200, 200, 200, 404, 200, 200)),
    "DELETE api_price": (price, (204, 403, 403, 404, 403, 403)),
    "POST api_price_end": (price, (201, 403, 403, 404, 403, 403)),
    "GET api_usage": (nothing, (200, 200, 200, 200, 403, 403)),
    "GET api_promises": (nothing, (200, 200, 200, 200, 403, 403)),
    "GET api_metrics": (nothing, (200, 200, 200, 200, 200, 200)),
    "GET api_metrics_marks": (nothing, (200, 200, 200, 200, 200, 200)),
    "GET api_metrics_replicas": (nothing, (200, 403, 403, 403, 403, 403)),
    "GET api_metrics_query": (nothing, (200, 200, 200, 200, 403, 403)),
    "GET api_alerts": (nothing, (200, 200, 200, 200, 200, 200)),
    "GET api_alert": (alert, (200, 200, 200, 404, 200, 404)),
    "POST api_alert_acknowledge": (alert, (200, 200, 403, 404, 403, 404)),
    "GET api_alert_history": (nothing, (200, 200, 200, 200, 200, 200)),
    "GET api_alert_rules": (nothing, (200, 200, 200, 200, 200, 200)),
    "POST api_alert_rules": (nothing, (201, 201, 403, 422, 403, 403)),
    "GET api_alert_rule": (alert_rule, (200, 200, 200, 404, 200, 404)),
    "PATCH api_alert_rule": (alert_rule, (200, 200, 403, 404, 403, 404)),
    "DELETE api_alert_rule": (alert_rule, (204, 204, 403, 404, 403, 404)),
    "GET api_alert_channels": (nothing, (200, 200, 200, 200, 200, 200)),
    "POST api_alert_channels": (nothing, (201, 201, 403, 422, 403, 403)),
    "GET api_alert_channel": (channel, (200, 200, 200, 404, 200, 404)),
    "DELETE api_alert_channel": (channel, (204, 204, 403, 404, 403, 404)),
    "POST api_alert_channel_test": (channel, (200, 200, 403, 404, 403, 404)),
    "GET api_alert_deliveries": (channel, (200, 200, 200, 404, 200, 404)),
    "POST api_alert_channel_resend": (channel, (409, 409, 403, 404, 403, 404)),
    "GET api_silences": (nothing, (200, 200, 200, 200, 200, 200)),
    "POST api_silences": (nothing, (201, 201, 403, 422, 403, 403)),
    "GET api_silence": (silence, (200, 200, 200, 404, 200, 404)),
    "POST api_silence_end": (silence, (200, 200, 403, 404, 403, 404)),
    "GET api_events": (nothing, (200, 200, 403, 200, 403, 403)),
    "GET api_event": (event, (200, 200, 403, 404, 403, 403)),
    "GET api_exports": (nothing, (200, 200, 403, 200, 403, 403)),
    "POST api_exports": (nothing, (201, 201, 403, 422, 403, 403)),
    "GET api_export": (export, (200, 200, 404, 404, 404, 404)),
    "GET api_export_content": (export, (404, 404, 404, 404, 404, 404)),
    "GET api_export_manifest": (export, (404, 404, 404, 404, 404, 404)),
    "GET api_audit_trail": (nothing, (200, 200, 403, 404, 403, 403)),
    "GET api_audit_retention": (nothing, (200, 200, 403, 404, 403, 403)),
    "PUT api_audit_retention": (nothing, (200, 200, 403, 404, 403, 403)),
    "GET api_audit_verifications": (nothing, (200, 200, 403, 200, 403, 403)),
    "POST api_audit_verifications": (nothing, (201, 201, 403, 422, 403, 403)),
    "GET api_audit_verification": (verification, (200, 200, 404, 404, 404, 404)),
    "GET api_audit_archives": (nothing, (200, 200, 403, 200, 403, 403)),
    "GET api_audit_archive": (archive, (200, 200, 404, 404, 404, 404)),
    "GET api_audit_archive_content": (archive, (404, 404, 404, 404, 404, 404)),
    "GET api_audit_archive_manifest": (archive, (200, 200, 404, 404, 404, 404)),
    "GET api_audit_webhooks": (nothing, (200, 200, 403, 200, 403, 403)),
    "POST api_audit_webhooks": (nothing, (201, 201, 403, 422, 403, 403)),
    "GET api_audit_webhook": (webhook, (200, 200, 404, 404, 404, 404)),
    "PATCH api_audit_webhook": (webhook, (200, 200, 404, 404, 404, 404)),
    "DELETE api_audit_webhook": (webhook, (204, 204, 404, 404, 404, 404)),
    "POST api_audit_webhook_roll": (webhook, (201, 201, 404, 404, 404, 404)),
    "POST api_audit_webhook_pause": (webhook, (200, 200, 404, 404, 404, 404)),
    "POST api_audit_webhook_resume": (webhook, (200, 200, 404, 404, 404, 404)),
    "GET api_audit_dead_letters": (webhook, (200, 200, 404, 404, 404, 404)),
    "POST api_audit_webhook_resend": (webhook, (409, 409, 404, 404, 404, 404)),
    "GET api_audit_deliveries": (webhook, (200, 200, 404, 404, 404, 404)),
    "GET api_usage_forecast": (nothing, (200, 200, 200, 200, 403, 403)),
    "GET api_statement": (tenant, (200, 200, 200, 404, 403, 403)),
    "GET api_standings": (tenant, (200, 200, 200, 404, 200, 403)),
    "GET api_standing": (quota, (200, 200, 200, 404, 200, 404)),
    "GET api_hosts": (nothing, (200, 403, 403, 403, 403, 403)),
    "GET api_replicas": (nothing, (200, 403, 403, 403, 403, 403)),
    "GET api_version_tunings": (encoder, (200, 404, 404, 404, 404, 404)),
    "POST api_version_tunings": (encoder, (201, 404, 404, 404, 404, 404)),
    "GET api_tuning": (tuning, (200, 404, 404, 404, 404, 404)),
    "POST api_tuning_cancel": (tuning, (200, 404, 404, 404, 404, 404)),
    "POST api_tuning_apply": (tuning, (201, 404, 404, 404, 404, 404)),
}
OF_TRAIL = {"GET api_audit_trail", "GET api_audit_retention", "PUT api_audit_retention"}
"""Addresses that say behind the question mark whose trail is meant."""
OPEN = {"GET api_openapi"}
"""Addresses that ask nobody who they are."""


class Undo(Exception):
    """Takes back what one request did."""


def client_of(world: World, who: str) -> Client:
    if who == "reader":
        return with_key(token_of(world, "manage:read"))
    if who == "robot":
        return with_key(token_of(world, "infer"))
    return world.client(who)


def status(world: World, client: Client, name: str) -> int:
    """Of one request, which leaves nothing behind."""
    method, _, view = name.partition(" ")
    answered = 0
    try:
        with transaction.atomic():
            address = reverse(view, args=TABLE[name][0](world))
            address += f"?tenant={world.cast.tenant.pk}" if name in OF_TRAIL else ""
            body = None if method in ("GET", "DELETE") else body_of(world, name)
            answered = ask(client, method, address, body).status_code
            raise Undo
    except Undo:
        return answered


def test_every_address_and_method_is_in_the_table() -> None:
    found = {f"{method} {pattern.name}" for pattern in urlpatterns for method in _methods(pattern)}
    assert found == set(TABLE) | OPEN


@pytest.mark.parametrize("who", PEOPLE)
def test_everybody_reaches_exactly_what_is_theirs(world: World, who: str) -> None:
    client = client_of(world, who)
    expected = {name: row[1][PEOPLE.index(who)] for name, row in TABLE.items()}
    assert {name: status(world, client, name) for name in TABLE} == expected


def test_without_an_account_nothing_answers(world: World) -> None:
    client = Client()
    assert {status(world, client, name) for name in TABLE} == {401}


def test_what_is_not_yours_looks_like_what_does_not_exist(world: World) -> None:
    client = world.client("stranger")
    for name, (arguments, statuses) in TABLE.items():
        if arguments is nothing or statuses[PEOPLE.index("stranger")] != 404:
            continue
        method, _, view = name.partition(" ")
        real = arguments(world)
        answers = []
        for ids in (real, ["none_0000000000000000" for _ in real]):
            answer = ask(client, method, reverse(view, args=ids), body_of(world, name))
            answers.append({**answer.json(), "request_id": "", "instance": ""})
        assert answers[0] == answers[1], name


def _methods(pattern: URLPattern) -> set[str]:
    view = getattr(pattern.callback, "view_class", None)
    if view is None:
        return {"GET"}
    return {m.upper() for m in ("get", "post", "put", "patch", "delete") if hasattr(view, m)}
