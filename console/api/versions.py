"""Versions: registered from an upload or a path on the server, validated, trusted, archived."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from django.core.files.uploadedfile import UploadedFile
from django.urls import reverse
from rest_framework import serializers
from rest_framework.parsers import MultiPartParser
from rest_framework.request import Request
from rest_framework.response import Response

from console.again import ask_who_it_is
from console.api.fields import Body, Document, Moment, Ref, Text, Whole
from console.api.schema import Page, changed, listed, made, shown
from console.api.views import ApiView, BoundedJson
from serving.control.catalog.access import access_model_by_id, access_version, visible_versions
from serving.control.catalog.actions import (
    archive_version,
    register_version,
    request_validation,
    set_fallback,
    trust_python,
)
from serving.control.catalog.models import Engine, Model, Version
from serving.control.catalog.states import STATES
from tenants.errors import Invalid
from tenants.roles import Right

MAX_OPTIONS_CHARS = 10_000
MAX_PRICE = (1 << 62) - 1


class ArtifactDocument(Document):
    sha256 = serializers.CharField()
    format = serializers.CharField()
    size_bytes = serializers.IntegerField()
    file_count = serializers.IntegerField()


class VersionDocument(Document):
    id = serializers.CharField()
    model = Ref("mdl_")
    model_name = serializers.CharField(source="model.name")
    number = serializers.IntegerField()
    engine = serializers.ChoiceField(choices=Engine.values)
    options = serializers.DictField()
    state = serializers.ChoiceField(choices=STATES)
    state_reason = serializers.CharField()
    artifact = ArtifactDocument(allow_null=True)
    inputs = serializers.ListField(child=serializers.DictField())
    outputs = serializers.ListField(child=serializers.DictField())
    cost = serializers.DictField(allow_null=True, help_text="Measured: milliseconds, per row, per token.")
    points = serializers.ListField(child=serializers.DictField())
    memory_bytes = serializers.IntegerField(allow_null=True)
    load_s = serializers.FloatField(allow_null=True)
    warm_up_s = serializers.FloatField(allow_null=True)
    notes = serializers.ListField(child=serializers.CharField())
    validated_at = Moment(allow_null=True)
    fallback_version = Ref("mv_", allow_null=True)
    fallback_model = Ref("mdl_", allow_null=True)
    price_micro_per_device_hour = serializers.IntegerField()
    trusted_by = serializers.CharField()
    created_by = serializers.CharField()
    created_at = Moment()


class VersionBody(Body):
    engine = serializers.ChoiceField(choices=Engine.values)
    price_micro_per_device_hour = Whole(max_value=MAX_PRICE, default=0)
    path = Text(required=False, help_text="On the server, inside its import directories; none for `echo`.")
    options = serializers.DictField(required=False)


class VersionUpload(Body):
    """A form, whose values are texts."""

    engine = serializers.ChoiceField(choices=Engine.values)
    price_micro_per_device_hour = serializers.IntegerField(min_value=0, max_value=MAX_PRICE, default=0)
    file = serializers.FileField(help_text="A .zip or .tar.gz of the directory, or one .pt2 or .onnx file.")
    options = Text(required=False, max_length=MAX_OPTIONS_CHARS, help_text="A JSON object.")


class FallbackBody(Body):
    """What answers instead: a version, a model, or nothing."""

    fallback_version = Ref("mv_", allow_null=True, required=False)
    fallback_model = Ref("mdl_", allow_null=True, required=False)


class TrustBody(Body):
    reason = Text(max_length=500)


class Versions(ApiView):
    """`/models/{id}/versions`"""

    parser_classes = [BoundedJson, MultiPartParser]

    @listed("list_versions", VersionDocument, Page)
    def get(self, request: Request, model_id: str) -> Response:
        """Versions of a model, newest first."""
        model = access_model_by_id(self.actor, model_id)
        return self.rows(visible_versions(self.actor).filter(model=model), VersionDocument)

    @made(
        "register_version",
        {"application/json": VersionBody, "multipart/form-data": VersionUpload},
        VersionDocument,
    )
    def post(self, request: Request, model_id: str) -> Response:
        """Register a version from an upload (multipart) or a path on the server (JSON). Then validate it."""
        model = access_model_by_id(self.actor, model_id, Right.MANAGE_MODELS)
        is_upload = (request.content_type or "").startswith("multipart/")
        values = self._uploaded() if is_upload else self._by_path()
        field = "file" if is_upload else "path"
        return self.make(lambda: self._registered(model, values, field), VersionDocument, address_of)

    def _uploaded(self) -> dict[str, Any]:
        values = self.read(VersionUpload)
        source: UploadedFile = values.pop("file")
        return {**values, "source": source, "options": _object(values.pop("options", "{}"))}

    def _by_path(self) -> dict[str, Any]:
        values = self.read(VersionBody)
        path = values.pop("path", None)
        return {**values, "source": None if path is None else Path(path)}

    def _registered(self, model: Model, values: dict[str, Any], field: str) -> Version:
        try:
            version = register_version(by=self.actor, model=model, **values)
        except Invalid as error:
            named = {field if name == "source" else name: said for name, said in error.errors.items()}
            raise Invalid(named) from error
        return access_version(self.actor, version.pk)


class OneVersion(ApiView):
    """`/versions/{id}`"""

    @shown("get_version", VersionDocument)
    def get(self, request: Request, version_id: str) -> Response:
        """One version, with what validation measured."""
        return self.one(access_version(self.actor, version_id), VersionDocument)

    @changed("change_version", FallbackBody, VersionDocument)
    def patch(self, request: Request, version_id: str) -> Response:
        """Name what answers when the version cannot: a version, a model, or (both null) nothing."""
        values = self.read(FallbackBody)

        def act(version: Version) -> Any:
            if not values:
                return version
            return set_fallback(by=self.actor, version=version, fallback=self._target(values))

        return self.change(lambda: _managed(self, version_id), act, VersionDocument)

    def _target(self, values: dict[str, Any]) -> Version | Model | None:
        version, model = values.get("fallback_version"), values.get("fallback_model")
        if version and model:
            raise Invalid({"fallback_model": "A fallback is a version or a model, not both."})
        if version:
            found: Version = self.named("fallback_version", access_version, version)
            return found
        return self.named("fallback_model", access_model_by_id, model) if model else None


class ValidateVersion(ApiView):
    """`/versions/{id}/validate`"""

    @made("validate_version", None, VersionDocument, status=200)
    def post(self, request: Request, version_id: str) -> Response:
        """Load, warm and measure the version on a host. Read it again to see how it went."""

        def act(version: Version) -> Any:
            return request_validation(by=self.actor, version=version)

        return self.change(lambda: _managed(self, version_id), act, VersionDocument)


class TrustVersion(ApiView):
    """`/versions/{id}/trust`"""

    @made("trust_version", TrustBody, VersionDocument, status=200)
    def post(self, request: Request, version_id: str) -> Response:
        """Let a version of the python engine run its code."""
        reason = self.read(TrustBody)["reason"]
        _managed(self, version_id)
        ask_who_it_is(request._request)

        def act(version: Version) -> Any:
            return trust_python(by=self.actor, version=version, reason=reason)

        return self.change(lambda: _managed(self, version_id), act, VersionDocument)


class ArchiveVersion(ApiView):
    """`/versions/{id}/archive`"""

    @made("archive_version", None, VersionDocument, status=200)
    def post(self, request: Request, version_id: str) -> Response:
        """For good: an archived version cannot be deployed again."""

        def act(version: Version) -> Any:
            return archive_version(by=self.actor, version=version)

        return self.change(lambda: _managed(self, version_id), act, VersionDocument)

    def hold(self, row: Version) -> None:
        """The model's lock, as the action takes it."""
        super().hold(row.model)


def address_of(version: Version) -> str:
    return reverse("api_version", args=[version.pk])


def _managed(view: ApiView, version_id: str) -> Version:
    return access_version(view.actor, version_id, Right.MANAGE_MODELS)


def _object(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise Invalid({"options": "A JSON object."})
    return found
