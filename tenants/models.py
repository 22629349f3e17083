"""People, tenants, keys, what they used and what was done: the rows other parts stand on.

The database keeps the promises that can be said about one row or one pair; `tenants.actions` keeps the rest.
"""

from __future__ import annotations

from datetime import timedelta
from ipaddress import ip_address, ip_network
from typing import Any, ClassVar

from django.contrib.auth.models import AbstractUser
from django.contrib.postgres.fields import ArrayField
from django.core.validators import MinValueValidator, RegexValidator
from django.db import models
from django.db.models import Q
from django.db.models.functions import Length, Lower, Now
from django.db.models.lookups import Exact
from django.utils import timezone

from tenants.ids import PrefixedIdField
from tenants.keys import DIGEST_BYTES
from tenants.organisations import Organisation
from tenants.organisations import OrganisationAdmin as OrganisationAdmin
from tenants.people import Invitation as Invitation
from tenants.people import UserSession as UserSession
from tenants.roles import PlatformRole, Role
from tenants.scoping import TenantScopedManager
from tenants.trail.archives.models import AuditArchive as AuditArchive
from tenants.trail.archives.models import AuditRetention as AuditRetention
from tenants.trail.models import AuditCheckpoint as AuditCheckpoint
from tenants.trail.models import AuditExport as AuditExport
from tenants.trail.models import AuditLink as AuditLink
from tenants.trail.models import AuditSinkCursor as AuditSinkCursor
from tenants.trail.models import AuditVerification as AuditVerification
from tenants.trail.webhooks.models import AuditDeadLetter as AuditDeadLetter
from tenants.trail.webhooks.models import AuditDelivery as AuditDelivery
from tenants.trail.webhooks.models import AuditWebhook as AuditWebhook
from tenants.usage_rows import UsageDay as UsageDay
from tenants.usage_rows import UsageHour as UsageHour
from tenants.usage_rows import UsageMinute as UsageMinute
from tenants.usage_rows import UsagePlatformDay as UsagePlatformDay
from tenants.usage_rows import UsageWeek as UsageWeek
from tenants.zones import MAX_NAME_CHARS, UTC_NAME, validate_time_zone

SLUG_PATTERN = r"^[a-z][a-z0-9-]{1,38}[a-z0-9]$"
# fmt: off
RESERVED_SLUGS = frozenset({
    "admin", "all", "api", "console", "default", "internal", "me",
    "new", "none", "operator", "platform", "public", "static", "system",
    "tenant", "tenants", "tidegate", "v1", "v2",
})
# fmt: on
EXPIRY_WARNING = timedelta(days=14)
LIMITS = ("max_concurrency", "requests_per_s", "burst")
EDITABLE = ("name", "time_zone", *LIMITS)
"""Fields of a tenant that change after it was made."""
SET_BY_OPERATORS = ("time_zone", *LIMITS)
"""Those that a tenant's own people may not change: days of another zone would begin budgets anew."""


def _choices(kind: type[Role] | type[PlatformRole]) -> list[tuple[str, str]]:
    return [(member.value, member.value or "none") for member in kind]


class User(AbstractUser):
    """A person. What they may do comes from memberships and `platform_role`, not from Django's permissions."""

    platform_role = models.CharField(max_length=16, blank=True, default="", choices=_choices(PlatformRole))

    platform_role_by_group = models.BooleanField(default=False, editable=False)
    """Whether a group of the single sign-on gave the role, and may take it."""

    class Meta(AbstractUser.Meta):
        constraints: ClassVar = [
            models.CheckConstraint(
                name="user_platform_role_known",
                condition=Q(platform_role__in=[role.value for role in PlatformRole]),
            ),
            models.UniqueConstraint(
                Lower("username"),
                name="user_username_unique_any_case",
                violation_error_code="field:username",
                violation_error_message="This user name is taken.",
            ),
            models.UniqueConstraint(
                Lower("email"),
                condition=~Q(email=""),
                name="user_email_unique_any_case",
                violation_error_code="field:email",
                violation_error_message="This e-mail address belongs to another account.",
            ),
        ]


