"""Row-level security: PostgreSQL itself shows a session the rows of its tenants only.

`tenants.scoping` filters what Django asks; this stands behind it, for the query that went past a manager: raw
SQL, a join, a relation that nobody thought of. Every table with a `tenant_id` has a policy that reads one
setting of the transaction, which the database connection writes from the scope (`console.database`):

    tidegate.tenants = 'tnt_a,tnt_b'   the rows of these tenants
    tidegate.tenants = '*'             every row: `all_tenants`
    tidegate.tenants = ''              none

Policies bind the owner of a table too (FORCE), but never a superuser: the application therefore works as a
role that owns nothing (`settings.DATABASE_ROLE`), and migrations as whoever logged in.
"""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.migrations.operations.base import Operation
from django.db.migrations.state import ProjectState

from tenants.scopes import EVERY_TENANT, SETTING

POLICY = "tenant_rows"
PLATFORM_POLICY = "platform_rows"

# The subqueries are evaluated once for a statement, not once for a row.
_ALLOWED = f"(SELECT current_setting('{SETTING}', true))"
# A plain comparison would be taken for as rare as the query's own one of the tenant, and both together for rarer by
# as much again: plans for a row where there are thousands. COALESCE is taken for a half.
_OWN = (
    f"COALESCE(tenant_id::text = ANY ((SELECT string_to_array(current_setting('{SETTING}', true), ','))::text[]),"
    " false)"
)
_EVERY = f"{_ALLOWED} = '{EVERY_TENANT}'"


class _Sql(Operation):
    """A migration operation that leaves Django's picture of the models alone."""

    reversible = True

    def state_forwards(self, app_label: str, state: ProjectState) -> None:
        pass

    def database_forwards(
        self, app_label: str, editor: BaseDatabaseSchemaEditor, before: ProjectState, after: ProjectState
    ) -> None:
        for statement in self.forwards():
            editor.execute(statement, params=None)

    def database_backwards(
        self, app_label: str, editor: BaseDatabaseSchemaEditor, before: ProjectState, after: ProjectState
    ) -> None:
        for statement in self.backwards():
            editor.execute(statement, params=None)

    def forwards(self) -> list[str]:
        raise NotImplementedError

    def backwards(self) -> list[str]:
        raise NotImplementedError


class ProtectTenantRows(_Sql):
    """Puts a table with a column `tenant_id` behind the policy.

    `shared`: rows of no tenant are everybody's to read (they stay the platform's to write).
    """

    def __init__(self, table: str, shared: bool = False) -> None:
        self.table = table
        self.shared = shared

    def deconstruct(self) -> tuple[str, list[Any], dict[str, Any]]:
        return type(self).__name__, [self.table], {"shared": self.shared}

    def describe(self) -> str:
        return f"Show rows of {self.table} to their own tenant only"

    def forwards(self) -> list[str]:
        may_write = f"{_OWN} OR {_EVERY}"
        may_read = f"{may_write} OR tenant_id IS NULL" if self.shared else may_write
        statements = _forced(self.table)
        if not self.shared:
            return [*statements, self._policy(POLICY, "ALL", may_read, may_write)]
        return [
            *statements,
            self._policy(POLICY, "ALL", may_write, may_write),
            f'CREATE POLICY {POLICY}_shared ON "{self.table}" FOR SELECT USING ({may_read})',
        ]

    def backwards(self) -> list[str]:
        return [
            f'DROP POLICY IF EXISTS {POLICY}_shared ON "{self.table}"',
            f'DROP POLICY {POLICY} ON "{self.table}"',
            *_released(self.table),
        ]

    def _policy(self, name: str, command: str, may_read: str, may_write: str) -> str:
        return f'CREATE POLICY {name} ON "{self.table}" FOR {command} USING ({may_read}) WITH CHECK ({may_write})'


