import django.db.models.deletion
import django.utils.timezone
import tenants.ids
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("control", "0003_sla_profiles"),
    ]

    operations = [
        migrations.CreateModel(
            name="Host",
            fields=[
                ("id", tenants.ids.PrefixedIdField("hst_", primary_key=True, serialize=False)),
                ("name", models.CharField(max_length=200, unique=True)),
                ("epoch", models.BigIntegerField(default=0)),
                ("devices", models.JSONField(default=list)),
                ("replica_dir", models.CharField(max_length=400)),
                ("last_seen_at", models.DateTimeField()),
                ("created_at", models.DateTimeField(auto_now_add=True)),
            ],
            options={
                "ordering": ["name"],
            },
        ),
        migrations.CreateModel(
            name="Deployment",
            fields=[
                ("id", tenants.ids.PrefixedIdField("dep_", primary_key=True, serialize=False)),
                ("replicas_wanted", models.PositiveIntegerField(default=1)),
                ("device", models.CharField(default="cpu", max_length=16)),
                ("threads", models.PositiveIntegerField(default=1)),
                (
                    "state",
                    models.CharField(
                        choices=[("active", "active"), ("stopped", "stopped")],
                        default="active",
                        max_length=16,
                    ),
                ),
                ("state_reason", models.TextField(blank=True, default="")),
                ("created_by", models.CharField(max_length=200)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                ("updated_at", models.DateTimeField(auto_now=True)),
                (
                    "model",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="deployments",
                        to="control.model",
                    ),
                ),
            ],
            options={
                "ordering": ["-created_at"],
            },
        ),
        migrations.CreateModel(
            name="Replica",
            fields=[
                ("id", tenants.ids.PrefixedIdField("rep_", primary_key=True, serialize=False)),
                ("slot", models.PositiveIntegerField()),
                ("device", models.CharField(max_length=16)),
                ("threads", models.PositiveIntegerField(default=1)),
                ("cpu_core", models.PositiveIntegerField(blank=True, null=True)),
                ("address", models.CharField(max_length=400)),
                ("is_wanted", models.BooleanField(default=True)),
                (
                    "state",
                    models.CharField(
                        choices=[
                            ("pending", "pending"),
                            ("starting", "starting"),
                            ("loading", "loading"),
                            ("warming", "warming"),
                            ("ready", "ready"),
                            ("draining", "draining"),
                            ("stopped", "stopped"),
                            ("failed", "failed"),
                        ],
                        default="pending",
                        max_length=16,
                    ),
                ),
                ("reason", models.TextField(blank=True, default="")),
                ("epoch", models.BigIntegerField(default=0)),
                ("pid", models.BigIntegerField(blank=True, null=True)),
                ("restarts", models.PositiveIntegerField(default=0)),
                ("memory_bytes", models.BigIntegerField(blank=True, null=True)),
                ("load_s", models.FloatField(blank=True, null=True)),
                ("ready_at", models.DateTimeField(blank=True, null=True)),
                ("reported_at", models.DateTimeField(blank=True, null=True)),
                ("state_changed_at", models.DateTimeField(default=django.utils.timezone.now)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                (
                    "deployment",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="replicas",
                        to="control.deployment",
                    ),
                ),
                (
                    "host",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="replicas",
                        to="control.host",
                    ),
                ),
                (
                    "version",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="replicas",
                        to="control.version",
                    ),
                ),
            ],
            options={
                "ordering": ["deployment", "slot", "created_at"],
            },
        ),
        migrations.AddField(
            model_name="deployment",
            name="version",
            field=models.ForeignKey(
                on_delete=django.db.models.deletion.PROTECT, related_name="deployments", to="control.version"
            ),
        ),
        migrations.AddIndex(
            model_name="replica",
            index=models.Index(
                condition=models.Q(("is_wanted", True)), fields=["host"], name="control_replica_wanted"
            ),
        ),
        migrations.AddConstraint(
            model_name="replica",
            constraint=models.UniqueConstraint(
                condition=models.Q(("is_wanted", True)),
                fields=("deployment", "slot"),
                name="control_replica_slot_is_unique",
            ),
        ),
        migrations.AddConstraint(
            model_name="replica",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    (
                        "state__in",
                        (
                            "pending",
                            "starting",
                            "loading",
                            "warming",
                            "ready",
                            "draining",
                            "stopped",
                            "failed",
                        ),
                    )
                ),
                name="control_replica_state_is_known",
            ),
        ),
        migrations.AddConstraint(
            model_name="deployment",
            constraint=models.UniqueConstraint(
                condition=models.Q(("state", "active")),
                fields=("model",),
                name="control_deployment_one_active_per_model",
            ),
        ),
        migrations.AddConstraint(
            model_name="deployment",
            constraint=models.CheckConstraint(
                condition=models.Q(("state__in", ("active", "stopped"))),
                name="control_deployment_state_is_known",
            ),
        ),
        migrations.AddConstraint(
            model_name="deployment",
            constraint=models.CheckConstraint(
                condition=models.Q(("replicas_wanted__lte", 256), ("threads__gte", 1), ("threads__lte", 256)),
                name="control_deployment_size_is_bounded",
            ),
        ),
    ]
