from typing import ClassVar

import django.db.models.expressions
import django.utils.timezone
from django.db import migrations, models

import tenants.ids
from tenants.rowsecurity import ProtectTenantRows

# An event may go when an archive's row covers its place in its chain, and that row fits the chain's own links.
# Archives are append-only like the events.
ALLOW = """
CREATE FUNCTION tenants_refuse_unarchived_delete() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM FROM tenants_auditlink l JOIN tenants_auditarchive a
        ON a.chain = l.chain AND l.position BETWEEN a.first_position AND a.last_position
        JOIN tenants_auditlink f ON f.chain = a.chain AND f.position = a.first_position AND f.prev_hash = a.prev_hash
        JOIN tenants_auditlink e ON e.chain = a.chain AND e.position = a.last_position AND e.hash = a.last_hash
        WHERE l.event_seq = OLD.seq;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'audit events are append-only: DELETE refused' USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN OLD;
END
$$;
CREATE FUNCTION tenants_delete_archived_events(archive_id text) RETURNS bigint
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE deleted bigint;
BEGIN
    DELETE FROM tenants_auditevent WHERE seq IN (
        SELECT l.event_seq FROM tenants_auditarchive a JOIN tenants_auditlink l
            ON l.chain = a.chain AND l.position BETWEEN a.first_position AND a.last_position
            WHERE a.id = archive_id);
    GET DIAGNOSTICS deleted = ROW_COUNT;
    RETURN deleted;
END
$$;
DROP TRIGGER tenants_auditevent_append_only ON tenants_auditevent;
CREATE TRIGGER tenants_auditevent_append_only BEFORE UPDATE ON tenants_auditevent
    FOR EACH ROW EXECUTE FUNCTION tenants_refuse_audit_change();
CREATE TRIGGER tenants_auditevent_archived_only BEFORE DELETE ON tenants_auditevent
    FOR EACH ROW EXECUTE FUNCTION tenants_refuse_unarchived_delete();
CREATE TRIGGER tenants_auditarchive_append_only BEFORE UPDATE OR DELETE ON tenants_auditarchive
    FOR EACH ROW EXECUTE FUNCTION tenants_refuse_audit_change();
CREATE TRIGGER tenants_auditarchive_no_truncate BEFORE TRUNCATE ON tenants_auditarchive
    FOR EACH STATEMENT EXECUTE FUNCTION tenants_refuse_audit_change();
"""
REFUSE = """
DROP TRIGGER tenants_auditarchive_no_truncate ON tenants_auditarchive;
DROP TRIGGER tenants_auditarchive_append_only ON tenants_auditarchive;
DROP TRIGGER tenants_auditevent_archived_only ON tenants_auditevent;
DROP TRIGGER tenants_auditevent_append_only ON tenants_auditevent;
CREATE TRIGGER tenants_auditevent_append_only BEFORE UPDATE OR DELETE ON tenants_auditevent
    FOR EACH ROW EXECUTE FUNCTION tenants_refuse_audit_change();
DROP FUNCTION tenants_delete_archived_events(text);
DROP FUNCTION tenants_refuse_unarchived_delete();
"""


class Migration(migrations.Migration):
    dependencies: ClassVar = [("tenants", "0017_rolled_keys_share_their_limits")]

    operations: ClassVar = [
        migrations.CreateModel(
            name="AuditRetention",
            fields=[
                ("chain", models.CharField(max_length=20, primary_key=True, serialize=False)),
                ("tenant_id", models.CharField(blank=True, max_length=20, null=True)),
                ("months", models.IntegerField()),
            ],
            options={
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("months__gte", 1), ("months__lte", 120)),
                        name="audit_retention_months_in_range",
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="AuditArchive",
            fields=[
                ("id", tenants.ids.PrefixedIdField("arc_", primary_key=True, serialize=False)),
                ("tenant_id", models.CharField(blank=True, max_length=20, null=True)),
                ("chain", models.CharField(max_length=20)),
                ("first_position", models.BigIntegerField()),
                ("last_position", models.BigIntegerField()),
                ("first_at", models.DateTimeField()),
                ("last_at", models.DateTimeField()),
                ("prev_hash", models.BinaryField(max_length=32)),
                ("last_hash", models.BinaryField(max_length=32)),
                ("size_bytes", models.BigIntegerField()),
                ("sha256", models.CharField(max_length=64)),
                ("manifest", models.JSONField()),
                ("created_at", models.DateTimeField(default=django.utils.timezone.now)),
            ],
            options={
                "verbose_name": "audit archive",
                "ordering": ("chain", "first_position"),
                "constraints": [
                    models.UniqueConstraint(
                        fields=("chain", "first_position"), name="audit_archive_once_from_position"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("first_position__gte", 1),
                            ("last_position__gte", django.db.models.expressions.F("first_position")),
                        ),
                        name="audit_archive_is_not_empty",
                    ),
                ],
            },
        ),
        ProtectTenantRows("tenants_auditretention"),
        ProtectTenantRows("tenants_auditarchive"),
        migrations.RunSQL(ALLOW, REFUSE),
    ]
