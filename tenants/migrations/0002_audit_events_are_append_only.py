from django.db import migrations

CREATE = """
CREATE FUNCTION tenants_refuse_audit_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'audit events are append-only: % refused', TG_OP USING ERRCODE = 'restrict_violation';
END
$$;
CREATE TRIGGER tenants_auditevent_append_only
    BEFORE UPDATE OR DELETE ON tenants_auditevent
    FOR EACH ROW EXECUTE FUNCTION tenants_refuse_audit_change();
"""

DROP = """
DROP TRIGGER tenants_auditevent_append_only ON tenants_auditevent;
DROP FUNCTION tenants_refuse_audit_change();
"""


class Migration(migrations.Migration):
    dependencies = [("tenants", "0001_people_tenants_keys_audit_usage")]

    operations = [migrations.RunSQL(CREATE, DROP)]
