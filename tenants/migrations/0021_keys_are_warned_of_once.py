from typing import ClassVar

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies: ClassVar = [("tenants", "0020_usage_by_week_and_of_the_platform")]

    operations: ClassVar = [
        migrations.AddField(
            "apikey", "warned_of", models.DateTimeField(blank=True, editable=False, null=True)
        ),
    ]