class Tenant(models.Model):
    """A business team: the unit of isolation, limits and cost. Suspended, never deleted."""

    id = PrefixedIdField("tnt_")
    slug = models.CharField(
        max_length=40,
        unique=True,
        validators=[
            RegexValidator(
                SLUG_PATTERN,
                "Use 3 to 40 lower-case letters, digits and hyphens, starting with a letter.",
            )
        ],
        error_messages={"unique": "Another tenant has this slug."},
    )
    name = models.CharField(max_length=100)
    organisation = models.ForeignKey(
        Organisation, on_delete=models.PROTECT, null=True, blank=True, related_name="tenants"
    )
    is_active = models.BooleanField(default=True)
    suspended_reason = models.CharField(max_length=200, blank=True, default="")
    max_concurrency = models.PositiveIntegerField(default=1024, validators=[MinValueValidator(1)])
    requests_per_s = models.FloatField(null=True, blank=True, validators=[MinValueValidator(0.01)])
    burst = models.PositiveIntegerField(null=True, blank=True, validators=[MinValueValidator(1)])
    """Requests that may come at once before `requests_per_s` bites; None lets the gateway choose."""
    time_zone = models.CharField(max_length=MAX_NAME_CHARS, default=UTC_NAME, validators=[validate_time_zone])
    """IANA name: where the days and months of its usage, statements and budgets begin."""
    usage_zone = models.CharField(max_length=MAX_NAME_CHARS, default=UTC_NAME, editable=False)
    """Where the days in its ledger begin now: they are cut anew soon after `time_zone` changed."""
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        ordering = ("slug",)
        constraints: ClassVar = [
            models.CheckConstraint(name="tenant_slug_well_formed", condition=Q(slug__regex=SLUG_PATTERN)),
            models.CheckConstraint(name="tenant_concurrency_positive", condition=Q(max_concurrency__gte=1)),
            models.CheckConstraint(
                name="tenant_rate_positive",
                condition=Q(requests_per_s__isnull=True) | Q(requests_per_s__gt=0),
            ),
            models.CheckConstraint(
                name="tenant_burst_needs_rate",
                condition=Q(burst__isnull=True) | Q(burst__gte=1, requests_per_s__isnull=False),
                violation_error_code="field:burst",
                violation_error_message="A burst only means something beside a request rate.",
            ),
            models.CheckConstraint(name="tenant_time_zone_given", condition=~Q(time_zone="")),
            models.CheckConstraint(
                name="tenant_suspension_has_reason_only_while_suspended",
                condition=Q(is_active=False) | Q(suspended_reason=""),
            ),
        ]

    def __str__(self) -> str:
        return self.slug

    def facts(self) -> dict[str, Any]:
        """What may be changed about it."""
        return {name: getattr(self, name) for name in EDITABLE}


class Membership(models.Model):
    """One person's role in one tenant."""

    id = PrefixedIdField("mem_")
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="memberships")
    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="memberships")
    role = models.CharField(max_length=16, choices=_choices(Role))
    by_group = models.BooleanField(default=False, editable=False)
    """Whether a group of the single sign-on gave the role, and may take it."""
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    objects: ClassVar[TenantScopedManager[Membership]] = TenantScopedManager()

    class Meta:
        ordering = ("user__username",)
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["tenant", "user"],
                name="membership_once_per_tenant",
                violation_error_code="field:user",
                violation_error_message="This person is a member already.",
            ),
            models.CheckConstraint(
                name="membership_role_known", condition=Q(role__in=[role.value for role in Role])
            ),
        ]

    def __str__(self) -> str:
        return f"{self.user.get_username()} ({self.role})"


