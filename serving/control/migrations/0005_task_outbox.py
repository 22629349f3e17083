import django.utils.timezone
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("control", "0004_fleet"),
    ]

    operations = [
        migrations.CreateModel(
            name="TaskOutbox",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("name", models.CharField(max_length=100)),
                ("arguments", models.JSONField(default=dict)),
                ("due_at", models.DateTimeField(default=django.utils.timezone.now)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                ("dispatched_at", models.DateTimeField(null=True)),
            ],
            options={
                "indexes": [
                    models.Index(
                        condition=models.Q(("dispatched_at__isnull", True)),
                        fields=["due_at"],
                        name="control_task_waiting",
                    )
                ],
            },
        ),
    ]
