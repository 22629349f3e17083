"""How long events stay in the database, the signed files that hold older ones, and the proof of both."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.http.response import HttpResponseBase
from django.urls import reverse
from drf_spectacular.types import OpenApiTypes
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from console.api.fields import Body, Document, Moment, Whole
from console.api.schema import Rehearsed, changed, listed, made, shown
from console.api.trails import TrailPage, TrailQuery, asked_trail, named_trail, trail_field, trail_rows
from console.api.views import ApiView
from console.audit_archives import send_archive
from console.audit_verifications import verification_asked
from tenants.errors import NotFound
from tenants.models import AuditArchive, AuditCheckpoint, AuditLink, AuditVerification, Tenant
from tenants.roles import Right
from tenants.trail import signing
from tenants.trail.archives.actions import access_archive, retention_of, set_retention
from tenants.trail.archives.models import MAX_MONTHS, MIN_MONTHS
from tenants.trail.canonical import chain_of

VERIFICATION_STATES = ("pending", "running", "done")


class ArchiveDocument(Document):
    id = serializers.CharField()
    tenant_id = serializers.CharField(allow_null=True)
    first_position = serializers.IntegerField()
    last_position = serializers.IntegerField()
    first_at = Moment()
    last_at = Moment()
    rows = serializers.IntegerField()
    size_bytes = serializers.IntegerField()
    sha256 = serializers.CharField()
    created_at = Moment()


class RetentionDocument(Document):
    tenant_id = serializers.CharField(allow_null=True)
    months = serializers.IntegerField(allow_null=True, help_text="Null: every event stays in the database.")


class RetentionBody(Body):
    months = Whole(min_value=MIN_MONTHS, max_value=MAX_MONTHS, allow_null=True)


class RetentionQuery(Rehearsed, TrailQuery):
    pass


class TrailDocument(Document):
    tenant_id = serializers.CharField(allow_null=True)
    position = serializers.IntegerField(help_text="Of the last event; how many there are.")
    hash = serializers.CharField(help_text="Of the last event, hexadecimal; empty before the first.")
    signed_position = serializers.IntegerField(allow_null=True, help_text="Up to here a signature covers it.")
    signed_at = Moment(allow_null=True)
    public_key = serializers.CharField(help_text="That signatures verify with; empty where none are made.")


class BreakDocument(Document):
    chain = serializers.CharField()
    position = serializers.IntegerField()
    seq = serializers.IntegerField(allow_null=True)
    what = serializers.CharField()


class VerificationDocument(Document):
    id = serializers.CharField()
    tenant_id = serializers.CharField(allow_null=True, help_text="Null looks through every trail.")
    state = serializers.ChoiceField(choices=VERIFICATION_STATES)
    rows = serializers.IntegerField(help_text="Events that were followed so far.")
    chains = serializers.IntegerField()
    checkpoints = serializers.IntegerField(help_text="Signatures that were verified.")
    broken = BreakDocument(allow_null=True, help_text="The first break; null while none was found.")
    requested_by_name = serializers.CharField()
    created_at = Moment()
    finished_at = Moment(allow_null=True)


class VerificationBody(Body):
    tenant = trail_field()


class Archives(ApiView):
    """`/audit-archives`"""

    @listed("list_audit_archives", ArchiveDocument, TrailPage)
    def get(self, request: Request) -> Response:
        """Archives of the trails you may export, newest first."""
        return self.rows(trail_rows(self, AuditArchive.objects.all(), Right.EXPORT_AUDIT), ArchiveDocument)


class OneArchive(ApiView):
    """`/audit-archives/{id}`"""

    @shown("get_audit_archive", ArchiveDocument)
    def get(self, request: Request, archive_id: str) -> Response:
        """One archive: which events it holds, and its file's digest."""
        return self.one(access_archive(self.actor, archive_id), ArchiveDocument)


class ArchiveContent(ApiView):
    """`/audit-archives/{id}/content`"""

    @shown("get_audit_archive_content", {(200, "application/gzip"): OpenApiTypes.BINARY})
    def get(self, request: Request, archive_id: str) -> HttpResponseBase:
        """The file, or a range of it: a download that broke goes on with `Range`."""
        return send_archive(request._request, by=self.actor, archive=access_archive(self.actor, archive_id))


