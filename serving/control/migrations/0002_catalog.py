import django.core.validators
import django.db.models.deletion
import tenants.ids
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("control", "0001_seam_tables"),
        ("tenants", "0001_people_tenants_keys_audit_usage"),
    ]

    operations = [
        migrations.CreateModel(
            name="Artifact",
            fields=[
                ("sha256", models.CharField(max_length=64, primary_key=True, serialize=False)),
                (
                    "format",
                    models.CharField(
                        choices=[
                            ("encoder", "safetensors directory"),
                            ("pt2", "torch.export program"),
                            ("onnx", "ONNX model"),
                            ("python", "Python code"),
                        ],
                        max_length=16,
                    ),
                ),
                ("size_bytes", models.PositiveBigIntegerField()),
                ("file_count", models.PositiveIntegerField()),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                ("created_by", models.CharField(max_length=200)),
            ],
            options={
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("sha256__regex", "^[0-9a-f]{64}$")),
                        name="control_artifact_sha256_is_hex",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("format__in", ["encoder", "pt2", "onnx", "python"])),
                        name="control_artifact_format_is_known",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="Model",
            fields=[
                ("id", tenants.ids.PrefixedIdField("mdl_", primary_key=True, serialize=False)),
                (
                    "name",
                    models.CharField(
                        max_length=63,
                        unique=True,
                        validators=[
                            django.core.validators.RegexValidator(
                                "^[a-z0-9][a-z0-9._-]{0,62}$",
                                "Lower-case letters, digits, '.', '_' and '-'; at most 63.",
                            )
                        ],
                    ),
                ),
                ("description", models.TextField(blank=True, default="")),
                ("is_public", models.BooleanField(default=True)),
                ("last_number", models.PositiveIntegerField(default=0)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
            ],
            options={
                "ordering": ["name"],
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("name__regex", "^[a-z0-9][a-z0-9._-]{0,62}$")),
                        name="control_model_name_is_wellformed",
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="Version",
            fields=[
                ("id", tenants.ids.PrefixedIdField("mv_", primary_key=True, serialize=False)),
                ("number", models.PositiveIntegerField()),
                (
                    "engine",
                    models.CharField(
                        choices=[
                            ("encoder", "Encoder (text)"),
                            ("tensor", "Tensor program"),
                            ("python", "Python (trusted code)"),
                            ("echo", "Echo (benchmarks)"),
                        ],
                        max_length=16,
                    ),
                ),
                ("options", models.JSONField(blank=True, default=dict)),
                (
                    "state",
                    models.CharField(
                        choices=[
                            ("registered", "registered"),
                            ("validating", "validating"),
                            ("ready", "ready"),
                            ("failed", "failed"),
                            ("archived", "archived"),
                        ],
                        default="registered",
                        max_length=16,
                    ),
                ),
                ("state_reason", models.TextField(blank=True, default="")),
                ("state_changed_at", models.DateTimeField(auto_now_add=True)),
                ("validation_attempt", models.PositiveIntegerField(default=0)),
                ("validation_host", models.CharField(blank=True, default="", max_length=200)),
                ("inputs", models.JSONField(blank=True, default=list)),
                ("outputs", models.JSONField(blank=True, default=list)),
                ("cost", models.JSONField(blank=True, null=True)),
                ("points", models.JSONField(blank=True, default=list)),
                ("memory_bytes", models.PositiveBigIntegerField(blank=True, null=True)),
                ("load_s", models.FloatField(blank=True, null=True)),
                ("warm_up_s", models.FloatField(blank=True, null=True)),
                ("validated_at", models.DateTimeField(blank=True, null=True)),
                ("price_micro_per_device_hour", models.PositiveBigIntegerField(default=0)),
                ("trusted_by", models.CharField(blank=True, default="", max_length=200)),
                ("trusted_reason", models.TextField(blank=True, default="")),
                ("trusted_at", models.DateTimeField(blank=True, null=True)),
                ("created_by", models.CharField(max_length=200)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                (
                    "artifact",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="versions",
                        to="control.artifact",
                    ),
                ),
                (
                    "model",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="versions",
                        to="control.model",
                    ),
                ),
            ],
            options={
                "ordering": ["model", "-number"],
            },
        ),
        migrations.CreateModel(
            name="ModelAlias",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                (
                    "alias",
                    models.CharField(
                        max_length=31,
                        validators=[django.core.validators.RegexValidator("^[a-z][a-z0-9_-]{0,30}$")],
                    ),
                ),
                ("updated_at", models.DateTimeField(auto_now=True)),
                (
                    "model",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="aliases",
                        to="control.model",
                    ),
                ),
                (
                    "version",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="aliases",
                        to="control.version",
                    ),
                ),
            ],
            options={
                "ordering": ["alias"],
            },
        ),
        migrations.CreateModel(
            name="ModelGrant",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                (
                    "model",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="grants", to="control.model"
                    ),
                ),
                (
                    "tenant",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="+", to="tenants.tenant"
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=("model", "tenant"), name="control_grant_is_unique")
                ],
            },
        ),
        migrations.AddIndex(
            model_name="version",
            index=models.Index(
                models.F("state_changed_at"),
                condition=models.Q(("state", "validating")),
                name="control_version_validating",
            ),
        ),
        migrations.AddConstraint(
            model_name="version",
            constraint=models.UniqueConstraint(
                fields=("model", "number"), name="control_version_number_is_unique"
            ),
        ),
        migrations.AddConstraint(
            model_name="version",
            constraint=models.CheckConstraint(
                condition=models.Q(("number__gte", 1)), name="control_version_number_starts_at_one"
            ),
        ),
        migrations.AddConstraint(
            model_name="version",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("state__in", ("registered", "validating", "ready", "failed", "archived"))
                ),
                name="control_version_state_is_known",
            ),
        ),
        migrations.AddConstraint(
            model_name="version",
            constraint=models.CheckConstraint(
                condition=models.Q(("engine__in", ["encoder", "tensor", "python", "echo"])),
                name="control_version_engine_is_known",
            ),
        ),
        migrations.AddConstraint(
            model_name="version",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("artifact", None), ("engine", "echo")),
                    models.Q(models.Q(("engine", "echo"), _negated=True), ("artifact__isnull", False)),
                    _connector="OR",
                ),
                name="control_version_has_artifact_unless_echo",
            ),
        ),
        migrations.AddConstraint(
            model_name="version",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("engine", "python"), ("state__in", ["validating", "ready"]), _negated=True),
                    models.Q(("trusted_by", ""), _negated=True),
                    _connector="OR",
                ),
                name="control_version_python_runs_only_trusted",
            ),
        ),
        migrations.AddConstraint(
            model_name="modelalias",
            constraint=models.UniqueConstraint(fields=("model", "alias"), name="control_alias_is_unique"),
        ),
        migrations.AddConstraint(
            model_name="modelalias",
            constraint=models.CheckConstraint(
                condition=models.Q(("alias__regex", "^[a-z][a-z0-9_-]{0,30}$")),
                name="control_alias_is_wellformed",
            ),
        ),
    ]
