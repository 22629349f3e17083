"""Every address of the console. tests/console/test_access.py lists them with who may open which."""

from __future__ import annotations

from django.urls import URLPattern, URLResolver, include, path
from django.views.i18n import set_language

from console import accounts, sso
from console.pages import (
    alert_rules,
    alerts,
    attainment,
    audit,
    audit_archives,
    audit_exports,
    audit_webhook,
    deployments,
    fleet,
    health,
    invitations,
    keys,
    members,
    models,
    organisations,
    overview,
    people,
    playground,
    prices,
    profiles,
    quotas,
    reference,
    sessions,
    statement,
    tenants,
    tunings,
    usage,
    versions,
)
from console.problems import page_not_found

handler400 = "console.problems.bad_request"
handler403 = "console.problems.permission_denied"
handler404 = "console.problems.page_not_found"
handler500 = "console.problems.server_error"

_accounts: list[URLPattern | URLResolver] = [
    # Nobody proves here that an address is theirs, yet members are added by it: only operators set it.
    path("email/", page_not_found, {"exception": None}),
    # Accounts are found by their address and made by groups: there is nothing to connect or to fill in.
    path("3rdparty/", page_not_found, {"exception": None}),
    path("3rdparty/signup/", page_not_found, {"exception": None}),
    # A first password comes from an operator: whoever signs in by the provider alone stays in its hands.
    path("password/set/", page_not_found, {"exception": None}),
    path("password/reset/", accounts.reset_password, name="account_reset_password"),
    path("oidc/<str:provider_id>/login/", sso.login, name="openid_connect_login"),
    path("oidc/<str:provider_id>/login/callback/", sso.callback, name="openid_connect_callback"),
    path("", include("allauth.urls")),
]
_models = [
    path("", models.index, name="models"),
    path("<str:name>/", models.detail, name="model"),
    path("<str:name>/state", models.state, name="model_state"),
    path("<str:name>/edit", models.edit, name="model_edit"),
    path("<str:name>/grants/new", models.grant, name="model_grant"),
    path("<str:name>/grants/<str:slug>/revoke", models.revoke, name="model_revoke"),
    path("<str:name>/deploy", deployments.create, name="deploy"),
    path("<str:name>/versions/new", versions.register, name="version_register"),
    path("<str:name>/versions/<int:number>/validate", versions.validate, name="version_validate"),
    path("<str:name>/versions/<int:number>/archive", versions.archive, name="version_archive"),
    path("<str:name>/versions/<int:number>/trust", versions.trust, name="version_trust"),
    path("<str:name>/versions/<int:number>/alias", versions.alias, name="version_alias"),
    path("<str:name>/versions/<int:number>/tune", tunings.tune, name="version_tune"),
    path("<str:name>/versions/<int:number>/fallback", versions.fallback, name="version_fallback"),
]
_tunings = [
    path("<str:tuning_id>/", tunings.detail, name="tuning"),
    path("<str:tuning_id>/state", tunings.state, name="tuning_state"),
    path("<str:tuning_id>/cancel", tunings.cancel, name="tuning_cancel"),
    path("<str:tuning_id>/candidates/<int:index>/apply", tunings.apply, name="tuning_apply"),
]
_deployments = [
    path("<str:deployment_id>/scale", deployments.change_scale, name="deployment_scale"),
    path("<str:deployment_id>/version", deployments.change_version, name="deployment_version"),
    path("<str:deployment_id>/stop", deployments.stop, name="deployment_stop"),
]
_tenants = [
    path("", tenants.index, name="tenants"),
    path("new", tenants.create, name="tenant_create"),
    path("<str:slug>/", tenants.detail, name="tenant"),
    path("<str:slug>/edit", tenants.edit, name="tenant_edit"),
    path("<str:slug>/statement", statement.statement, name="statement"),
    path("<str:slug>/suspend", tenants.suspend, name="tenant_suspend"),
    path("<str:slug>/resume", tenants.resume, name="tenant_resume"),
    path("<str:slug>/members/new", members.add, name="member_add"),
    path("<str:slug>/members/new-account", members.create_account, name="account_create"),
    path("<str:slug>/invitations/new", invitations.create, name="member_invite"),
    path("<str:slug>/keys/new", keys.create, name="key_create"),
    path("<str:slug>/quotas/new", quotas.create, name="quota_create"),
]
_organisations = [
    path("", organisations.index, name="organisations"),
    path("new", organisations.create, name="organisation_create"),
    path("<str:organisation_id>/", organisations.detail, name="organisation"),
    path("<str:organisation_id>/edit", organisations.edit, name="organisation_edit"),
    path("<str:organisation_id>/admins/new", organisations.add_admin, name="organisation_admin_add"),
    path(
        "<str:organisation_id>/admins/<int:user_id>/remove",
        organisations.remove_admin,
        name="organisation_admin_remove",
    ),
    path("<str:organisation_id>/tenants/new", organisations.new_tenant, name="organisation_tenant"),
    path("<str:organisation_id>/tenants/move", organisations.move_in, name="organisation_move_in"),
    path(
        "<str:organisation_id>/tenants/<str:slug>/move-out",
        organisations.move_out,
        name="organisation_move_out",
    ),
]
_people = [
    path("", people.index, name="people"),
    path("<int:user_id>/", people.detail, name="person"),
    path("<int:user_id>/role", people.change_role, name="person_role"),
    path("<int:user_id>/password", people.new_password, name="person_password"),
    path("<int:user_id>/switch-off", people.switch_off, name="person_switch_off"),
    path("<int:user_id>/switch-on", people.switch_on, name="person_switch_on"),
    path("<int:user_id>/second-factor/reset", people.reset_factor, name="person_reset_factor"),
    path("<int:user_id>/sessions/end", people.end_all, name="person_end_sessions"),
]
_alerts = [
    path("", alerts.index, name="alerts"),
    path("state", alerts.state, name="alerts_state"),
    path("history", alerts.history, name="alert_history"),
    path("silences", alerts.silences, name="silences"),
    path("silences/new", alerts.silence, name="silence_create"),
    path("silences/<str:silence_id>/end", alerts.silence_end, name="silence_end"),
    path("rules", alert_rules.index, name="alert_rules"),
    path("rules/new", alert_rules.create, name="alert_rule_create"),
    path("rules/<str:rule_id>/edit", alert_rules.edit, name="alert_rule_edit"),
    path("rules/<str:rule_id>/switch", alert_rules.switch, name="alert_rule_switch"),
    path("rules/<str:rule_id>/delete", alert_rules.delete, name="alert_rule_delete"),
    path("<str:fingerprint>/acknowledge", alerts.acknowledge, name="alert_acknowledge"),
    path("<str:fingerprint>/silence", alerts.silence, name="alert_silence"),
]
_profiles = [
    path("", profiles.index, name="profiles"),
    path("new", profiles.create, name="profile_create"),
    path("<str:profile_id>/", profiles.detail, name="profile"),
    path("<str:profile_id>/edit", profiles.edit, name="profile_edit"),
    path("<str:profile_id>/delete", profiles.delete, name="profile_delete"),
    path("<str:profile_id>/bind", profiles.bind, name="profile_bind"),
]

