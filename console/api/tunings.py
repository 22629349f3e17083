"""Variant tuning: ask for a run, watch it, make a version of a candidate."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
from django.urls import reverse
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from console.api.fields import Body, Document, Number, Text, Whole
from console.api.schema import listed, made, shown
from console.api.views import ApiView
from serving.control.catalog.models import Version
from serving.control.tuning.access import access_tuned_version, access_tuning, visible_tunings
from serving.control.tuning.actions import apply_tuning, cancel_tuning, request_tuning
from serving.control.tuning.models import GOALS, TuningCandidate, TuningRun
from serving.control.tuning.recommend import Recommendation, Tolerance
from serving.control.tuning.samples import tensors_of
from tenants.errors import Invalid
from tenants.roles import Right


class ToleranceBody(Body):
    min_cosine = Number(required=False, allow_null=True)
    max_error = Number(required=False, allow_null=True)
    min_label_agreement = Number(required=False, allow_null=True)


class TuningBody(Body):
    """Everything may be left out."""

    tolerance = ToleranceBody(required=False)
    goal = serializers.ChoiceField(choices=GOALS, required=False)
    device = Text(max_length=16, required=False)
    texts = serializers.ListField(
        child=Text(trim_whitespace=False, allow_blank=True, max_length=None), required=False
    )
    inputs = serializers.ListField(child=serializers.DictField(), required=False)
    candidates = serializers.ListField(child=serializers.DictField(), required=False)


class ApplyBody(Body):
    candidate = Whole(max_value=1000)


class NamedVersionDocument(Document):
    id = serializers.CharField()
    model = serializers.CharField(source="model.name")
    number = serializers.IntegerField()


class AppliedDocument(Document):
    version = NamedVersionDocument(source="*")
    state = serializers.CharField()
    options = serializers.DictField()


class TuningDocument(Document):
    """Rendered by `document`: what was measured of a candidate comes from the row of its measurement."""

    id = serializers.CharField()
    version = NamedVersionDocument()
    state = serializers.CharField()
    reason = serializers.CharField()
    host = serializers.CharField()
    device = serializers.CharField()
    goal = serializers.ChoiceField(choices=GOALS)
    tolerance = serializers.DictField()
    candidates = serializers.ListField(child=serializers.DictField())
    recommended = serializers.IntegerField(allow_null=True)
    gain = serializers.FloatField(allow_null=True)
    skipped = serializers.JSONField()
    created_by = serializers.CharField()
    created_at = serializers.DateTimeField()
    ended_at = serializers.DateTimeField(allow_null=True)

    def to_representation(self, instance: TuningRun) -> dict[str, Any]:
        return document(instance)


class VersionTunings(ApiView):
    """`/versions/{id}/tunings`"""

    @listed("list_tunings", TuningDocument)
    def get(self, request: Request, version_id: str) -> Response:
        """Runs of variant tuning, newest first."""
        version = access_tuned_version(self.actor, version_id)
        rows = visible_tunings(self.actor).filter(version=version)
        return self.rows(rows, TuningDocument)

    @made("request_tuning", TuningBody, TuningDocument)
    def post(self, request: Request, version_id: str) -> Response:
        """Measure the version under other options."""
        version = access_tuned_version(self.actor, version_id, Right.MANAGE_MODELS)
        values = self.read(TuningBody)
        return self.make(
            lambda: self._requested(version, values),
            TuningDocument,
            lambda run: reverse("api_tuning", args=[run.pk]),
        )

    def _requested(self, version: Version, values: dict[str, Any]) -> TuningRun:
        samples = "inputs" if "inputs" in values else "texts"
        try:
            run = request_tuning(by=self.actor, version=version, **_arguments(values, version))
        except Invalid as error:
            raise Invalid(
                {samples if n == "samples" else n: said for n, said in error.errors.items()}
            ) from error
        return access_tuning(self.actor, run.pk)


class Tuning(ApiView):
    """`/tunings/{id}`"""

    @shown("get_tuning", TuningDocument)
    def get(self, request: Request, tuning_id: str) -> Response:
        """One run: candidates with figures, what is recommended."""
        return self.one(access_tuning(self.actor, tuning_id), TuningDocument)


class CancelTuning(ApiView):
    """`/tunings/{id}/cancel`"""

    @made("cancel_tuning", None, TuningDocument, status=200)
    def post(self, request: Request, tuning_id: str) -> Response:
        """End a run; what was measured stays."""

        def act(run: TuningRun) -> Any:
            return cancel_tuning(by=self.actor, run=run)

        return self.change(
            lambda: access_tuning(self.actor, tuning_id, Right.MANAGE_MODELS), act, TuningDocument
        )


class ApplyTuning(ApiView):
    """`/tunings/{id}/apply`"""

    @made("apply_tuning", ApplyBody, AppliedDocument)
    def post(self, request: Request, tuning_id: str) -> Response:
        """Register a version with a candidate's options and validate it."""
        run = access_tuning(self.actor, tuning_id, Right.MANAGE_MODELS)
        index = self.read(ApplyBody)["candidate"]
        return self.make(
            lambda: apply_tuning(by=self.actor, run=run, index=index),
            AppliedDocument,
            lambda version: reverse("api_version", args=[version.pk]),
        )


def _arguments(values: dict[str, Any], version: Version) -> dict[str, Any]:
    """The action's arguments. Raises `Invalid` for the field `samples`."""
    given = {name: value for name, value in values.items() if name not in ("inputs", "tolerance")}
    if "inputs" in values:
        raw = msgspec.json.encode({"inputs": values["inputs"]}).decode()
        given["tensors"] = tensors_of(raw, version.input_specs())
    if "tolerance" in values:
        given["tolerance"] = Tolerance(**values["tolerance"])
    return given


def document(run: TuningRun) -> dict[str, Any]:
    """A run as clients see it."""
    found = run.recommendation()
    return {
        "id": run.pk,
        "version": _version(run.version),
        "state": run.state,
        "reason": run.state_reason,
        "host": run.host,
        "device": run.device,
        "goal": run.goal,
        "tolerance": {
            "min_cosine": run.min_cosine,
            "max_error": run.max_error,
            "min_label_agreement": run.min_label_agreement,
        },
        "candidates": [_candidate(each, found) for each in run.in_order()],
        "recommended": found.index,
        "gain": round(found.gain, 4) if found.gain is not None else None,
        "skipped": run.skipped,
        "created_by": run.created_by,
        "created_at": _time(run.created_at),
        "ended_at": _time(run.ended_at),
    }


def _candidate(candidate: TuningCandidate, found: Recommendation) -> dict[str, Any]:
    row = candidate.row()
    state = "waiting" if row is None else "measured" if row.ok else "failed"
    facts: dict[str, Any] = {} if row is None else msgspec.to_builtins(row, str_keys=True)
    return {
        "index": candidate.index,
        "options": candidate.options,
        "changes": candidate.changed(),
        "state": state,
        "reason": candidate.why_not(),
        "is_recommended": candidate.index == found.index,
        "rows_per_s": facts.get("rows_per_s", {}),
        "p50_ms": facts.get("p50_ms"),
        "memory_bytes": facts.get("memory_bytes"),
        "load_s": facts.get("load_s"),
        "agreement": facts.get("agreement"),
        "version": _version(candidate.made) if candidate.made is not None else None,
    }


def _version(version: Version) -> dict[str, Any]:
    return {"id": version.pk, "model": version.model.name, "number": version.number}


def _time(moment: datetime | None) -> str | None:
    return None if moment is None else moment.astimezone(UTC).isoformat().replace("+00:00", "Z")
