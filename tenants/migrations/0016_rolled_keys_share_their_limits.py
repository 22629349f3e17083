from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("tenants", "0015_audit_webhooks"),
    ]

    operations = [
        migrations.AddField(
            model_name="apikey",
            name="first_id",
            field=models.CharField(blank=True, editable=False, max_length=16),
        ),
    ]