class ArchiveManifest(ApiView):
    """`/audit-archives/{id}/manifest`"""

    @shown("get_audit_archive_manifest", OpenApiTypes.OBJECT)
    def get(self, request: Request, archive_id: str) -> Response:
        """What the file holds, and the signed digests that prove it."""
        return Response(access_archive(self.actor, archive_id).manifest)


@dataclass(frozen=True, slots=True)
class Retention:
    """The rule of one trail as it stands."""

    tenant: Tenant | None
    months: int | None

    @property
    def tenant_id(self) -> str | None:
        return self.tenant.pk if self.tenant else None


class AuditRetention(ApiView):
    """`/audit-retention`"""

    @shown("get_audit_retention", RetentionDocument, TrailQuery)
    def get(self, request: Request) -> Response:
        """How many months events stay in the database before they move to archives."""
        return self.one(self._retention(Right.EXPORT_AUDIT), RetentionDocument)

    @changed("change_audit_retention", RetentionBody, RetentionDocument, RetentionQuery)
    def put(self, request: Request) -> Response:
        """Move older events to signed archives, which stay and still prove themselves; null keeps all here."""
        months = self.read(RetentionBody)["months"]

        def act(found: Any) -> Any:
            return set_retention(by=self.actor, tenant=found.tenant, months=months)

        def fetch() -> Any:
            return self._retention(Right.EXPORT_AUDIT, Right.EDIT_TENANT)

        return self.change(fetch, act, RetentionDocument)

    def hold(self, row: Retention) -> None:
        """One number, and the last writer's is the one that stands."""

    def _retention(self, *rights: Right) -> Retention:
        tenant = asked_trail(self, *rights)
        return Retention(tenant, retention_of(tenant))


class Trail(ApiView):
    """`/audit-trail`"""

    @shown("get_audit_trail", TrailDocument, TrailQuery)
    def get(self, request: Request) -> Response:
        """How long a trail is, and how far it is signed: what an auditor writes down outside of here."""
        tenant = asked_trail(self, Right.VIEW_AUDIT)
        chain = chain_of(tenant.pk if tenant else None)
        end = AuditLink.objects.filter(chain=chain).order_by("-position").first()
        signed = AuditCheckpoint.objects.filter(chain=chain).order_by("-position").first()
        found = {
            "tenant_id": tenant.pk if tenant else None,
            "position": end.position if end else 0,
            "hash": bytes(end.hash).hex() if end else "",
            "signed_position": signed.position if signed else None,
            "signed_at": signed.at if signed else None,
            "public_key": signing.public_key() if signing.can_sign() else "",
        }
        return Response(TrailDocument(found).data)


class Verifications(ApiView):
    """`/audit-verifications`"""

    @listed("list_audit_verifications", VerificationDocument, TrailPage)
    def get(self, request: Request) -> Response:
        """Looks through the trails you may read, newest first; the platform's own is done daily."""
        rows = trail_rows(self, AuditVerification.objects.all(), Right.VIEW_AUDIT)
        return self.rows(rows, VerificationDocument)

    @made("verify_audit_trail", VerificationBody, VerificationDocument)
    def post(self, request: Request) -> Response:
        """Have a trail followed from its first event. Read the verification again to see what was found."""
        tenant = named_trail(self, self.read(VerificationBody)["tenant"], Right.EXPORT_AUDIT)
        return self.make(
            lambda: verification_asked(by=self.actor, tenant=tenant),
            VerificationDocument,
            lambda row: reverse("api_audit_verification", args=[row.pk]),
        )


class OneVerification(ApiView):
    """`/audit-verifications/{id}`"""

    @shown("get_audit_verification", VerificationDocument)
    def get(self, request: Request, verification_id: str) -> Response:
        """One verification: how far it is, and the first break it found."""
        row = AuditVerification.objects.filter(pk=verification_id).first()
        if row is None or not self.actor.has(Right.VIEW_AUDIT, row.tenant_id):
            raise NotFound("verification")
        return self.one(row, VerificationDocument)
