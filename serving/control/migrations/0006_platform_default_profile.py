"""Every installation starts with three profiles, and `standard` for whoever is bound to none."""

from django.apps.registry import Apps
from django.db import migrations
from django.db.backends.base.schema import BaseDatabaseSchemaEditor

PROFILES = [
    {
        "id": "pro_standard00000000",
        "name": "standard",
        "description": "Fair shares; what everybody gets who is bound to nothing else.",
        "sla_class": "standard",
        "target_p95_ms": 200.0,
        "deadline_ms": 2_000.0,
        "max_batch_size": 32,
        "weight": 1.0,
        "max_queue": 1024,
        "late_policy": "refuse",
    },
    {
        "id": "pro_interactive00000",
        "name": "interactive",
        "description": "A person waits: goes first, refused at once when its deadline cannot be met.",
        "sla_class": "interactive",
        "target_p95_ms": 50.0,
        "deadline_ms": 500.0,
        "max_batch_size": 16,
        "weight": 4.0,
        "max_queue": 256,
        "late_policy": "refuse",
    },
    {
        "id": "pro_batch00000000000",
        "name": "batch",
        "description": "Nobody waits: fills what others leave free, in large batches.",
        "sla_class": "batch",
        "target_p95_ms": 10_000.0,
        "deadline_ms": 120_000.0,
        "max_batch_size": 128,
        "weight": 1.0,
        "max_queue": 8192,
        "late_policy": "run",
    },
]


def create(apps: Apps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    profiles = apps.get_model("control", "SlaProfile").objects
    for profile in PROFILES:
        profiles.get_or_create(name=profile["name"], defaults=profile)
    bindings = apps.get_model("control", "ProfileBinding").objects
    if not bindings.filter(tenant=None, model=None, endpoint=None).exists():
        bindings.create(id="bnd_default000000000", profile=profiles.get(name="standard"))


class Migration(migrations.Migration):
    dependencies = [("control", "0005_task_outbox")]

    operations = [migrations.RunPython(create, migrations.RunPython.noop)]
