import django.db.models.functions.datetime
import functools
import secrets
from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True

    dependencies = []

    operations = [
        migrations.CreateModel(
            name="ConfigClock",
            fields=[
                ("id", models.PositiveSmallIntegerField(default=1, primary_key=True, serialize=False)),
                ("version", models.BigIntegerField(default=0)),
                ("floor", models.BigIntegerField(default=0)),
                (
                    "history",
                    models.CharField(default=functools.partial(secrets.token_hex, 8), max_length=32),
                ),
            ],
            options={
                "db_table": "control_config_clock",
                "constraints": [
                    models.CheckConstraint(condition=models.Q(("id", 1)), name="control_clock_is_one_row"),
                    models.CheckConstraint(
                        condition=models.Q(("floor__lte", models.F("version"))),
                        name="control_clock_floor_is_past",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="ConfigEntry",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("kind", models.CharField(max_length=16)),
                ("key", models.CharField(max_length=128)),
                ("version", models.BigIntegerField(unique=True)),
                ("body", models.JSONField(null=True)),
                ("deleted", models.BooleanField(default=False)),
                ("published_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
            ],
            options={
                "db_table": "control_config_entry",
                "constraints": [
                    models.UniqueConstraint(fields=("kind", "key"), name="control_entry_is_unique"),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("body__isnull", True), ("deleted", True)),
                            models.Q(("body__isnull", False), ("deleted", False)),
                            _connector="OR",
                        ),
                        name="control_entry_body_unless_deleted",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="ReportRow",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("process", models.CharField(max_length=200)),
                ("sequence", models.BigIntegerField()),
                ("kind", models.CharField(max_length=16)),
                ("body", models.JSONField()),
                ("received_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ("applied_at", models.DateTimeField(null=True)),
                ("error", models.TextField(blank=True, default="")),
            ],
            options={
                "db_table": "control_report",
                "indexes": [
                    models.Index(
                        condition=models.Q(("applied_at__isnull", True), ("error", "")),
                        fields=["id"],
                        name="control_report_waiting",
                    ),
                    models.Index(
                        condition=models.Q(("applied_at__isnull", False)),
                        fields=["kind", "applied_at"],
                        name="control_report_done",
                    ),
                ],
                "constraints": [
                    models.UniqueConstraint(fields=("process", "sequence"), name="control_report_is_unique")
                ],
            },
        ),
    ]