class ProtectPlatformRows(_Sql):
    """Puts a table of figures about all tenants together behind a policy: for `all_tenants` only."""

    def __init__(self, table: str) -> None:
        self.table = table

    def deconstruct(self) -> tuple[str, list[Any], dict[str, Any]]:
        return type(self).__name__, [self.table], {}

    def describe(self) -> str:
        return f"Show rows of {self.table} to who sees every tenant only"

    def forwards(self) -> list[str]:
        return [
            *_forced(self.table),
            f'CREATE POLICY {PLATFORM_POLICY} ON "{self.table}" FOR ALL USING ({_EVERY}) WITH CHECK ({_EVERY})',
        ]

    def backwards(self) -> list[str]:
        return [
            f'DROP POLICY {PLATFORM_POLICY} ON "{self.table}"',
            *_released(self.table),
        ]


class RestatePolicies(_Sql):
    """Every policy on tenants' rows that is there already says the same in today's words."""

    def describe(self) -> str:
        return "Policies on rows of tenants are said so that the planner guesses well"

    def forwards(self) -> list[str]:
        values = {"policy": _literal(POLICY), "own": _literal(f"{_OWN} OR {_EVERY}")}
        return [_RESTATE % values]

    def backwards(self) -> list[str]:
        return []


class ProtectWords(_Sql):
    """Shows a table of words through two views, one of the scope's tenants and one of every row, and no other way.

    Conditions that are not leak-proof (`LIKE`) are tried behind a policy only, so no index serves them. The views are
    their owner's, who is under no policy here, and each says the scope itself: in `_own` as the policy does, in
    `_every` as a condition of the whole statement, which leaves the planner's guesses alone. Where the application
    works as the owner the policy is forced on it as on every table, and a search is right and slow.
    """

    def __init__(self, table: str, view: str) -> None:
        self.table = table
        self.view = view

    def deconstruct(self) -> tuple[str, list[Any], dict[str, Any]]:
        return type(self).__name__, [self.table, self.view], {}

    def describe(self) -> str:
        return f"Show words of {self.table} to their own tenant only"

    def forwards(self) -> list[str]:
        may = f"{_OWN} OR {_EVERY}"
        select = f'SELECT seq, tenant_id, text FROM "{self.table}" WHERE'  # noqa: S608 - made of constants
        return [
            f'ALTER TABLE "{self.table}" ENABLE ROW LEVEL SECURITY',
            f'CREATE POLICY {POLICY} ON "{self.table}" FOR ALL USING ({may}) WITH CHECK ({may})',
            f'CREATE VIEW "{self.view}_own" AS {select} {_OWN}',
            f"CREATE VIEW \"{self.view}_every\" AS {select} current_setting('{SETTING}', true) = '{EVERY_TENANT}'",
            _LOCK_WORDS
            % {
                "role": _literal(settings.DATABASE_ROLE),
                "table": _literal(self.table),
                "view": _literal(self.view),
            },
        ]

    def backwards(self) -> list[str]:
        return [f'DROP VIEW "{self.view}_own", "{self.view}_every"']


class CreateApplicationRole(_Sql):
    """Makes the role the application works as, where the login may make roles, and gives it the tables.

    A login that may not is left as it is: it works under the policies as the tables' owner, unless the
    operator makes the role and grants it to the login. Later tables are given to the role by default.
    """

    def describe(self) -> str:
        return "The application works as a role that owns nothing"

    def forwards(self) -> list[str]:
        role = settings.DATABASE_ROLE
        if not role:
            return []
        return [_MAKE % {"role": _literal(role)}]

    def backwards(self) -> list[str]:
        role = settings.DATABASE_ROLE
        if not role:
            return []
        return [_UNMAKE % {"role": _literal(role)}]


def _forced(table: str) -> list[str]:
    """Policies of the table bind its owner too."""
    return [
        f'ALTER TABLE "{table}" ENABLE ROW LEVEL SECURITY',
        f'ALTER TABLE "{table}" FORCE ROW LEVEL SECURITY',
    ]


def _released(table: str) -> list[str]:
    return [
        f'ALTER TABLE "{table}" NO FORCE ROW LEVEL SECURITY',
        f'ALTER TABLE "{table}" DISABLE ROW LEVEL SECURITY',
    ]


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


