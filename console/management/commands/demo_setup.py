"""`manage.py demo_setup FILE`: the database part of `manage.py demo`, run by it with the platform's environment."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from console.demo.setup import DemoFailed, prepare


class Command(BaseCommand):
    help = "Creates the demo's tenants, keys, model and deployment, and writes their secrets to FILE (0600)."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("file", type=Path)

    def handle(self, *args: Any, **options: Any) -> None:
        logging.getLogger().setLevel(logging.WARNING)  # the terminal is a person's here
        try:
            ready = prepare(lambda text: self.stdout.write(f"  {text}"))
        except DemoFailed as error:
            raise CommandError(str(error)) from error
        facts = {
            "username": ready.username,
            "password": ready.password,
            "api_keys": ready.api_keys,
            "targets_ms": ready.targets_ms,
        }
        with open(os.open(options["file"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as stream:
            json.dump(facts, stream)
