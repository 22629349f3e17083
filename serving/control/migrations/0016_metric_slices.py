import django.db.models.fields.composite
from django.conf import settings
from django.db import migrations, models

from serving.control.telemetry.partitions import DROP_FUNCTIONS, LISTS, MAKE_FUNCTIONS
from tenants.rowsecurity import ProtectTenantRows

TABLE = """
CREATE TABLE control_metricslice (
    resolution_s smallint NOT NULL,
    start bigint NOT NULL,
    tenant_id varchar(40) NOT NULL,
    model varchar(100) NOT NULL,
    version_id varchar(40) NOT NULL,
    endpoint varchar(40) NOT NULL,
    sla_class varchar(16) NOT NULL,
    answered bigint NOT NULL,
    failed bigint NOT NULL,
    tally bytea NOT NULL,
    PRIMARY KEY (tenant_id, model, start, resolution_s, version_id, endpoint, sla_class)
) PARTITION BY LIST (resolution_s);
CREATE INDEX control_metricslice_start ON control_metricslice USING brin (start);
"""

SLICE_FIELDS = [
    (
        "pk",
        django.db.models.fields.composite.CompositePrimaryKey(
            "tenant_id", "model", "start", "resolution_s", "version_id", "endpoint", "sla_class",
            blank=True, editable=False, primary_key=True, serialize=False,
        ),
    ),
    ("resolution_s", models.SmallIntegerField()),
    ("start", models.BigIntegerField()),
    ("tenant_id", models.CharField(max_length=40)),
    ("model", models.CharField(max_length=100)),
    ("version_id", models.CharField(max_length=40)),
    ("endpoint", models.CharField(max_length=40)),
    ("sla_class", models.CharField(max_length=16)),
    ("answered", models.BigIntegerField()),
    ("failed", models.BigIntegerField()),
    ("tally", models.BinaryField()),
]  # fmt: skip


def let_the_role_call(apps, editor):
    """Only the application makes and drops days; its role may not exist, then the owner works itself."""
    role = settings.DATABASE_ROLE
    with editor.connection.cursor() as cursor:
        cursor.execute("SELECT quote_ident(rolname) FROM pg_roles WHERE rolname = %s", [role])
        found = cursor.fetchone()
        if found:
            cursor.execute(
                "GRANT EXECUTE ON FUNCTION control_make_metric_day(int, bigint),"
                f" control_drop_metric_days(int, bigint) TO {found[0]}"
            )


class Migration(migrations.Migration):
    dependencies = [("control", "0015_guarantees_and_pools")]

    operations = [
        migrations.SeparateDatabaseAndState(
            database_operations=[
                migrations.RunSQL(TABLE, "DROP TABLE control_metricslice"),
                migrations.RunSQL(LISTS, migrations.RunSQL.noop),
                migrations.RunSQL(MAKE_FUNCTIONS, DROP_FUNCTIONS),
                migrations.RunPython(let_the_role_call, migrations.RunPython.noop),
            ],
            state_operations=[migrations.CreateModel(name="MetricSlice", fields=SLICE_FIELDS)],
        ),
        ProtectTenantRows("control_metricslice"),
        migrations.CreateModel(
            name="MetricSpan",
            fields=[
                (
                    "pk",
                    django.db.models.fields.composite.CompositePrimaryKey(
                        "resolution_s", "start", blank=True, editable=False, primary_key=True, serialize=False
                    ),
                ),
                ("resolution_s", models.SmallIntegerField()),
                ("start", models.BigIntegerField()),
                ("covered_s", models.SmallIntegerField()),
            ],
        ),
    ]
