"""`manage.py up`: PostgreSQL, Valkey and every process of Tidegate on this machine, until Ctrl-C."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from console.processes.options import PROJECT_DIR, add_arguments, from_arguments
from console.processes.platform import Platform, failures_for_people


class Command(BaseCommand):
    help = "Starts embedded PostgreSQL and Valkey and all six kinds of process; Ctrl-C stops them in order."
    requires_system_checks = ()  # the children check; this process never opens the database

    def add_arguments(self, parser: CommandParser) -> None:
        add_arguments(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        chosen = from_arguments(options)
        with failures_for_people(), Platform(chosen) as platform:
            platform.wait_ready()
            self.stdout.write(self.style.SUCCESS("Tidegate runs. Ctrl-C stops it."))
            self.stdout.write(f"No account yet? In another terminal: {_beside(chosen.state_dir)}")
            platform.run_until_signal()


def _beside(state_dir: Path) -> str:
    """The line that makes the first account of this installation, as it is typed in the checkout."""
    elsewhere = (
        "" if state_dir == PROJECT_DIR / "var" else f"TIDEGATE_STATE_DIR={shlex.quote(str(state_dir))} "
    )
    return f"{elsewhere}.venv/bin/python manage.py createoperator NAME"
