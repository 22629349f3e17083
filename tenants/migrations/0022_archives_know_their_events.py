from typing import ClassVar

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies: ClassVar = [("tenants", "0021_keys_are_warned_of_once")]

    operations: ClassVar = [
        migrations.AddField(
            model_name="auditarchive",
            name="event_marks",
            field=models.BinaryField(default=b"", editable=False),
        ),
    ]
