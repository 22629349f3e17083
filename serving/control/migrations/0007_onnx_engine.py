"""ONNX has an engine of its own; versions that waited for it under `tensor` move there."""

from django.apps.registry import Apps
from django.db import migrations, models
from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.models import Q

ENGINES = [
    ("encoder", "Encoder (text)"),
    ("tensor", "Tensor program"),
    ("onnx", "ONNX model"),
    ("python", "Python (trusted code)"),
    ("echo", "Echo (benchmarks)"),
]
KEPT_OPTIONS = ("max_batch_rows", "threads")


def move(apps: Apps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    versions = apps.get_model("control", "Version").objects
    for version in versions.filter(engine="tensor", artifact__format="onnx"):
        version.engine = "onnx"
        version.options = {name: version.options[name] for name in KEPT_OPTIONS if name in version.options}
        version.save(update_fields=["engine", "options"])


class Migration(migrations.Migration):
    dependencies = [("control", "0006_platform_default_profile")]

    operations = [
        migrations.RemoveConstraint("version", "control_version_engine_is_known"),
        migrations.AlterField("version", "engine", models.CharField(choices=ENGINES, max_length=16)),
        migrations.AddConstraint(
            "version",
            models.CheckConstraint(
                condition=Q(engine__in=[name for name, _ in ENGINES]),
                name="control_version_engine_is_known",
            ),
        ),
        migrations.RunPython(move, migrations.RunPython.noop),
    ]
