"""`manage.py controller`: the control plane's loop. Several may run; one leads, the others stand by."""

from __future__ import annotations

import signal
from datetime import datetime
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from console.live.alerts import messages_of
from console.live.publish import LivePublisher
from serving.control.alerts.sources import Sources
from serving.control.alerts.step import AlertWatch
from serving.control.loop import Controller, Step, control_steps
from serving.control.telemetry.long_windows import AnyWindows
from serving.control.telemetry.replicas import ReplicaStore
from serving.control.telemetry.rollup import RollUp
from serving.control.telemetry.store import SliceStore
from serving.parenting import die_with_parent
from serving.settling import settle_memory
from serving.telemetry.collector import COLLECT_EACH


class Command(BaseCommand):
    help = "Takes in reports, places replicas, publishes configuration and the live picture."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--once", action="store_true", help="run every step once and exit")

    def handle(self, *args: Any, once: bool = False, **options: Any) -> None:
        die_with_parent()
        if once:
            failed = Controller().run_single_cycle()
            raise SystemExit(1 if failed else 0)
        publisher = LivePublisher.from_settings()
        publisher.start()
        settle_memory(COLLECT_EACH)
        controller = Controller(
            steps=[*control_steps(), _live(publisher), _stored(publisher), _alerts(publisher)]
        )
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: controller.stop.set())
        try:
            controller.run_forever()
        finally:
            publisher.close()


def _live(publisher: LivePublisher) -> Step:
    def step(now: datetime) -> None:
        publisher.step(now.timestamp())

    return Step("live.publish", step)


def _stored(publisher: LivePublisher) -> Step:
    """After the live picture: what closed in it is kept, and summed once nothing of it waits any more."""
    store, sums, replicas = SliceStore(), RollUp(), ReplicaStore()

    def step(now: datetime) -> None:
        store.take(publisher.take_slices())
        store.step()
        replicas.step(publisher.take_replica_slices(), now)
        sums.step(now)

    return Step("telemetry.slices", step)


def _alerts(publisher: LivePublisher) -> Step:
    """Last, so that rules read what this turn brought in."""
    sources = Sources(AnyWindows(publisher.windows))
    watch = AlertWatch(sources, tell=lambda moved: publisher.tell(messages_of(moved)))
    return Step("alerts", watch.step)
