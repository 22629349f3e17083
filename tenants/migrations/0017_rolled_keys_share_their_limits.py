from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("tenants", "0016_audit_is_found_by_its_filters"),
    ]

    operations = [
        migrations.AddField(
            model_name="apikey",
            name="first_id",
            field=models.CharField(blank=True, editable=False, max_length=16),
        ),
    ]
