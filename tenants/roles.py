"""Who may do what: one table, read by the gates, the pages and the tests.

A person holds at most one role per tenant, and perhaps a role on the platform. Nobody hands out, or takes
away, a role that holds a right they lack themselves: "not above my own" follows from the table alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


class Right(StrEnum):
    """Rights within a tenant, then rights on the platform."""

    VIEW = "view"
    EDIT_TENANT = "edit_tenant"
    MANAGE_MEMBERS = "manage_members"
    MANAGE_OWNERS = "manage_owners"
    MANAGE_KEYS = "manage_keys"
    VIEW_USAGE = "view_usage"
    VIEW_AUDIT = "view_audit"
    EXPORT_AUDIT = "export_audit"
    MANAGE_ALERTS = "manage_alerts"

    VIEW_PLATFORM = "view_platform"
    MANAGE_TENANTS = "manage_tenants"
    MANAGE_USERS = "manage_users"
    MANAGE_MODELS = "manage_models"
    MANAGE_PROFILES = "manage_profiles"
    MANAGE_FLEET = "manage_fleet"
    MANAGE_QUOTAS = "manage_quotas"
    MANAGE_PRICES = "manage_prices"
    MANAGE_ORGANISATIONS = "manage_organisations"


class Role(StrEnum):
    OWNER = "owner"
    ADMIN = "admin"
    DEVELOPER = "developer"
    VIEWER = "viewer"
    AUDITOR = "auditor"


class PlatformRole(StrEnum):
    NONE = ""
    SUPPORT = "support"
    OPERATOR = "operator"


Rights = frozenset[Right]
NO_RIGHTS: Rights = frozenset()

_VIEWER = frozenset({Right.VIEW, Right.VIEW_USAGE})
_AUDITOR = _VIEWER | {Right.VIEW_AUDIT, Right.EXPORT_AUDIT}
_DEVELOPER = _VIEWER | {Right.MANAGE_KEYS}
_ADMIN = _AUDITOR | _DEVELOPER | {Right.EDIT_TENANT, Right.MANAGE_MEMBERS, Right.MANAGE_ALERTS}

ROLE_RIGHTS: dict[Role, Rights] = {
    Role.OWNER: _ADMIN | {Right.MANAGE_OWNERS},
    Role.ADMIN: _ADMIN,
    Role.DEVELOPER: _DEVELOPER,
    Role.VIEWER: _VIEWER,
    Role.AUDITOR: _AUDITOR,
}
PLATFORM_RIGHTS: dict[PlatformRole, Rights] = {
    PlatformRole.NONE: NO_RIGHTS,
    # Reads what the platform and every tenant does; takes nothing away in files, changes nothing.
    PlatformRole.SUPPORT: frozenset({Right.VIEW, Right.VIEW_USAGE, Right.VIEW_AUDIT, Right.VIEW_PLATFORM}),
    PlatformRole.OPERATOR: frozenset(Right),
}


@dataclass(frozen=True, slots=True)
class KeyScope:
    """What an API key with this scope is for, in a sentence, and the rights it may use at most."""

    sentence: str
    rights: Rights = NO_RIGHTS


SCOPE_INFER = "infer"
KEY_SCOPES: dict[str, KeyScope] = {
    SCOPE_INFER: KeyScope("Send requests to models and read what they are"),
    "manage:read": KeyScope("Read the tenant, its members and its keys", frozenset({Right.VIEW})),
    "manage:write": KeyScope(
        "Change the tenant, its members, keys and alert rules",
        frozenset(
            {Right.VIEW, Right.EDIT_TENANT, Right.MANAGE_MEMBERS, Right.MANAGE_KEYS, Right.MANAGE_ALERTS}
        ),
    ),
    "usage:read": KeyScope("Read what was used and what it cost", frozenset({Right.VIEW_USAGE})),
    "audit:export": KeyScope(
        "Read and export the audit trail", frozenset({Right.VIEW_AUDIT, Right.EXPORT_AUDIT})
    ),
}
"""Scopes of API keys. A key uses them only as far as the person who made it may do the same now."""


def can_grant(own: Rights, role: Role) -> bool:
    """Whether someone with the rights `own` may give or take `role`.

    Owners are the exception in the table that makes an owner more than an admin: `MANAGE_OWNERS`.
    """
    return Right.MANAGE_MEMBERS in own and ROLE_RIGHTS[role] <= own


def rights_of_scopes(scopes: Iterable[str]) -> Rights:
    """What the scopes allow together. One that is no longer known allows nothing."""
    return NO_RIGHTS.union(*(KEY_SCOPES[scope].rights for scope in scopes if scope in KEY_SCOPES))


def can_give_scope(own: Rights, scope: str) -> bool:
    """Whether someone with the rights `own` may make a key with `scope`: never above their own."""
    return KEY_SCOPES[scope].rights <= own
