from typing import ClassVar

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies: ClassVar = [("tenants", "0018_audit_archives")]

    operations: ClassVar = [
        migrations.AddField(
            "apikey",
            "last_used_class",
            models.CharField(blank=True, default="", editable=False, max_length=8),
        ),
        migrations.AddField(
            "apikey",
            "last_used_network",
            models.CharField(blank=True, default="", editable=False, max_length=43),
        ),
    ]
