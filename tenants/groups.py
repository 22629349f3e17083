"""Which group of the single sign-on gives which role: `platform-team=operator, acme-devs=acme:developer`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tenants.roles import PLATFORM_RIGHTS, ROLE_RIGHTS, PlatformRole, Role

_PLATFORM_ROLES = [role.value for role in PlatformRole if role]


@dataclass(frozen=True, slots=True)
class Granted:
    """What somebody's groups give together: the strongest of each. Tenants are named by their slugs."""

    platform_role: PlatformRole = PlatformRole.NONE
    roles: Mapping[str, Role] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.platform_role or self.roles)


def parse_groups(text: str) -> list[tuple[str, str, str]]:
    """Group, tenant's slug (empty for the platform), role; raises `ValueError` that names the wrong part.

    Only the last `=` of a part divides, so that a group may be a distinguished name without commas.
    """
    return [_part(part.strip()) for part in text.split(",") if part.strip()]


def granted_by(groups: Iterable[str], mapping: Iterable[tuple[str, str, str]]) -> Granted:
    held, platform_role, roles = set(groups), PlatformRole.NONE, dict[str, Role]()
    for group, slug, name in mapping:
        if group not in held:
            continue
        if not slug:
            role = PlatformRole(name)
            platform_role = max(platform_role, role, key=lambda r: len(PLATFORM_RIGHTS[r]))
        else:
            wanted = Role(name)
            roles[slug] = max(roles.get(slug, wanted), wanted, key=lambda r: len(ROLE_RIGHTS[r]))
    return Granted(platform_role, roles)


def _part(part: str) -> tuple[str, str, str]:
    group, divider, target = part.rpartition("=")
    slug, _, role = target.strip().rpartition(":")
    known = [r.value for r in Role] if slug else _PLATFORM_ROLES
    if not divider or not group.strip() or role not in known:
        raise ValueError(f"“{part}” is not GROUP=ROLE or GROUP=TENANT:ROLE with one of: {', '.join(known)}")
    return group.strip(), slug, role
