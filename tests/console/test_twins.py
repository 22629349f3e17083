"""Everything the console does is done at /api/v1, too: each page and button has its address there, or a reason."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.urls import get_resolver

from tests.console.api import test_access as api
from tests.console.test_pages_access import OPEN, TABLE

OF_THE_BROWSER = "what one browser looks at, or in which words: nothing that another program could see"
PASSWORDS = "passwords never pass the API: a person makes them, and is shown them, on pages"
TWINS: dict[str, str] = {
    "overview": "GET api_models, GET api_usage, GET api_deployments",
    "alerts": "GET api_alerts",
    "alerts_state": "GET api_alerts",
    "alert_history": "GET api_alert_history",
    "silences": "GET api_silences",
    "silence_create": "POST api_silences",
    "silence_end": "POST api_silence_end",
    "alert_rules": "GET api_alert_rules",
    "alert_rule_create": "POST api_alert_rules",
    "alert_rule_edit": "PATCH api_alert_rule",
    "alert_rule_switch": "PATCH api_alert_rule",
    "alert_rule_delete": "DELETE api_alert_rule",
    "alert_acknowledge": "POST api_alert_acknowledge",
    "alert_silence": "POST api_silences",
    "promises": "GET api_promises",
    "promises_state": "GET api_promises",
    "models": "GET api_models",
    "model_create": "POST api_models",
    "model": "GET api_model, GET api_versions, GET api_aliases",
    "model_state": "GET api_versions",
    "model_edit": "PATCH api_model",
    "model_grant": "POST api_grants",
    "model_revoke": "DELETE api_grant",
    "version_register": "POST api_versions",
    "version_validate": "POST api_version_validate",
    "version_archive": "POST api_version_archive",
    "version_trust": "POST api_version_trust",
    "version_alias": "PUT api_alias",
    "version_fallback": "PATCH api_version",
    "version_tune": "POST api_version_tunings",
    "tuning": "GET api_tuning",
    "tuning_state": "GET api_tuning",
    "tuning_cancel": "POST api_tuning_cancel",
    "tuning_apply": "POST api_tuning_apply",
    "deploy": "POST api_deployments",
    "deployment_scale": "POST api_deployment_scale",
    "deployment_version": "POST api_deployment_switch",
    "deployment_stop": "POST api_deployment_stop",
    "fleet": "GET api_hosts, GET api_replicas",
    "fleet_state": "GET api_hosts, GET api_replicas",
    "tenants": "GET api_tenants",
    "tenant_create": "POST api_tenants",
    "tenant": "GET api_tenant, GET api_members, GET api_tenant_keys, GET api_invitations",
    "tenant_edit": "PATCH api_tenant",
    "statement": "GET api_statement",
    "tenant_suspend": "POST api_tenant_suspend",
    "tenant_resume": "POST api_tenant_resume",
    "member_add": "POST api_members",
    "member_invite": "POST api_invitations",
    "invitation_renew": "POST api_invitation_renew",
    "invitation_withdraw": "POST api_invitation_withdraw",
    "account_create": "POST api_accounts, POST api_members",
    "member_edit": "PATCH api_member",
    "member_remove": "DELETE api_member",
    "organisations": "GET api_organisations",
    "organisation_create": "POST api_organisations",
    "organisation": "GET api_organisation, GET api_organisation_admins, GET api_organisation_tenants",
    "organisation_edit": "PATCH api_organisation",
    "organisation_admin_add": "POST api_organisation_admins",
    "organisation_admin_remove": "DELETE api_organisation_admin",
    "organisation_tenant": "POST api_organisation_tenants",
    "organisation_move_in": "PUT api_organisation_tenant",
    "organisation_move_out": "DELETE api_organisation_tenant",
    "people": "GET api_accounts",
    "person": "GET api_account, GET api_account_memberships, GET api_account_sessions",
    "person_role": "PATCH api_account",
    "person_switch_off": "PATCH api_account",
    "person_switch_on": "PATCH api_account",
    "person_reset_factor": "POST api_account_reset_factor",
    "person_end_sessions": "POST api_account_end_sessions",
    "sessions": "GET api_sessions",
    "session_end": "DELETE api_session",
    "sessions_end_others": "POST api_sessions_end_others",
    "key_create": "POST api_tenant_keys",
    "key_roll": "POST api_key_roll",
    "key_revoke": "POST api_key_revoke",
    "profiles": "GET api_profiles, GET api_bindings",
    "profile_create": "POST api_profiles",
    "profile": "GET api_profile",
    "profile_edit": "PATCH api_profile",
    "profile_delete": "DELETE api_profile",
    "profile_bind": "POST api_bindings",
    "binding_unbind": "DELETE api_binding",
    "quotas": "GET api_quotas, GET api_standings",
    "quota_create": "POST api_tenant_quotas",
    "quota_edit": "PATCH api_quota",
    "quota_delete": "DELETE api_quota",
    "prices": "GET api_prices",
    "price_create": "POST api_prices",
    "price_end": "POST api_price_end",
    "price_withdraw": "DELETE api_price",
    "usage": "GET api_usage, GET api_usage_forecast",
    "usage_export": "GET api_usage",
    "audit": "GET api_events, GET api_exports, POST api_exports",
    "audit_event": "GET api_event",
    "audit_proof": "GET api_audit_trail, GET api_audit_verification",
    "audit_verify": "POST api_audit_verifications",
    "audit_exports": "GET api_exports, POST api_exports",
    "audit_export_file": "GET api_export_content",
    "audit_export_manifest": "GET api_export_manifest",
    "audit_archives": "GET api_audit_archives, GET api_audit_retention",
    "audit_retention": "PUT api_audit_retention",
    "audit_archive_file": "GET api_audit_archive_content",
    "audit_archive_manifest": "GET api_audit_archive_manifest",
    "audit_webhook": "GET api_audit_webhook, GET api_audit_dead_letters, GET api_audit_deliveries",
    "audit_webhook_create": "POST api_audit_webhooks",
    "audit_webhook_edit": "PATCH api_audit_webhook",
    "audit_webhook_roll": "POST api_audit_webhook_roll",
    "audit_webhook_pause": "POST api_audit_webhook_pause",
    "audit_webhook_resume": "POST api_audit_webhook_resume",
    "audit_webhook_resend": "POST api_audit_webhook_resend",
    "audit_webhook_delete": "DELETE api_audit_webhook",
}
"""Page → what of the API does the same, several with commas."""
WITHOUT: dict[str, str] = {
    "switch_tenant": OF_THE_BROWSER,
    "set_language": OF_THE_BROWSER,
    "reference": "shows the API itself",
    "person_password": PASSWORDS,
    "join": PASSWORDS,
    "healthz": "a probe's, which asks nobody who they are",
    "playground": "sends requests to models, which the inference API does",
}


def test_every_page_has_a_twin_or_a_reason() -> None:
    assert set(TWINS) | set(WITHOUT) == set(TABLE) | OPEN
    assert set(TWINS) & set(WITHOUT) == set()


def test_every_twin_is_there() -> None:
    named = {twin for name in TWINS for twin in twins_of(name)}
    assert named - set(api.TABLE) == set()


def test_a_button_has_a_twin_that_writes() -> None:
    """What a page's POST changes, a GET of the API would not."""
    writing = {name for name, view in views(get_resolver().url_patterns) if "POST" in view.methods}
    assert len(writing) > 50
    read_only = {name for name in writing & set(TWINS) if all(t.startswith("GET") for t in twins_of(name))}
    assert read_only == set()


def twins_of(name: str) -> list[str]:
    return TWINS[name].split(", ")


def views(patterns: list[Any]) -> Iterator[tuple[str, Any]]:
    """Pages by their names; allauth's and the API's own are none of `console.pages`."""
    for pattern in patterns:
        if hasattr(pattern, "url_patterns"):
            yield from views(pattern.url_patterns)
        elif hasattr(pattern.callback, "methods"):
            yield pattern.name, pattern.callback
