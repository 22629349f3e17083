from django.db import migrations

from tenants.rowsecurity import CreateApplicationRole, ProtectTenantRows


class Migration(migrations.Migration):
    dependencies = [("tenants", "0007_sessions_and_the_support_role")]

    operations = [
        CreateApplicationRole(),
        ProtectTenantRows("tenants_membership"),
        ProtectTenantRows("tenants_apikey"),
        ProtectTenantRows("tenants_auditevent"),
        ProtectTenantRows("tenants_usageminute"),
        ProtectTenantRows("tenants_usagehour"),
        ProtectTenantRows("tenants_usageday"),
    ]
