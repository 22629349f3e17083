"""The controller's loop: step functions, each idempotent, each on its own; the leader runs them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from threading import Event

import structlog
from django.db import close_old_connections, connections

from serving.control import publish, reports
from serving.control.catalog import validation
from serving.control.fleet import hosts, placing
from serving.control.leadership import Leadership
from serving.control.pricing import ready
from serving.control.quotas.watching import QuotaWatch
from serving.control.tuning import actions as tuning
from tenants import rollups

log = structlog.get_logger(__name__)

SLOW_STEP_S = 1.0
POLL_S = 0.25
STANDBY_S = 1.0


@dataclass(slots=True)
class Step:
    """A function of now, run every `every_s` seconds (0: every turn of the loop)."""

    name: str
    run: Callable[[datetime], object]
    every_s: float = 1.0
    due_at: float = 0.0
    failures: int = 0
    """In a row."""
    took_s: float = 0.0


def control_steps() -> list[Step]:
    """What `serving.control` wants done, in this order: first learn what is, then decide what should be."""
    return [
        Step("reports.ingest", lambda now: reports.ingest(), every_s=0.0),
        Step("fleet.hosts", hosts.step),
        Step("fleet.placement", placing.step),
        Step("catalog.validation", validation.step),
        Step("tuning", tuning.step),
        Step("usage.recut", rollups.recut_step, every_s=2.0),
        Step("usage.ready", ready.step, every_s=10.0),
        Step("quotas", QuotaWatch().step, every_s=2.0),
        Step("publish.everything", lambda now: publish.everything(), every_s=30.0),
    ]


@dataclass(slots=True)
class Controller:
    steps: Sequence[Step] = field(default_factory=control_steps)
    leadership: Leadership = field(default_factory=Leadership)
    stop: Event = field(default_factory=Event)

    def run_forever(self) -> None:
        """Until `stop` is set; stands by while another controller leads."""
        try:
            while not self.stop.is_set():
                self._turn()
        finally:
            self.leadership.release()
            connections.close_all()

    def run_single_cycle(self, now: datetime | None = None) -> list[str]:
        """Every step once, due or not; returns the names of those that failed. For tests and commands."""
        moment = now or datetime.now(UTC)
        return [step.name for step in self.steps if not self._run(step, moment)]

    def _turn(self) -> None:
        if not self.leadership.acquire():
            self.leadership.wait(STANDBY_S)
            return
        for step in self.steps:
            if step.due_at <= time.monotonic() and not self.stop.is_set():
                step.due_at = max(step.due_at + step.every_s, time.monotonic())
                self._run(step, datetime.now(UTC))
        if not self.stop.is_set():
            self.leadership.wait(min(POLL_S, self._until_due_s()))

    def _until_due_s(self) -> float:
        timed = [step.due_at for step in self.steps if step.every_s > 0]
        return max(0.0, min(timed, default=0.0) - time.monotonic()) if timed else POLL_S

    def _run(self, step: Step, now: datetime) -> bool:
        started = time.monotonic()
        try:
            step.run(now)
            step.failures = 0
        except Exception:  # a loop's top: the other steps go on
            step.failures += 1
            log.exception("controller.step_failed", step=step.name, failures=step.failures)
            # Whatever broke may have been the connection; the next step starts with another.
            connections.close_all()
        step.took_s = time.monotonic() - started
        if step.took_s > SLOW_STEP_S:
            log.warning("controller.step_slow", step=step.name, took_s=round(step.took_s, 3))
        close_old_connections()
        return step.failures == 0
