"""Every address of the API × everybody there is to a tenant: who is answered, who refused, who told nothing."""

from __future__ import annotations

from dataclasses import replace

from tenants.actors import Actor
from tenants.roles import Right
from tests.console.api import test_access as api
from tests.console.conftest import World
from tests.console.everybody import (
    EVERYBODY,
    Asks,
    anyone,
    in_tenant,
    invite_everybody,
    of_organisation,
    of_trail,
    on_platform,
    shared,
    somewhere,
)

# fmt: off
API: dict[str, Asks] = {
    "GET api_me": anyone(),
    "GET api_tenants": anyone(),
    "POST api_tenants": on_platform(Right.MANAGE_TENANTS),
    "GET api_tenant": in_tenant(Right.VIEW),
    "PATCH api_tenant": in_tenant(Right.EDIT_TENANT),
    "POST api_tenant_suspend": shared(Right.MANAGE_TENANTS),
    "POST api_tenant_resume": shared(Right.MANAGE_TENANTS),
    "GET api_members": in_tenant(Right.VIEW),
    "POST api_members": in_tenant(Right.MANAGE_MEMBERS),
    "GET api_member": in_tenant(Right.VIEW),
    "PATCH api_member": in_tenant(Right.MANAGE_MEMBERS),
    "DELETE api_member": in_tenant(Right.MANAGE_MEMBERS),
    "GET api_accounts": on_platform(Right.VIEW_PLATFORM),
    "POST api_accounts": on_platform(Right.MANAGE_USERS),
    "GET api_account": on_platform(Right.VIEW_PLATFORM, hidden=True),
    "PATCH api_account": on_platform(Right.MANAGE_USERS, hidden=True),
    "GET api_account_memberships": on_platform(Right.VIEW_PLATFORM, hidden=True),
    "POST api_account_reset_factor": on_platform(Right.MANAGE_USERS, hidden=True),
    "GET api_account_sessions": on_platform(Right.VIEW_PLATFORM, hidden=True),
    "POST api_account_end_sessions": on_platform(Right.MANAGE_USERS, hidden=True),
    "GET api_sessions": anyone(),
    "POST api_sessions_end_others": anyone(),
    "DELETE api_session": Asks(Right.MANAGE_USERS, seen_by="holders"),
    "GET api_invitations": in_tenant(Right.MANAGE_MEMBERS),
    "POST api_invitations": in_tenant(Right.MANAGE_MEMBERS),
    "GET api_invitation": in_tenant(Right.MANAGE_MEMBERS),
    "POST api_invitation_renew": in_tenant(Right.MANAGE_MEMBERS),
    "POST api_invitation_withdraw": in_tenant(Right.MANAGE_MEMBERS),
    "GET api_organisations": Asks(Right.VIEW_PLATFORM, is_any=True, is_organisers=True),
    "POST api_organisations": on_platform(Right.MANAGE_ORGANISATIONS),
    "GET api_organisation": of_organisation(),
    "PATCH api_organisation": of_organisation(Right.MANAGE_ORGANISATIONS),
    "GET api_organisation_admins": of_organisation(),
    "POST api_organisation_admins": of_organisation(Right.MANAGE_ORGANISATIONS),
    "DELETE api_organisation_admin": of_organisation(Right.MANAGE_ORGANISATIONS),
    "GET api_organisation_tenants": of_organisation(),
    "POST api_organisation_tenants": of_organisation(Right.MANAGE_TENANTS, is_organisers=True),
    "PUT api_organisation_tenant": of_organisation(Right.MANAGE_ORGANISATIONS),
    "DELETE api_organisation_tenant": of_organisation(Right.MANAGE_ORGANISATIONS),
    "GET api_keys": anyone(),
    "GET api_tenant_keys": in_tenant(Right.VIEW),
    "POST api_tenant_keys": in_tenant(Right.MANAGE_KEYS),
    "GET api_key": in_tenant(Right.VIEW),
    "POST api_key_roll": in_tenant(Right.MANAGE_KEYS),
    "POST api_key_revoke": in_tenant(Right.MANAGE_KEYS),
    "GET api_models": anyone(),
    "POST api_models": on_platform(Right.MANAGE_MODELS),
    "GET api_model": shared(Right.VIEW),
    "PATCH api_model": shared(Right.MANAGE_MODELS),
    "GET api_grants": shared(Right.VIEW_PLATFORM),
    "POST api_grants": shared(Right.MANAGE_MODELS),
    "DELETE api_grant": shared(Right.MANAGE_MODELS),
    "GET api_aliases": shared(Right.VIEW),
    "PUT api_alias": shared(Right.MANAGE_MODELS),
    "GET api_versions": shared(Right.VIEW),
    "POST api_versions": shared(Right.MANAGE_MODELS),
    "GET api_version": shared(Right.VIEW),
    "PATCH api_version": shared(Right.MANAGE_MODELS),
    "POST api_version_validate": shared(Right.MANAGE_MODELS),
    "POST api_version_trust": shared(Right.MANAGE_MODELS),
    "POST api_version_archive": shared(Right.MANAGE_MODELS),
    "GET api_deployments": on_platform(Right.VIEW_PLATFORM),
    "POST api_deployments": on_platform(Right.MANAGE_FLEET),
    "GET api_deployment": on_platform(Right.VIEW_PLATFORM, hidden=True),
    "POST api_deployment_scale": on_platform(Right.MANAGE_FLEET, hidden=True),
    "POST api_deployment_switch": on_platform(Right.MANAGE_FLEET, hidden=True),
    "POST api_deployment_stop": on_platform(Right.MANAGE_FLEET, hidden=True),
    "GET api_profiles": anyone(),
    "POST api_profiles": on_platform(Right.MANAGE_PROFILES),
    "GET api_profile": shared(Right.VIEW),
    "PATCH api_profile": shared(Right.MANAGE_PROFILES),
    "DELETE api_profile": shared(Right.MANAGE_PROFILES),
    "GET api_bindings": anyone(),
    "POST api_bindings": on_platform(Right.MANAGE_PROFILES),
    "GET api_binding": shared(Right.VIEW),
    "DELETE api_binding": shared(Right.MANAGE_PROFILES),
    "GET api_quotas": anyone(),
    "GET api_quota": in_tenant(Right.VIEW),
    "PATCH api_quota": in_tenant(Right.MANAGE_KEYS),
    "DELETE api_quota": in_tenant(Right.MANAGE_KEYS),
    "GET api_tenant_quotas": in_tenant(Right.VIEW),
    "POST api_tenant_quotas": in_tenant(Right.MANAGE_KEYS),
    "GET api_prices": anyone(),
    "POST api_prices": on_platform(Right.MANAGE_PRICES),
    "GET api_price": shared(Right.VIEW),
    "DELETE api_price": shared(Right.MANAGE_PRICES),
    "POST api_price_end": shared(Right.MANAGE_PRICES),
    "GET api_usage": somewhere(Right.VIEW_USAGE),
    "GET api_promises": somewhere(Right.VIEW_USAGE),
    "GET api_metrics": anyone(),
    "GET api_metrics_marks": anyone(),
    "GET api_metrics_replicas": on_platform(Right.VIEW_PLATFORM),
    "GET api_metrics_query": somewhere(Right.VIEW_USAGE),
    "GET api_alerts": anyone(),
    "GET api_alert": in_tenant(Right.VIEW),
    "POST api_alert_acknowledge": in_tenant(Right.MANAGE_ALERTS),
    "GET api_alert_history": anyone(),
    "GET api_alert_rules": anyone(),
    "POST api_alert_rules": replace(in_tenant(Right.MANAGE_ALERTS), unseen=422),
    "GET api_alert_rule": in_tenant(Right.VIEW),
    "PATCH api_alert_rule": in_tenant(Right.MANAGE_ALERTS),
    "DELETE api_alert_rule": in_tenant(Right.MANAGE_ALERTS),
    "GET api_alert_channels": anyone(),
    "POST api_alert_channels": replace(in_tenant(Right.MANAGE_ALERTS), unseen=422),
    "GET api_alert_channel": in_tenant(Right.VIEW),
    "DELETE api_alert_channel": in_tenant(Right.MANAGE_ALERTS),
    "POST api_alert_channel_test": in_tenant(Right.MANAGE_ALERTS),
    "GET api_alert_deliveries": in_tenant(Right.VIEW),
    "POST api_alert_channel_resend": in_tenant(Right.MANAGE_ALERTS),
    "GET api_silences": anyone(),
    "POST api_silences": replace(in_tenant(Right.MANAGE_ALERTS), unseen=422),
    "GET api_silence": in_tenant(Right.VIEW),
    "POST api_silence_end": in_tenant(Right.MANAGE_ALERTS),
    "GET api_events": somewhere(Right.VIEW_AUDIT),
    "GET api_event": replace(in_tenant(Right.VIEW_AUDIT), is_asked_first=True),
    "GET api_exports": somewhere(Right.EXPORT_AUDIT),
    "POST api_exports": replace(in_tenant(Right.EXPORT_AUDIT), unseen=422),
    "GET api_export": in_tenant(Right.EXPORT_AUDIT, hidden=True),
    "GET api_export_content": in_tenant(Right.EXPORT_AUDIT, hidden=True),
    "GET api_export_manifest": in_tenant(Right.EXPORT_AUDIT, hidden=True),
    "GET api_audit_trail": in_tenant(Right.VIEW_AUDIT),
    "GET api_audit_retention": in_tenant(Right.EXPORT_AUDIT),
    "PUT api_audit_retention": in_tenant(Right.EDIT_TENANT),
    "GET api_audit_verifications": somewhere(Right.VIEW_AUDIT),
    "POST api_audit_verifications": replace(in_tenant(Right.EXPORT_AUDIT), unseen=422),
    "GET api_audit_verification": in_tenant(Right.VIEW_AUDIT, hidden=True),
    "GET api_audit_archives": somewhere(Right.EXPORT_AUDIT),
    "GET api_audit_archive": in_tenant(Right.EXPORT_AUDIT, hidden=True),
    "GET api_audit_archive_content": in_tenant(Right.EXPORT_AUDIT, hidden=True),
    "GET api_audit_archive_manifest": in_tenant(Right.EXPORT_AUDIT, hidden=True),
    "GET api_audit_webhooks": somewhere(Right.EXPORT_AUDIT),
    "POST api_audit_webhooks": replace(in_tenant(Right.EDIT_TENANT), unseen=422),
    "GET api_audit_webhook": of_trail(Right.EXPORT_AUDIT),
    "PATCH api_audit_webhook": of_trail(Right.EDIT_TENANT),
    "DELETE api_audit_webhook": of_trail(Right.EDIT_TENANT),
    "POST api_audit_webhook_roll": of_trail(Right.EDIT_TENANT),
    "POST api_audit_webhook_pause": of_trail(Right.EDIT_TENANT),
    "POST api_audit_webhook_resume": of_trail(Right.EDIT_TENANT),
    "GET api_audit_dead_letters": of_trail(Right.EXPORT_AUDIT),
    "POST api_audit_webhook_resend": of_trail(Right.EDIT_TENANT),
    "GET api_audit_deliveries": of_trail(Right.EXPORT_AUDIT),
    "GET api_usage_forecast": somewhere(Right.VIEW_USAGE),
    "GET api_statement": in_tenant(Right.VIEW_USAGE),
    "GET api_standings": in_tenant(Right.VIEW),
    "GET api_standing": in_tenant(Right.VIEW),
    "GET api_hosts": on_platform(Right.VIEW_PLATFORM),
    "GET api_replicas": on_platform(Right.VIEW_PLATFORM),
    "GET api_version_tunings": on_platform(Right.VIEW_PLATFORM, hidden=True),
    "POST api_version_tunings": on_platform(Right.MANAGE_FLEET, hidden=True),
    "GET api_tuning": on_platform(Right.VIEW_PLATFORM, hidden=True),
    "POST api_tuning_cancel": on_platform(Right.MANAGE_FLEET, hidden=True),
    "POST api_tuning_apply": on_platform(Right.MANAGE_FLEET, hidden=True),
}
# fmt: on


def answer_of(name: str, actor: Actor) -> int:
    """Whom an address answers, it answers like an operator: success, or what stands in the way there."""
    if name == "POST api_members" and not actor.sees_platform:
        return 422  # a tenant's people invite whom they never met
    return api.TABLE[name][1][api.PEOPLE.index("operator")]


def test_every_address_is_in_the_table() -> None:
    assert set(API) == set(api.TABLE)


def test_everybody_is_answered_by_their_rights_alone(world: World) -> None:
    remove = invite_everybody(world.cast)
    clients = {who: world.client(who) for who in EVERYBODY}
    remove()
    wrong = {}
    for who, client in clients.items():
        actor = world.cast.actor(who)
        for name, asks in API.items():
            expected = asks.refusal(actor, world.cast.tenant.pk) or answer_of(name, actor)
            found = api.status(world, client, name)
            if found != expected:
                wrong[f"{who}: {name}"] = (found, expected)
    assert wrong == {}
