from django.db import migrations

from tenants.rowsecurity import ProtectTenantRows


class Migration(migrations.Migration):
    dependencies = [
        ("control", "0013_quotas_are_shown_to_their_tenant"),
        ("tenants", "0008_rows_are_shown_to_their_tenant"),
    ]

    operations = [
        ProtectTenantRows("control_modelgrant"),
        # Bindings of no tenant are the platform's defaults, which apply to everybody.
        ProtectTenantRows("control_profilebinding", shared=True),
    ]
