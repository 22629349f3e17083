from typing import ClassVar

import django.db.models.functions
import django.db.models.lookups
import django.utils.timezone
from django.db import migrations, models

# One lock for all chains, taken only while a transaction commits: no two can wait for each other in a circle,
# and a chain's order is the order of commits. The number means nothing; nobody else may use it.
CHAIN = """
CREATE FUNCTION tenants_audit_record(e tenants_auditevent, link_position bigint) RETURNS text
LANGUAGE sql STABLE AS $$
SELECT concat(
    '{"action":', coalesce(to_json(e.action)::text, 'null'),
    ',"actor_id":', coalesce(to_json(e.actor_id)::text, 'null'),
    ',"actor_name":', coalesce(to_json(e.actor_name)::text, 'null'),
    ',"actor_type":', coalesce(to_json(e.actor_type)::text, 'null'),
    ',"after":', coalesce(e.after::text, 'null'),
    ',"at":"', to_char(e.at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'),
    '","before":', coalesce(e.before::text, 'null'),
    ',"event_id":', coalesce(to_json(e.event_id)::text, 'null'),
    ',"ip":', coalesce(to_json(host(e.ip))::text, 'null'),
    ',"outcome":', coalesce(to_json(e.outcome)::text, 'null'),
    ',"position":', link_position::text,
    ',"reason":', coalesce(to_json(e.reason)::text, 'null'),
    ',"request_id":', coalesce(to_json(e.request_id)::text, 'null'),
    ',"seq":', e.seq::text,
    ',"target_id":', coalesce(to_json(e.target_id)::text, 'null'),
    ',"target_name":', coalesce(to_json(e.target_name)::text, 'null'),
    ',"target_type":', coalesce(to_json(e.target_type)::text, 'null'),
    ',"tenant_id":', coalesce(to_json(e.tenant_id)::text, 'null'),
    ',"tenant_name":', coalesce(to_json(e.tenant_name)::text, 'null'),
    ',"trace_id":', coalesce(to_json(e.trace_id)::text, 'null'),
    ',"user_agent":', coalesce(to_json(e.user_agent)::text, 'null'),
    ',"v":1}')
$$;

CREATE FUNCTION tenants_link_audit_event(e tenants_auditevent) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    chain_name text := coalesce(e.tenant_id, 'platform');
    last_position bigint := 0;
    last_hash bytea := decode(repeat('00', 32), 'hex');
    found_position bigint;
    found_hash bytea;
BEGIN
    PERFORM pg_advisory_xact_lock(7266170401);
    SELECT l.position, l.hash INTO found_position, found_hash
        FROM tenants_auditlink l WHERE l.chain = chain_name ORDER BY l.position DESC LIMIT 1;
    IF FOUND THEN
        last_position := found_position;
        last_hash := found_hash;
    END IF;
    INSERT INTO tenants_auditlink (event_seq, chain, position, prev_hash, hash) VALUES (
        e.seq, chain_name, last_position + 1, last_hash,
        sha256(last_hash || convert_to(tenants_audit_record(e, last_position + 1), 'UTF8')));
END
$$;

CREATE FUNCTION tenants_chain_audit_event() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM tenants_link_audit_event(NEW);
    RETURN NULL;
END
$$;

-- What was written before there were chains, in the order in which it was numbered.
DO $$
DECLARE e tenants_auditevent;
BEGIN
    FOR e IN SELECT * FROM tenants_auditevent ORDER BY seq LOOP
        PERFORM tenants_link_audit_event(e);
    END LOOP;
END
$$;

CREATE CONSTRAINT TRIGGER tenants_auditevent_chain
    AFTER INSERT ON tenants_auditevent DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW EXECUTE FUNCTION tenants_chain_audit_event();
"""
UNCHAIN = """
DROP TRIGGER tenants_auditevent_chain ON tenants_auditevent;
DROP FUNCTION tenants_chain_audit_event();
DROP FUNCTION tenants_link_audit_event(tenants_auditevent);
DROP FUNCTION tenants_audit_record(tenants_auditevent, bigint);
"""

GUARD = """
CREATE TRIGGER tenants_auditevent_no_truncate BEFORE TRUNCATE ON tenants_auditevent
    FOR EACH STATEMENT EXECUTE FUNCTION tenants_refuse_audit_change();
CREATE TRIGGER tenants_auditlink_append_only BEFORE UPDATE OR DELETE ON tenants_auditlink
    FOR EACH ROW EXECUTE FUNCTION tenants_refuse_audit_change();
CREATE TRIGGER tenants_auditlink_no_truncate BEFORE TRUNCATE ON tenants_auditlink
    FOR EACH STATEMENT EXECUTE FUNCTION tenants_refuse_audit_change();
CREATE TRIGGER tenants_auditcheckpoint_append_only BEFORE UPDATE OR DELETE ON tenants_auditcheckpoint
    FOR EACH ROW EXECUTE FUNCTION tenants_refuse_audit_change();
CREATE TRIGGER tenants_auditcheckpoint_no_truncate BEFORE TRUNCATE ON tenants_auditcheckpoint
    FOR EACH STATEMENT EXECUTE FUNCTION tenants_refuse_audit_change();
"""
UNGUARD = """
DROP TRIGGER tenants_auditcheckpoint_no_truncate ON tenants_auditcheckpoint;
DROP TRIGGER tenants_auditcheckpoint_append_only ON tenants_auditcheckpoint;
DROP TRIGGER tenants_auditlink_no_truncate ON tenants_auditlink;
DROP TRIGGER tenants_auditlink_append_only ON tenants_auditlink;
DROP TRIGGER tenants_auditevent_no_truncate ON tenants_auditevent;
"""


class Migration(migrations.Migration):
    dependencies: ClassVar = [("tenants", "0004_keys_know_who_made_them")]

    operations: ClassVar = [
        migrations.CreateModel(
            name="AuditCheckpoint",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("chain", models.CharField(max_length=20)),
                ("position", models.BigIntegerField()),
                ("hash", models.BinaryField(max_length=32)),
                ("at", models.DateTimeField(default=django.utils.timezone.now)),
                ("public_key", models.CharField(max_length=64)),
                ("signature", models.BinaryField(max_length=64)),
            ],
            options={
                "ordering": ("chain", "position"),
                "constraints": [
                    models.UniqueConstraint(
                        fields=("chain", "position", "public_key"),
                        name="audit_checkpoint_once_per_position_and_key",
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="AuditLink",
            fields=[
                ("event_seq", models.BigIntegerField(primary_key=True, serialize=False)),
                ("chain", models.CharField(max_length=20)),
                ("position", models.BigIntegerField()),
                ("prev_hash", models.BinaryField(max_length=32)),
                ("hash", models.BinaryField(max_length=32)),
            ],
            options={
                "ordering": ("chain", "position"),
                "constraints": [
                    models.UniqueConstraint(fields=("chain", "position"), name="audit_link_one_per_position"),
                    models.CheckConstraint(
                        condition=models.Q(("position__gte", 1)), name="audit_link_position_positive"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            django.db.models.lookups.Exact(django.db.models.functions.Length("hash"), 32),
                            django.db.models.lookups.Exact(
                                django.db.models.functions.Length("prev_hash"), 32
                            ),
                        ),
                        name="audit_link_hashes_are_32_bytes",
                    ),
                ],
            },
        ),
        migrations.RunSQL(CHAIN, UNCHAIN),
        migrations.RunSQL(GUARD, UNGUARD),
    ]
