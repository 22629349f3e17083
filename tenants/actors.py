"""Who acts: a person, an API key, a part of the system, or nobody known.

An actor is built once per request and handed to every action as `by=`. It carries what the gates decide
on (roles) and what the audit trail keeps (who, from where, in which request).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, TypedDict

from django.db.models import CharField, Value

from tenants.roles import (
    NO_RIGHTS,
    PLATFORM_RIGHTS,
    ROLE_RIGHTS,
    PlatformRole,
    Right,
    Rights,
    Role,
    rights_of_scopes,
)
from tenants.scoping import all_tenants

if TYPE_CHECKING:
    from django.contrib.auth.models import AnonymousUser
    from django.http import HttpRequest

    from tenants.models import ApiKey, User

ActorType = Literal["user", "api_key", "system", "anonymous"]
_USER_AGENT_CHARS = 256
_TRACEPARENT = re.compile(
    r"(?P<version>[0-9a-f]{2})-(?P<trace>[0-9a-f]{32})-(?P<parent>[0-9a-f]{16})-[0-9a-f]{2}(?P<more>-.*)?$"
)


@dataclass(frozen=True, slots=True)
class Actor:
    type: ActorType
    id: str
    name: str
    platform_role: PlatformRole = PlatformRole.NONE
    memberships: Mapping[str, Role] = field(default_factory=lambda: MappingProxyType({}))
    """Tenant id → role."""
    organisations: frozenset[str] = frozenset()
    """Ids of the organisations they are an admin of; the tenants of those are among the memberships."""
    granted: Mapping[str, Rights] = field(default_factory=lambda: MappingProxyType({}))
    """Tenant id → rights, of an API key, which has no role."""
    person_id: int | None = None
    """The account that answers for it: the person, or whoever made the key. None of the system."""
    ip: str | None = None
    user_agent: str = ""
    request_id: str = ""
    trace_id: str = ""
    """Of the caller's `traceparent` (W3C Trace Context), where there is one."""

    @classmethod
    def system(cls, name: str) -> Actor:
        """A part of Tidegate itself (`controller`, `up`, …); it may do everything."""
        return cls(type="system", id=name, name=name, platform_role=PlatformRole.OPERATOR)

    @classmethod
    def anonymous(cls, request: HttpRequest | None = None) -> Actor:
        return cls(type="anonymous", id="", name="anonymous", **_origin(request))

    @classmethod
    def of_user(cls, user: User | AnonymousUser, request: HttpRequest | None = None) -> Actor:
        """Reads the person's roles (one query). Someone signed out or switched off is anonymous."""
        if user.is_anonymous or not user.is_active:
            return cls.anonymous(request)
        memberships, organisations = _roles_of(user)
        return cls(
            type="user",
            id=str(user.pk),
            name=user.get_username(),
            platform_role=PlatformRole(user.platform_role),
            memberships=MappingProxyType(memberships),
            organisations=organisations,
            person_id=user.pk,
            **_origin(request),
        )

    @classmethod
    def of_key(cls, key: ApiKey, request: HttpRequest | None = None) -> Actor:
        """A key that was presented and checked. It sees its own tenant and holds no right on the platform.

        Its rights are those of its scopes that its maker holds in the tenant at this moment (two queries), and
        none while the tenant is suspended or once the key is revoked, expired or its maker gone.
        """
        return cls(
            type="api_key",
            id=key.pk,
            name=key.name,
            granted=MappingProxyType({key.tenant_id: _rights_of_key(key)}),
            person_id=key.creator_id,
            **_origin(request),
        )

    @property
    def is_anonymous(self) -> bool:
        return self.type == "anonymous"

    @property
    def is_operator(self) -> bool:
        return self.platform_role is PlatformRole.OPERATOR

    @property
    def sees_platform(self) -> bool:
        """Whether every tenant, and what belongs to none, is there for them."""
        return Right.VIEW_PLATFORM in self.platform_rights

    def can_see(self, tenant_id: str) -> bool:
        return self.sees_platform or tenant_id in self.memberships or tenant_id in self.granted

    @property
    def tenant_ids(self) -> frozenset[str]:
        """Tenants the actor belongs to. What an operator sees besides is not among them."""
        return frozenset(self.memberships) | frozenset(self.granted)

    def rights_in(self, tenant_id: str) -> Rights:
        """Every right the actor has over one tenant, platform rights included."""
        role = self.memberships.get(tenant_id)
        own = ROLE_RIGHTS[role] if role else NO_RIGHTS
        return self.platform_rights | own | self.granted.get(tenant_id, NO_RIGHTS)

    @property
    def platform_rights(self) -> Rights:
        return PLATFORM_RIGHTS[self.platform_role]

    def has(self, right: Right, tenant_id: str | None = None) -> bool:
        """Whether the actor has `right`: in one tenant, or on the platform when none is named."""
        return right in (self.platform_rights if tenant_id is None else self.rights_in(tenant_id))


def _roles_of(user: User) -> tuple[dict[str, Role], frozenset[str]]:
    """The stronger of a person's own role in a tenant and an organisation's admin's, in one query."""
    through = user.organisations.values_list(
        "organisation__tenants", Value(Role.ADMIN.value, CharField()), "organisation_id"
    )
    roles, organisations = dict[str, Role](), set[str]()
    with all_tenants("whose tenants they are is the question"):
        own = user.memberships.values_list("tenant_id", "role", Value("", CharField()))
        rows = list(own.order_by().union(through.order_by(), all=True))
    for tenant_id, name, organisation_id in rows:
        if organisation_id:
            organisations.add(organisation_id)
        if tenant_id is not None:
            role = Role(name)
            roles[tenant_id] = max(roles.get(tenant_id, role), role, key=lambda r: len(ROLE_RIGHTS[r]))
    return roles, frozenset(organisations)


def _rights_of_key(key: ApiKey) -> Rights:
    asked = rights_of_scopes(key.scopes)
    if not asked or key.state != "active" or not key.tenant.is_active or key.creator is None:
        return NO_RIGHTS
    return asked & Actor.of_user(key.creator).rights_in(key.tenant_id)


class _Origin(TypedDict, total=False):
    ip: str | None
    user_agent: str
    request_id: str
    trace_id: str


def _origin(request: HttpRequest | None) -> _Origin:
    """Where a request came from. uvicorn has already resolved a trusted proxy's forwarded address."""
    if request is None:
        return {}
    return {
        "ip": _address(request.META.get("REMOTE_ADDR", "")),
        "user_agent": request.META.get("HTTP_USER_AGENT", "")[:_USER_AGENT_CHARS],
        "request_id": getattr(request, "request_id", ""),
        "trace_id": trace_id_of(request.META.get("HTTP_TRACEPARENT", "")),
    }


def trace_id_of(traceparent: str) -> str:
    """32 hex digits; empty for what W3C Trace Context calls invalid. Later versions may append fields."""
    found = _TRACEPARENT.match(traceparent.strip())
    if found is None or found["version"] == "ff" or (found["version"] == "00" and found["more"]):
        return ""
    return found["trace"] if int(found["trace"], 16) and int(found["parent"], 16) else ""


def _address(text: str) -> str | None:
    """None behind a unix socket, where there is no address to tell."""
    try:
        return str(ip_address(text))
    except ValueError:
        return None
