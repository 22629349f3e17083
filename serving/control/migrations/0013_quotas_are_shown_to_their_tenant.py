from django.db import migrations

from tenants.rowsecurity import ProtectTenantRows


class Migration(migrations.Migration):
    dependencies = [
        ("control", "0012_price_book"),
        ("tenants", "0008_rows_are_shown_to_their_tenant"),
    ]

    operations = [ProtectTenantRows("control_quota")]
