"""How far promises were kept: what the Promises page shows."""

from __future__ import annotations

import time
from contextlib import nullcontext
from typing import Any

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from console.api.fields import Document, Moment, Query
from console.api.metrics import span_asked
from console.api.readable import readable
from console.api.schema import shown
from console.api.views import ApiView
from serving.control.telemetry.history import Unanswerable
from serving.control.telemetry.promises import FIGURES, Kept, attainment
from tenants.access import require
from tenants.errors import Invalid
from tenants.roles import Right
from tenants.scoping import tenant_scope


class PromiseDocument(Document):
    tenant = serializers.CharField(help_text="The tenant's id.")
    model = serializers.CharField()
    profile = serializers.CharField(help_text="Id of the SLA profile.")
    sla_class = serializers.CharField()
    target_p95_ms = serializers.FloatField()
    requests = serializers.IntegerField(help_text="Whatever became of them.")
    figures = serializers.DictField(
        child=serializers.FloatField(allow_null=True),
        help_text="By names of the catalog of metrics; null where there is no evidence.",
    )
    budget_left_share = serializers.FloatField(
        allow_null=True, help_text="Of the span's error budget; below 0 when it is overdrawn."
    )
    burn = serializers.FloatField(
        allow_null=True, help_text="How many times faster than allowed it was spent in the span's last part."
    )
    budget_lasts_s = serializers.FloatField(
        allow_null=True,
        help_text="At that rate; 0 when it is used up, null when it is not spent faster than allowed.",
    )


class PromisesDocument(Document):
    objective = serializers.FloatField(
        help_text="Share of promised requests that must be within their target."
    )
    covered_s = serializers.FloatField(help_text="Seconds of the span that gateways reported on.")
    data = PromiseDocument(many=True)  # type: ignore[assignment]


class PromisesQuery(Query):
    since = Moment(required=False, help_text="An hour before `until` by default.")
    until = Moment(required=False, help_text="Now by default.")
    tenant = serializers.CharField(required=False, max_length=40)
    model = serializers.CharField(required=False, max_length=100)


class Promises(ApiView):
    """`/promises`"""

    @shown("list_promises", PromisesDocument, PromisesQuery)
    def get(self, request: Request) -> Response:
        """How far promises were kept over a span, the least error budget left first."""
        ids = readable(self.actor, Right.VIEW_USAGE)
        if ids == []:
            require(self.actor, Right.VIEW_USAGE)
        only = {label: self.asked[name] for name, label in _FILTERS.items() if name in self.asked}
        with nullcontext() if ids is None else tenant_scope(ids):
            try:
                found = attainment(*span_asked(self.asked), time.time(), only)
            except Unanswerable as error:
                raise Invalid({error.field: str(error)}) from None
        data = [_row(kept) for kept in found.rows]
        return Response({"objective": found.objective, "covered_s": found.covered_s, "data": data})


_FILTERS = {"tenant": "tenant_id", "model": "model"}


def _row(kept: Kept) -> dict[str, Any]:
    return {
        "tenant": kept.tenant_id,
        "model": kept.model,
        "profile": kept.profile.id,
        "sla_class": kept.profile.sla_class,
        "target_p95_ms": kept.profile.target_p95_ms,
        "requests": kept.requests,
        "figures": {name: kept.figures[name] for name in FIGURES},
        "budget_left_share": kept.budget.left_share,
        "burn": kept.budget.burn,
        "budget_lasts_s": kept.budget.lasts_s,
    }
