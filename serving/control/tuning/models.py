"""Tuning runs: what was asked, which options are measured, and what came out of each."""

from __future__ import annotations

from typing import cast

import msgspec
from django.db import models
from django.db.models import F, Q
from django.utils import timezone

from serving.contract import SampleTensor, TuningRow
from serving.control.tuning import states
from serving.control.tuning.candidates import Options, changes
from serving.control.tuning.recommend import Goal, Recommendation, Tolerance, recommend, why_not
from tenants.ids import PrefixedIdField

GOALS = [("throughput", "throughput"), ("latency", "latency")]


class TuningRun(models.Model):
    """One sweep over a version's options on one host."""

    id = PrefixedIdField("tun_")
    version = models.ForeignKey("control.Version", models.CASCADE, related_name="tunings")
    state = models.CharField(max_length=16, default="requested", choices=[(s, s) for s in states.STATES])
    state_reason = models.TextField(blank=True, default="")
    host = models.CharField(max_length=200)
    device = models.CharField(max_length=16, default="cpu")
    goal = models.CharField(max_length=16, default="throughput", choices=GOALS)
    min_cosine = models.FloatField(null=True, blank=True)
    max_error = models.FloatField(null=True, blank=True)
    min_label_agreement = models.FloatField(null=True, blank=True)
    texts = models.JSONField(default=list, blank=True)
    tensors = models.JSONField(default=list, blank=True)
    skipped = models.JSONField(default=list, blank=True)
    """What was not tried: `[{"options", "reason"}]`."""
    progress_at = models.DateTimeField(default=timezone.now)
    """When the agent last said something; it is waited for no longer than a bounded time."""
    created_by = models.CharField(max_length=200)
    created_at = models.DateTimeField(auto_now_add=True)
    ended_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        app_label = "control"
        ordering = ["-created_at", "-id"]
        constraints = [
            models.UniqueConstraint(
                fields=["version"],
                condition=Q(state__in=states.ACTIVE),
                name="control_tuning_one_active_per_version",
            ),
            models.CheckConstraint(
                condition=Q(state__in=states.STATES), name="control_tuning_state_is_known"
            ),
            models.CheckConstraint(
                condition=Q(goal__in=[goal for goal, _ in GOALS]), name="control_tuning_goal_is_known"
            ),
        ]
        indexes = [
            models.Index(F("progress_at"), name="control_tuning_active", condition=Q(state__in=states.ACTIVE))
        ]

    def __str__(self) -> str:
        return f"{self.version} on {self.host}"

    @property
    def is_active(self) -> bool:
        return self.state in states.ACTIVE

    def tolerance(self) -> Tolerance:
        return Tolerance(self.min_cosine, self.max_error, self.min_label_agreement)

    def sample_tensors(self) -> tuple[SampleTensor, ...]:
        return msgspec.convert(self.tensors, tuple[SampleTensor, ...])

    def recommendation(self) -> Recommendation:
        """Of the candidates measured so far."""
        rows = [row for row in (each.row() for each in self.in_order()) if row is not None]
        options = [each.options for each in self.in_order()]
        return recommend(rows, options, self.tolerance(), cast(Goal, self.goal))

    def in_order(self) -> list[TuningCandidate]:
        """Sorted here, so that prefetched rows are used."""
        return sorted(self.candidates.all(), key=lambda each: each.index)


class TuningCandidate(models.Model):
    """One set of options of a run. Index 0 is the reference."""

    run = models.ForeignKey(TuningRun, models.CASCADE, related_name="candidates")
    index = models.PositiveIntegerField()
    options = models.JSONField()
    measured = models.JSONField(null=True, blank=True)
    """A `TuningRow`; None until its turn came."""
    made = models.ForeignKey("control.Version", models.SET_NULL, related_name="+", null=True, blank=True)
    """The version that was registered with these options."""

    class Meta:
        app_label = "control"
        ordering = ["run", "index"]
        constraints = [
            models.UniqueConstraint(fields=["run", "index"], name="control_tuning_candidate_is_unique"),
        ]

    def __str__(self) -> str:
        return f"{self.run_id} #{self.index}"

    def row(self) -> TuningRow | None:
        return msgspec.convert(self.measured, TuningRow | None, strict=False)

    def changed(self) -> Options:
        """What sets it apart from the reference of its run."""
        return changes(self.run.in_order()[0].options, self.options)

    def why_not(self) -> str:
        """Why it does not qualify; empty when it does, or was not measured yet."""
        row = self.row()
        return why_not(row, self.run.tolerance()) if row is not None else ""
