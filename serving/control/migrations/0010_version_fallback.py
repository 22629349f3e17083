import django.db.models.deletion
from django.db import migrations, models
from django.db.models import Q


class Migration(migrations.Migration):
    dependencies = [
        ("control", "0009_tuning_runs"),
    ]

    operations = [
        migrations.AddField(
            model_name="version",
            name="fallback_version",
            field=models.ForeignKey(
                blank=True,
                null=True,
                on_delete=django.db.models.deletion.SET_NULL,
                related_name="fallback_of",
                to="control.version",
            ),
        ),
        migrations.AddField(
            model_name="version",
            name="fallback_model",
            field=models.ForeignKey(
                blank=True,
                null=True,
                on_delete=django.db.models.deletion.SET_NULL,
                related_name="fallback_of",
                to="control.model",
            ),
        ),
        migrations.AddConstraint(
            model_name="version",
            constraint=models.CheckConstraint(
                condition=Q(fallback_version=None) | Q(fallback_model=None),
                name="control_version_has_one_fallback",
            ),
        ),
    ]
