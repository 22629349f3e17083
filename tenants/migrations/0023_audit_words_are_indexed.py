from typing import ClassVar

from django.db import migrations

from tenants.rowsecurity import ProtectWords, RestatePolicies

# What a search looks into, in one line of small letters. Kept by triggers, so that no way of writing an event can
# forget it, and gone with the event when that is archived.
CREATE = """
CREATE TABLE tenants_audittext (
    seq bigint PRIMARY KEY,
    tenant_id varchar(20),
    text text COLLATE "C" NOT NULL
);
CREATE INDEX audittext_by_tenant ON tenants_audittext (tenant_id, seq DESC);
CREATE FUNCTION tenants_audit_text(e tenants_auditevent) RETURNS text
LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
    SELECT lower(concat_ws(' ', e.actor_name, e.target_name, e.target_id, e.action, e.reason, e.request_id,
        e.tenant_name, e.user_agent, e.before::text, e.after::text, host(e.ip)))
$$;
CREATE FUNCTION tenants_keep_audit_text() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        INSERT INTO tenants_audittext VALUES (NEW.seq, NEW.tenant_id, tenants_audit_text(NEW));
    ELSIF TG_OP = 'DELETE' THEN
        DELETE FROM tenants_audittext WHERE seq = OLD.seq;
    ELSE
        TRUNCATE tenants_audittext;
    END IF;
    RETURN NULL;
END
$$;
INSERT INTO tenants_audittext SELECT e.seq, e.tenant_id, tenants_audit_text(e) FROM tenants_auditevent e;
CREATE TRIGGER tenants_auditevent_words AFTER INSERT OR DELETE ON tenants_auditevent
    FOR EACH ROW EXECUTE FUNCTION tenants_keep_audit_text();
CREATE TRIGGER tenants_auditevent_words_emptied AFTER TRUNCATE ON tenants_auditevent
    FOR EACH STATEMENT EXECUTE FUNCTION tenants_keep_audit_text();
"""
DROP = """
DROP TRIGGER tenants_auditevent_words_emptied ON tenants_auditevent;
DROP TRIGGER tenants_auditevent_words ON tenants_auditevent;
DROP FUNCTION tenants_keep_audit_text();
DROP FUNCTION tenants_audit_text(tenants_auditevent);
DROP TABLE tenants_audittext;
"""
# An extension that PostgreSQL brings with it and lets the owner of a database have. Without it a search reads every
# line: some seconds for a million events.
INDEX = """
DO $$
BEGIN
    CREATE EXTENSION IF NOT EXISTS pg_trgm;
    CREATE INDEX audittext_by_words ON tenants_audittext USING gin (text gin_trgm_ops);
EXCEPTION
    WHEN insufficient_privilege OR undefined_file OR feature_not_supported THEN
        RAISE NOTICE 'words of the audit trail are not indexed: pg_trgm cannot be had';
END
$$;
ANALYZE tenants_audittext;
"""


class Migration(migrations.Migration):
    dependencies: ClassVar = [("tenants", "0022_archives_know_their_events")]

    operations: ClassVar = [
        migrations.RunSQL(CREATE, DROP),
        migrations.RunSQL(INDEX, migrations.RunSQL.noop),
        ProtectWords("tenants_audittext", "tenants_auditwords"),
        RestatePolicies(),
    ]
