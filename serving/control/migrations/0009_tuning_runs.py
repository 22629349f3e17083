import django.db.models.deletion
import django.utils.timezone
import tenants.ids
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("control", "0008_version_notes"),
    ]

    operations = [
        migrations.AddField(
            model_name="host",
            name="features",
            field=models.JSONField(blank=True, default=list),
        ),
        migrations.CreateModel(
            name="TuningRun",
            fields=[
                ("id", tenants.ids.PrefixedIdField("tun_", primary_key=True, serialize=False)),
                (
                    "state",
                    models.CharField(
                        choices=[
                            ("requested", "requested"),
                            ("running", "running"),
                            ("done", "done"),
                            ("failed", "failed"),
                            ("cancelled", "cancelled"),
                        ],
                        default="requested",
                        max_length=16,
                    ),
                ),
                ("state_reason", models.TextField(blank=True, default="")),
                ("host", models.CharField(max_length=200)),
                ("device", models.CharField(default="cpu", max_length=16)),
                (
                    "goal",
                    models.CharField(
                        choices=[("throughput", "throughput"), ("latency", "latency")],
                        default="throughput",
                        max_length=16,
                    ),
                ),
                ("min_cosine", models.FloatField(blank=True, null=True)),
                ("max_error", models.FloatField(blank=True, null=True)),
                ("min_label_agreement", models.FloatField(blank=True, null=True)),
                ("texts", models.JSONField(blank=True, default=list)),
                ("tensors", models.JSONField(blank=True, default=list)),
                ("skipped", models.JSONField(blank=True, default=list)),
                ("progress_at", models.DateTimeField(default=django.utils.timezone.now)),
                ("created_by", models.CharField(max_length=200)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                ("ended_at", models.DateTimeField(blank=True, null=True)),
                (
                    "version",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="tunings",
                        to="control.version",
                    ),
                ),
            ],
            options={
                "ordering": ["-created_at", "-id"],
            },
        ),
        migrations.CreateModel(
            name="TuningCandidate",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("index", models.PositiveIntegerField()),
                ("options", models.JSONField()),
                ("measured", models.JSONField(blank=True, null=True)),
                (
                    "made",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="+",
                        to="control.version",
                    ),
                ),
                (
                    "run",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="candidates",
                        to="control.tuningrun",
                    ),
                ),
            ],
            options={
                "ordering": ["run", "index"],
            },
        ),
        migrations.AddIndex(
            model_name="tuningrun",
            index=models.Index(
                models.F("progress_at"),
                condition=models.Q(("state__in", ("requested", "running"))),
                name="control_tuning_active",
            ),
        ),
        migrations.AddConstraint(
            model_name="tuningrun",
            constraint=models.UniqueConstraint(
                condition=models.Q(("state__in", ("requested", "running"))),
                fields=("version",),
                name="control_tuning_one_active_per_version",
            ),
        ),
        migrations.AddConstraint(
            model_name="tuningrun",
            constraint=models.CheckConstraint(
                condition=models.Q(("state__in", ("requested", "running", "done", "failed", "cancelled"))),
                name="control_tuning_state_is_known",
            ),
        ),
        migrations.AddConstraint(
            model_name="tuningrun",
            constraint=models.CheckConstraint(
                condition=models.Q(("goal__in", ["throughput", "latency"])),
                name="control_tuning_goal_is_known",
            ),
        ),
        migrations.AddConstraint(
            model_name="tuningcandidate",
            constraint=models.UniqueConstraint(
                fields=("run", "index"), name="control_tuning_candidate_is_unique"
            ),
        ),
    ]
