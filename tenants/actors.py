"""Who acts: a person, an API key, a part of the system, or nobody known.

An actor is built once per request and handed to every action as `by=`. It carries what the gates decide
on (roles) and what the audit trail keeps (who, from where, in which request).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

from tenants.roles import NO_RIGHTS, PLATFORM_RIGHTS, ROLE_RIGHTS, PlatformRole, Right, Rights, Role
from tenants.scoping import all_tenants

if TYPE_CHECKING:
    from django.contrib.auth.models import AnonymousUser
    from django.http import HttpRequest

    from tenants.models import User

ActorType = Literal["user", "api_key", "system", "anonymous"]
_USER_AGENT_CHARS = 256


@dataclass(frozen=True, slots=True)
class Actor:
    type: ActorType
    id: str
    name: str
    platform_role: PlatformRole = PlatformRole.NONE
    memberships: Mapping[str, Role] = field(default_factory=lambda: MappingProxyType({}))
    """Tenant id → role."""
    ip: str | None = None
    user_agent: str = ""
    request_id: str = ""

    @classmethod
    def system(cls, name: str) -> Actor:
        """A part of Tidegate itself (`controller`, `up`, …); it may do everything."""
        return cls(type="system", id=name, name=name, platform_role=PlatformRole.OPERATOR)

    @classmethod
    def anonymous(cls, request: HttpRequest | None = None) -> Actor:
        ip, user_agent, request_id = _origin(request)
        return cls(
            type="anonymous", id="", name="anonymous", ip=ip, user_agent=user_agent, request_id=request_id
        )

    @classmethod
    def of_user(cls, user: User | AnonymousUser, request: HttpRequest | None = None) -> Actor:
        """Reads the person's roles (one query). Someone signed out or switched off is anonymous."""
        if user.is_anonymous or not user.is_active:
            return cls.anonymous(request)
        ip, user_agent, request_id = _origin(request)
        return cls(
            type="user",
            id=str(user.pk),
            name=user.get_username(),
            platform_role=PlatformRole(user.platform_role),
            memberships=MappingProxyType(_roles_of(user)),
            ip=ip,
            user_agent=user_agent,
            request_id=request_id,
        )

    @property
    def is_anonymous(self) -> bool:
        return self.type == "anonymous"

    @property
    def is_operator(self) -> bool:
        return self.platform_role is PlatformRole.OPERATOR

    def can_see(self, tenant_id: str) -> bool:
        return self.is_operator or tenant_id in self.memberships

    def rights_in(self, tenant_id: str) -> Rights:
        """Every right the actor has over one tenant, platform rights included."""
        role = self.memberships.get(tenant_id)
        return self.platform_rights | (ROLE_RIGHTS[role] if role else NO_RIGHTS)

    @property
    def platform_rights(self) -> Rights:
        return PLATFORM_RIGHTS[self.platform_role]

    def has(self, right: Right, tenant_id: str | None = None) -> bool:
        """Whether the actor has `right`: in one tenant, or on the platform when none is named."""
        return right in (self.platform_rights if tenant_id is None else self.rights_in(tenant_id))


def _roles_of(user: User) -> dict[str, Role]:
    with all_tenants("whose tenants they are is the question"):
        return {tenant: Role(role) for tenant, role in user.memberships.values_list("tenant_id", "role")}


def _origin(request: HttpRequest | None) -> tuple[str | None, str, str]:
    """Address, browser and request id. uvicorn has already resolved a trusted proxy's forwarded address."""
    if request is None:
        return None, "", ""
    user_agent = request.META.get("HTTP_USER_AGENT", "")[:_USER_AGENT_CHARS]
    return _address(request.META.get("REMOTE_ADDR", "")), user_agent, getattr(request, "request_id", "")


def _address(text: str) -> str | None:
    """None behind a unix socket, where there is no address to tell."""
    try:
        return str(ip_address(text))
    except ValueError:
        return None
