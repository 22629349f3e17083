"""`python -m console.processes.tasks`: the Celery worker with its clock in a thread of the same process.

Celery's own `-B` forks the clock; that child would survive when this process is killed.
"""

from __future__ import annotations

import os
from typing import Any

from celery.beat import EmbeddedService
from celery.signals import worker_shutting_down

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "console.settings")


def main() -> None:
    from django.conf import settings  # after the settings module is named

    from console.celery import app

    app.conf.worker_hijack_root_logger = False  # our JSON lines, not Celery's
    settings.RUN_DIR.mkdir(mode=0o700, parents=True, exist_ok=True)
    clock = EmbeddedService(app, thread=True, schedule_filename=str(settings.RUN_DIR / "beat-schedule"))

    def stop_clock(**_: Any) -> None:
        """Nothing becomes due while the worker finishes what it has."""
        clock.service.stop(wait=False)

    worker_shutting_down.connect(stop_clock, weak=False)
    clock.start()
    app.worker_main(["worker", "--pool=threads", "--without-gossip", "--without-mingle", "--loglevel=INFO"])


if __name__ == "__main__":
    main()
