import django.core.validators
import django.db.models.deletion
import tenants.ids
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("control", "0002_catalog"),
        ("tenants", "0001_people_tenants_keys_audit_usage"),
    ]

    operations = [
        migrations.CreateModel(
            name="SlaProfile",
            fields=[
                ("id", tenants.ids.PrefixedIdField("pro_", primary_key=True, serialize=False)),
                (
                    "name",
                    models.CharField(
                        error_messages={"unique": "Another profile has this name."},
                        max_length=63,
                        unique=True,
                    ),
                ),
                ("description", models.CharField(blank=True, default="", max_length=200)),
                (
                    "sla_class",
                    models.CharField(
                        choices=[
                            ("interactive", "Interactive: earliest deadline first"),
                            ("standard", "Standard: fair shares"),
                            ("batch", "Batch: fills what is free"),
                        ],
                        default="standard",
                        max_length=16,
                    ),
                ),
                (
                    "target_p95_ms",
                    models.FloatField(
                        default=200.0,
                        validators=[
                            django.core.validators.MinValueValidator(1.0),
                            django.core.validators.MaxValueValidator(3600000.0),
                        ],
                    ),
                ),
                (
                    "deadline_ms",
                    models.FloatField(
                        default=2000.0,
                        validators=[
                            django.core.validators.MinValueValidator(1.0),
                            django.core.validators.MaxValueValidator(86400000.0),
                        ],
                    ),
                ),
                (
                    "max_batch_size",
                    models.PositiveIntegerField(
                        default=32,
                        validators=[
                            django.core.validators.MinValueValidator(1),
                            django.core.validators.MaxValueValidator(4096),
                        ],
                    ),
                ),
                (
                    "max_wait_ms",
                    models.FloatField(
                        default=0.0,
                        validators=[
                            django.core.validators.MinValueValidator(0.0),
                            django.core.validators.MaxValueValidator(10000.0),
                        ],
                    ),
                ),
                (
                    "weight",
                    models.FloatField(
                        default=1.0,
                        validators=[
                            django.core.validators.MinValueValidator(0.01),
                            django.core.validators.MaxValueValidator(1000.0),
                        ],
                    ),
                ),
                (
                    "max_queue",
                    models.PositiveIntegerField(
                        default=1024,
                        validators=[
                            django.core.validators.MinValueValidator(1),
                            django.core.validators.MaxValueValidator(1000000),
                        ],
                    ),
                ),
                (
                    "late_policy",
                    models.CharField(
                        choices=[
                            ("refuse", "Refuse at once what cannot meet its deadline"),
                            ("degrade", "Let it wait in a lower class"),
                            ("run", "Run it anyway"),
                        ],
                        default="refuse",
                        max_length=16,
                    ),
                ),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                ("updated_at", models.DateTimeField(auto_now=True)),
            ],
            options={
                "ordering": ["name"],
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("sla_class__in", ["interactive", "standard", "batch"])),
                        name="control_profile_class_is_known",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("late_policy__in", ["refuse", "degrade", "run"])),
                        name="control_profile_policy_is_known",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("target_p95_ms__gt", 0), ("target_p95_ms__lte", models.F("deadline_ms"))
                        ),
                        name="control_profile_target_within_deadline",
                        violation_error_code="field:target_p95_ms",
                        violation_error_message="The target cannot be longer than the deadline.",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("max_wait_ms__gte", 0), ("max_wait_ms__lt", models.F("target_p95_ms"))
                        ),
                        name="control_profile_wait_within_target",
                        violation_error_code="field:max_wait_ms",
                        violation_error_message="Waiting for companions must leave room within the target.",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("max_batch_size__gte", 1), ("max_queue__gte", 1), ("weight__gt", 0)
                        ),
                        name="control_profile_bounds_positive",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="ProfileBinding",
            fields=[
                ("id", tenants.ids.PrefixedIdField("bnd_", primary_key=True, serialize=False)),
                (
                    "endpoint",
                    models.CharField(
                        blank=True,
                        choices=[("infer", "infer"), ("embeddings", "embeddings")],
                        max_length=16,
                        null=True,
                    ),
                ),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                (
                    "model",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="bindings",
                        to="control.model",
                    ),
                ),
                (
                    "tenant",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to="tenants.tenant",
                    ),
                ),
                (
                    "profile",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="bindings",
                        to="control.slaprofile",
                    ),
                ),
            ],
            options={
                "ordering": ["id"],
                "constraints": [
                    models.UniqueConstraint(
                        fields=("tenant", "model", "endpoint"),
                        name="control_binding_target_is_unique",
                        nulls_distinct=False,
                        violation_error_message="Something else was bound to the same target at the same moment.",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("endpoint__isnull", True),
                            ("endpoint__in", ("infer", "embeddings")),
                            _connector="OR",
                        ),
                        name="control_binding_endpoint_is_known",
                    ),
                ],
            },
        ),
    ]
