"""`python -m console.processes.tasks`: the Celery worker with its clock in a thread of the same process.

Celery's own `-B` forks the clock; that child would survive when this process is killed.
"""

from __future__ import annotations

import os

from celery.beat import EmbeddedService

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "console.settings")


def main() -> None:
    from django.conf import settings  # after the settings module is named

    from console.celery import app

    settings.RUN_DIR.mkdir(mode=0o700, parents=True, exist_ok=True)
    clock = EmbeddedService(app, thread=True, schedule_filename=str(settings.RUN_DIR / "beat-schedule"))
    clock.start()
    app.worker_main(["worker", "--pool=threads", "--without-gossip", "--without-mingle", "--loglevel=INFO"])


if __name__ == "__main__":
    main()