urlpatterns: list[URLPattern | URLResolver] = [
    path("api/v1/", include("console.api.urls")),
    path("healthz", health.healthz, name="healthz"),
    path("language", set_language, name="set_language"),
    path("accounts/", include(_accounts)),
    path("", overview.overview, name="overview"),
    path("alerts/", include(_alerts)),
    path("promises/", attainment.index, name="promises"),
    path("promises/state", attainment.state, name="promises_state"),
    path("tenant", overview.switch_tenant, name="switch_tenant"),
    path("new-model", models.create, name="model_create"),  # "models/new" would be the model called so
    path("models/", include(_models)),
    path("deployments/", include(_deployments)),
    path("tunings/", include(_tunings)),
    path("fleet/", fleet.index, name="fleet"),
    path("fleet/state", fleet.state, name="fleet_state"),
    path("tenants/", include(_tenants)),
    path("invitations/<str:invitation_id>/renew", invitations.renew, name="invitation_renew"),
    path("invitations/<str:invitation_id>/withdraw", invitations.withdraw, name="invitation_withdraw"),
    path("join/<str:secret>", invitations.join, name="join"),
    path("organisations/", include(_organisations)),
    path("people/", include(_people)),
    path("sessions/", sessions.index, name="sessions"),
    path("sessions/end-others", sessions.end_others, name="sessions_end_others"),
    path("sessions/<str:session_id>/end", sessions.end, name="session_end"),
    path("members/<str:member_id>/role", members.edit, name="member_edit"),
    path("members/<str:member_id>/remove", members.remove, name="member_remove"),
    path("keys/<str:key_id>/roll", keys.roll, name="key_roll"),
    path("keys/<str:key_id>/revoke", keys.revoke, name="key_revoke"),
    path("profiles/", include(_profiles)),
    path("bindings/<str:binding_id>/unbind", profiles.unbind, name="binding_unbind"),
    path("quotas/", quotas.index, name="quotas"),
    path("quotas/<str:quota_id>/edit", quotas.edit, name="quota_edit"),
    path("quotas/<str:quota_id>/delete", quotas.delete, name="quota_delete"),
    path("prices/", prices.index, name="prices"),
    path("prices/new", prices.create, name="price_create"),
    path("prices/<str:price_id>/end", prices.end, name="price_end"),
    path("prices/<str:price_id>/withdraw", prices.withdraw, name="price_withdraw"),
    path("usage/", usage.index, name="usage"),
    path("usage/export", usage.export, name="usage_export"),
    path("audit/", audit.index, name="audit"),
    path("audit/proof", audit.proof, name="audit_proof"),
    path("audit/verify", audit.verify, name="audit_verify"),
    path("audit/exports", audit_exports.index, name="audit_exports"),
    path("audit/exports/<str:export_id>/file", audit_exports.download, name="audit_export_file"),
    path("audit/exports/<str:export_id>/manifest", audit_exports.manifest, name="audit_export_manifest"),
    path("audit/webhook", audit_webhook.index, name="audit_webhook"),
    path("audit/webhook/new", audit_webhook.create, name="audit_webhook_create"),
    path("audit/webhook/<str:webhook_id>/edit", audit_webhook.edit, name="audit_webhook_edit"),
    path("audit/webhook/<str:webhook_id>/roll", audit_webhook.roll, name="audit_webhook_roll"),
    path("audit/webhook/<str:webhook_id>/pause", audit_webhook.pause, name="audit_webhook_pause"),
    path("audit/webhook/<str:webhook_id>/resume", audit_webhook.resume, name="audit_webhook_resume"),
    path("audit/webhook/<str:webhook_id>/resend", audit_webhook.resend, name="audit_webhook_resend"),
    path("audit/webhook/<str:webhook_id>/delete", audit_webhook.delete, name="audit_webhook_delete"),
    path("audit/archives", audit_archives.index, name="audit_archives"),
    path("audit/retention", audit_archives.retention, name="audit_retention"),
    path("audit/archives/<str:archive_id>/file", audit_archives.download, name="audit_archive_file"),
    path("audit/archives/<str:archive_id>/manifest", audit_archives.manifest, name="audit_archive_manifest"),
    path("audit/events/<str:event_id>/", audit.detail, name="audit_event"),
    path("reference/", reference.index, name="reference"),
    path("playground/", playground.index, name="playground"),
]
