"""Every address of the API. tests/console/api lists them with who may do what."""

from __future__ import annotations

from django.urls import path

from console.api import document, keys, me, members, tenants, tunings

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
    path("versions/<str:version_id>/tunings", tunings.VersionTunings.as_view(), name="api_version_tunings"),
    path("tunings/<str:tuning_id>", tunings.Tuning.as_view(), name="api_tuning"),
    path("tunings/<str:tuning_id>/cancel", tunings.CancelTuning.as_view(), name="api_tuning_cancel"),
    path("tunings/<str:tuning_id>/apply", tunings.ApplyTuning.as_view(), name="api_tuning_apply"),
]