class ApiKey(models.Model):
    """A tenant's credential for inference. The secret is shown once; only its keyed digest stays."""

    id = models.CharField(primary_key=True, max_length=16, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="api_keys")
    name = models.CharField(max_length=100)
    prefix = models.CharField(max_length=16, editable=False)
    last_four = models.CharField(max_length=4, editable=False)
    digest = models.BinaryField(max_length=DIGEST_BYTES, editable=False, serialize=False)
    scopes = ArrayField(models.CharField(max_length=32))
    allowed_models = ArrayField(models.CharField(max_length=100), null=True, blank=True)
    """Names of models; None means every model the tenant was granted."""
    allowed_networks = ArrayField(models.CharField(max_length=43), null=True, blank=True)
    """Where it may be used from, as CIDRs; None means everywhere."""
    replaced_by = models.OneToOneField(
        "self", null=True, blank=True, on_delete=models.PROTECT, related_name="replaces", editable=False
    )
    """The key it was rolled to; it works beside that one until `expires_at`."""
    first_id = models.CharField(max_length=16, blank=True, editable=False)
    """Of a key that another was rolled to: the first of them."""
    expires_at = models.DateTimeField(null=True, blank=True)
    warned_of = models.DateTimeField(null=True, blank=True, editable=False)
    """The expiry that the trail was warned of."""
    revoked_at = models.DateTimeField(null=True, blank=True, editable=False)
    last_used_at = models.DateTimeField(null=True, blank=True, editable=False)
    """Start of the last minute in which usage was reported."""
    last_used_class = models.CharField(max_length=8, blank=True, default="", editable=False)
    """Of the address: `loopback`, `private`, `public`, `unknown`; empty while nobody told."""
    last_used_network = models.CharField(max_length=43, blank=True, default="", editable=False)
    """The /24 or /48 the address is in; empty for loopback and where no address is known."""
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    created_by = models.CharField(max_length=150, blank=True, editable=False)
    creator = models.ForeignKey(
        User, null=True, blank=True, on_delete=models.SET_NULL, related_name="+", editable=False
    )
    """Whose rights bound the key's; None (made by the system, or the account is gone) leaves `infer` alone."""

    objects: ClassVar[TenantScopedManager[ApiKey]] = TenantScopedManager()

    class Meta:
        verbose_name = "API key"
        ordering = ("-created_at",)
        constraints: ClassVar = [
            models.CheckConstraint(
                name="apikey_id_well_formed", condition=Q(id__regex=r"^key_[a-z0-9]{12}$")
            ),
            models.CheckConstraint(
                name="apikey_digest_is_32_bytes", condition=Exact(Length("digest"), DIGEST_BYTES)
            ),
            models.CheckConstraint(name="apikey_has_a_scope", condition=Q(scopes__len__gte=1)),
            models.UniqueConstraint(
                fields=["tenant", "name"],
                condition=Q(revoked_at__isnull=True, replaced_by__isnull=True),
                name="apikey_active_name_unique_in_tenant",
                violation_error_code="field:name",
                violation_error_message="Another key of this tenant has this name.",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.name} ({self.display})"

    @property
    def display(self) -> str:
        """What may be shown of the token for ever: `tg_4k0z…_…9fQ2`."""
        return f"{self.prefix}_…{self.last_four}"

    @property
    def state(self) -> str:
        """`active`, `revoked` or `expired`."""
        if self.revoked_at is not None:
            return "revoked"
        if self.expires_at is not None and self.expires_at <= timezone.now():
            return "expired"
        return "active"

    @property
    def expires_soon(self) -> bool:
        """Within `EXPIRY_WARNING`, and nothing else was put in its place yet."""
        if self.expires_at is None or self.replaced_by_id is not None:
            return False
        return self.state == "active" and self.expires_at <= timezone.now() + EXPIRY_WARNING

    @property
    def limited_as(self) -> str:
        """The id under which its quotas count: rolled keys share them with what they were rolled from."""
        return self.first_id or self.pk

    def may_be_used_from(self, address: str | None) -> bool:
        """Whether its networks hold the address; an unknown address is in none."""
        if self.allowed_networks is None:
            return True
        return address is not None and any(
            ip_address(address) in ip_network(network) for network in self.allowed_networks
        )


class AuditEvent(models.Model):
    """What was done, by whom, to what. A trigger refuses UPDATE and DELETE; names are copied, not joined."""

    seq = models.BigAutoField(primary_key=True)
    event_id = PrefixedIdField("evt_", primary_key=False, unique=True)
    at = models.DateTimeField(db_default=Now(), editable=False)
    tenant_id = models.CharField(max_length=20, null=True, blank=True)  # noqa: DJ001 - absent, not empty
    """None for what concerns the platform: such rows exist only under `all_tenants`."""
    tenant_name = models.CharField(max_length=100, blank=True, default="")
    actor_type = models.CharField(max_length=16)
    actor_id = models.CharField(max_length=64, blank=True)
    actor_name = models.CharField(max_length=150)
    action = models.CharField(max_length=64)
    target_type = models.CharField(max_length=32)
    target_id = models.CharField(max_length=64)
    target_name = models.CharField(max_length=200)
    outcome = models.CharField(max_length=16, default="success")
    reason = models.CharField(max_length=500, blank=True, default="")
    before = models.JSONField(null=True)
    after = models.JSONField(null=True)
    request_id = models.CharField(max_length=64, blank=True, default="")
    trace_id = models.CharField(max_length=32, blank=True, default="")
    ip = models.GenericIPAddressField(null=True)
    user_agent = models.CharField(max_length=256, blank=True, default="")

    objects: ClassVar[TenantScopedManager[AuditEvent]] = TenantScopedManager()

    class Meta:
        ordering = ("-seq",)
        indexes: ClassVar = [
            # The audit page reads one tenant's newest first, or one object's history.
            models.Index(fields=["tenant_id", "-seq"], name="audit_by_tenant"),
            models.Index(fields=["target_type", "target_id", "-seq"], name="audit_by_target"),
            # What else both can be filtered by: a trail is long, and what is asked for is often rare in it.
            models.Index(fields=["actor_id", "-seq"], name="audit_by_actor"),
            models.Index(fields=["action", "-seq"], name="audit_by_action"),
            models.Index(fields=["-seq"], name="audit_failures", condition=Q(outcome="failure")),
            models.Index(fields=["request_id"], name="audit_by_request"),
            models.Index(fields=["trace_id"], name="audit_by_trace", condition=~Q(trace_id="")),
            models.Index(fields=["at"], name="audit_by_time"),
        ]
        constraints: ClassVar = [
            models.CheckConstraint(
                name="audit_actor_type_known",
                condition=Q(actor_type__in=["user", "api_key", "system", "anonymous"]),
            ),
            models.CheckConstraint(
                name="audit_outcome_known", condition=Q(outcome__in=["success", "failure"])
            ),
        ]

    def __str__(self) -> str:
        return f"{self.actor_name} {self.action} {self.target_name}"
