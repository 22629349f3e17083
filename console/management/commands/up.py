"""`manage.py up`: PostgreSQL, Valkey and every process of Tidegate on this machine, until Ctrl-C."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from console.processes.options import add_arguments, from_arguments
from console.processes.platform import Platform, failures_for_people


class Command(BaseCommand):
    help = "Starts embedded PostgreSQL and Valkey and all six kinds of process; Ctrl-C stops them in order."
    requires_system_checks = ()  # the children check; this process never opens the database

    def add_arguments(self, parser: CommandParser) -> None:
        add_arguments(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        with failures_for_people(), Platform(from_arguments(options)) as platform:
            platform.wait_ready()
            self.stdout.write(self.style.SUCCESS("Tidegate runs. Ctrl-C stops it."))
            self.stdout.write("No account yet? Beside it: .venv/bin/python manage.py createoperator NAME")
            platform.run_until_signal()