# Roles belong to the whole cluster, grants to this database. Two databases may be migrated at once.
_MAKE = """
DO $$
DECLARE app name := %(role)s;
BEGIN
    BEGIN
        IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = app) THEN
            EXECUTE format('CREATE ROLE %%I NOLOGIN NOSUPERUSER NOBYPASSRLS NOINHERIT', app);
        END IF;
        IF current_user <> app AND NOT pg_has_role(current_user, app, 'MEMBER') THEN
            EXECUTE format('GRANT %%I TO CURRENT_USER', app);
        END IF;
    EXCEPTION
        WHEN duplicate_object OR unique_violation THEN NULL;
        WHEN insufficient_privilege THEN
            RAISE NOTICE 'role %% was not made: %% may not make roles', app, current_user;
    END;
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = app) AND current_user <> app THEN
        EXECUTE format('GRANT USAGE ON SCHEMA %%I TO %%I', current_schema(), app);
        EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA %%I TO %%I',
                       current_schema(), app);
        EXECUTE format('GRANT USAGE, SELECT, UPDATE ON ALL SEQUENCES IN SCHEMA %%I TO %%I',
                       current_schema(), app);
        EXECUTE format('ALTER DEFAULT PRIVILEGES IN SCHEMA %%I'
                       ' GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO %%I', current_schema(), app);
        EXECUTE format('ALTER DEFAULT PRIVILEGES IN SCHEMA %%I'
                       ' GRANT USAGE, SELECT, UPDATE ON SEQUENCES TO %%I', current_schema(), app);
    END IF;
END
$$
"""

_UNMAKE = """
DO $$
DECLARE app name := %(role)s;
BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = app) AND current_user <> app THEN
        EXECUTE format('ALTER DEFAULT PRIVILEGES IN SCHEMA %%I REVOKE ALL ON TABLES FROM %%I',
                       current_schema(), app);
        EXECUTE format('ALTER DEFAULT PRIVILEGES IN SCHEMA %%I REVOKE ALL ON SEQUENCES FROM %%I',
                       current_schema(), app);
        EXECUTE format('REVOKE ALL ON ALL SEQUENCES IN SCHEMA %%I FROM %%I', current_schema(), app);
        EXECUTE format('REVOKE ALL ON ALL TABLES IN SCHEMA %%I FROM %%I', current_schema(), app);
        EXECUTE format('REVOKE USAGE ON SCHEMA %%I FROM %%I', current_schema(), app);
    END IF;
END
$$
"""

# The role reads the views and nothing else; without a role the owner is bound by the policy.
_LOCK_WORDS = """
DO $$
DECLARE app name := %(role)s; words name := %(table)s; seen name := %(view)s;
BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = app) AND current_user <> app THEN
        EXECUTE format('REVOKE ALL ON %%I FROM %%I', words, app);
        EXECUTE format('REVOKE ALL ON %%I, %%I FROM %%I', seen || '_own', seen || '_every', app);
        EXECUTE format('GRANT SELECT ON %%I, %%I TO %%I', seen || '_own', seen || '_every', app);
    ELSE
        EXECUTE format('ALTER TABLE %%I FORCE ROW LEVEL SECURITY', words);
    END IF;
END
$$
"""

_RESTATE = """
DO $$
DECLARE found record;
BEGIN
    FOR found IN SELECT tablename, policyname FROM pg_policies
        WHERE schemaname = current_schema() AND policyname IN (%(policy)s, %(policy)s || '_shared')
          AND EXISTS (SELECT FROM pg_attribute
                      WHERE attrelid = format('%%I', tablename)::regclass AND attname = 'tenant_id')
    LOOP
        IF found.policyname = %(policy)s THEN
            EXECUTE format('ALTER POLICY %%I ON %%I USING (%%s) WITH CHECK (%%s)',
                           found.policyname, found.tablename, %(own)s, %(own)s);
        ELSE
            EXECUTE format('ALTER POLICY %%I ON %%I USING (%%s OR tenant_id IS NULL)',
                           found.policyname, found.tablename, %(own)s);
        END IF;
    END LOOP;
END
$$
"""
