"""Every address of the API. tests/console/api lists them with who may do what."""

from __future__ import annotations

from django.urls import path

from console.api import (
    aliases,
    audit,
    bindings,
    deployments,
    document,
    fleet,
    grants,
    keys,
    me,
    members,
    models,
    profiles,
    tenants,
    tunings,
    usage,
    versions,
)

urlpatterns = [
    path("openapi.json", document.document, name="api_openapi"),
    path("me", me.Me.as_view(), name="api_me"),
    path("tenants", tenants.Tenants.as_view(), name="api_tenants"),
    path("tenants/<str:tenant_id>", tenants.OneTenant.as_view(), name="api_tenant"),
    path("tenants/<str:tenant_id>/suspend", tenants.SuspendTenant.as_view(), name="api_tenant_suspend"),
    path("tenants/<str:tenant_id>/resume", tenants.ResumeTenant.as_view(), name="api_tenant_resume"),
    path("tenants/<str:tenant_id>/members", members.Members.as_view(), name="api_members"),
    path("members/<str:member_id>", members.OneMember.as_view(), name="api_member"),
    path("tenants/<str:tenant_id>/keys", keys.TenantKeys.as_view(), name="api_tenant_keys"),
    path("keys", keys.Keys.as_view(), name="api_keys"),
    path("keys/<str:key_id>", keys.OneKey.as_view(), name="api_key"),
    path("keys/<str:key_id>/revoke", keys.RevokeKey.as_view(), name="api_key_revoke"),
    path("models", models.Models.as_view(), name="api_models"),
    path("models/<str:model_id>", models.OneModel.as_view(), name="api_model"),
    path("models/<str:model_id>/grants", grants.Grants.as_view(), name="api_grants"),
    path("models/<str:model_id>/grants/<str:tenant_id>", grants.OneGrant.as_view(), name="api_grant"),
    path("models/<str:model_id>/aliases", aliases.Aliases.as_view(), name="api_aliases"),
    path("models/<str:model_id>/aliases/<str:alias>", aliases.OneAlias.as_view(), name="api_alias"),
    path("models/<str:model_id>/versions", versions.Versions.as_view(), name="api_versions"),
    path("versions/<str:version_id>", versions.OneVersion.as_view(), name="api_version"),
    path(
        "versions/<str:version_id>/validate", versions.ValidateVersion.as_view(), name="api_version_validate"
    ),
    path("versions/<str:version_id>/trust", versions.TrustVersion.as_view(), name="api_version_trust"),
    path("versions/<str:version_id>/archive", versions.ArchiveVersion.as_view(), name="api_version_archive"),
    path("deployments", deployments.Deployments.as_view(), name="api_deployments"),
    path("deployments/<str:deployment_id>", deployments.OneDeployment.as_view(), name="api_deployment"),
    path(
        "deployments/<str:deployment_id>/scale",
        deployments.ScaleDeployment.as_view(),
        name="api_deployment_scale",
    ),
    path(
        "deployments/<str:deployment_id>/switch",
        deployments.SwitchDeployment.as_view(),
        name="api_deployment_switch",
    ),
    path(
        "deployments/<str:deployment_id>/stop",
        deployments.StopDeployment.as_view(),
        name="api_deployment_stop",
    ),
    path("profiles", profiles.Profiles.as_view(), name="api_profiles"),
    path("profiles/<str:profile_id>", profiles.OneProfile.as_view(), name="api_profile"),
    path("bindings", bindings.Bindings.as_view(), name="api_bindings"),
    path("bindings/<str:binding_id>", bindings.OneBinding.as_view(), name="api_binding"),
    path("usage", usage.Usage.as_view(), name="api_usage"),
    path("audit", audit.Events.as_view(), name="api_events"),
    path("audit/<str:event_id>", audit.OneEvent.as_view(), name="api_event"),
    path("hosts", fleet.Hosts.as_view(), name="api_hosts"),
    path("replicas", fleet.Replicas.as_view(), name="api_replicas"),
    path("versions/<str:version_id>/tunings", tunings.VersionTunings.as_view(), name="api_version_tunings"),
    path("tunings/<str:tuning_id>", tunings.Tuning.as_view(), name="api_tuning"),
    path("tunings/<str:tuning_id>/cancel", tunings.CancelTuning.as_view(), name="api_tuning_cancel"),
    path("tunings/<str:tuning_id>/apply", tunings.ApplyTuning.as_view(), name="api_tuning_apply"),
]
