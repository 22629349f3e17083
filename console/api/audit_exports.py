"""Files of the audit trail: asked for, written in the background, fetched in parts, proved by a manifest."""

from __future__ import annotations

from django.http.response import HttpResponseBase
from django.urls import reverse
from drf_spectacular.types import OpenApiTypes
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from console.api.audit import EventFilters
from console.api.fields import Document, Moment
from console.api.schema import listed, made, shown
from console.api.trails import TrailPage, named_trail, trail_field, trail_rows
from console.api.views import ApiView
from console.audit_exports import request_file, send_export
from tenants.errors import NotFound
from tenants.models import AuditExport
from tenants.roles import Right
from tenants.trail.exports import access_export
from tenants.trail.formats import FORMATS
from tenants.trail.search import Asked

FILES = {(200, each.media_type.partition(";")[0]): OpenApiTypes.BINARY for each in FORMATS.values()}
"""What the answer may be, by the format that was asked for."""


class ExportDocument(Document):
    id = serializers.CharField()
    tenant_id = serializers.CharField(allow_null=True, help_text="Null for the whole platform.")
    format = serializers.CharField()
    filters = serializers.DictField()
    state = serializers.CharField()
    error = serializers.CharField()
    rows_done = serializers.IntegerField()
    rows_total = serializers.IntegerField(allow_null=True)
    size_bytes = serializers.IntegerField(allow_null=True)
    sha256 = serializers.CharField(help_text="Of the file, once it is done.")
    requested_by_name = serializers.CharField()
    created_at = Moment()
    finished_at = Moment(allow_null=True)
    expires_at = Moment(allow_null=True)


class ExportBody(EventFilters):
    tenant = trail_field()
    format = serializers.ChoiceField(choices=list(FORMATS))


class Exports(ApiView):
    """`/audit-exports`"""

    @listed("list_audit_exports", ExportDocument, TrailPage)
    def get(self, request: Request) -> Response:
        """Exports of the trails you may export, newest first."""
        return self.rows(trail_rows(self, AuditExport.objects.all(), Right.EXPORT_AUDIT), ExportDocument)

    @made("request_audit_export", ExportBody, ExportDocument)
    def post(self, request: Request) -> Response:
        """Ask for a file. Read the export again to see how far it is."""
        values = self.read(ExportBody)
        tenant_id, format = values.pop("tenant"), values.pop("format")
        tenant = named_trail(self, tenant_id, Right.EXPORT_AUDIT)
        asked = Asked.of(values)
        return self.make(
            lambda: request_file(by=self.actor, tenant=tenant, format=format, asked=asked),
            ExportDocument,
            lambda export: reverse("api_export", args=[export.pk]),
        )


class OneExport(ApiView):
    """`/audit-exports/{id}`"""

    @shown("get_audit_export", ExportDocument)
    def get(self, request: Request, export_id: str) -> Response:
        """One export: its progress, and the file's digest once it is done."""
        return self.one(access_export(self.actor, export_id), ExportDocument)


class Content(ApiView):
    """`/audit-exports/{id}/content`"""

    @shown("get_audit_export_content", FILES)
    def get(self, request: Request, export_id: str) -> HttpResponseBase:
        """The file, or a range of it: a download that broke goes on with `Range`."""
        export = access_export(self.actor, export_id)
        return send_export(request._request, by=self.actor, export=export)


class Manifest(ApiView):
    """`/audit-exports/{id}/manifest`"""

    @shown("get_audit_export_manifest", OpenApiTypes.OBJECT)
    def get(self, request: Request, export_id: str) -> Response:
        """What the file holds, and the digests that prove it."""
        export = access_export(self.actor, export_id)
        if export.manifest is None:
            raise NotFound("manifest")
        return Response(export.manifest)
