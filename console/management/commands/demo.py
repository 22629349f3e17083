"""`manage.py demo`: the whole platform with a real model and two tenants, a measured run, and then it serves."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from console.demo import load, report
from console.embedded.errors import ServiceError
from console.processes import beside
from console.processes.options import UpOptions, add_arguments, from_arguments
from console.processes.platform import Platform, failures_for_people


class Command(BaseCommand):
    help = (
        "Starts Tidegate with all-MiniLM-L6-v2 and two tenants, sends real sentences, prints what happened."
    )
    requires_system_checks = ()  # the children check; this process never opens the database

    def add_arguments(self, parser: CommandParser) -> None:
        add_arguments(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        chosen = from_arguments(options)
        with failures_for_people(), Platform(chosen) as platform:
            platform.wait_ready()
            facts = _set_up(platform, chosen.state_dir / "demo-setup.json")
            self._measure(chosen, facts)
            with _for_scripts(chosen, facts):
                self._invite(chosen, facts)
                platform.run_until_signal()

    def _measure(self, chosen: UpOptions, facts: dict[str, Any]) -> None:
        self.stdout.write("  sending sentences from both tenants at once")
        outcomes = asyncio.run(load.run(_gateway(chosen), facts["api_keys"]))
        failed = [answer for outcome in outcomes for answer in outcome.answers if answer.status != 200]
        self.stdout.write(f"\n{report.table(outcomes, facts['targets_ms'])}\n")
        if failed:
            self.stdout.write(self.style.WARNING(f"first failure: {failed[0].status} {failed[0].detail}\n"))
        if outcomes[0].good:
            self.stdout.write(f"{report.receipt(report.typical(outcomes[0].good))}\n")

    def _invite(self, chosen: UpOptions, facts: dict[str, Any]) -> None:
        gateway, key = _gateway(chosen), facts["api_keys"]["acme-chat"]
        self.stdout.write(
            self.style.SUCCESS(f"\nconsole  http://{chosen.console_host}:{chosen.console_port}")
        )
        self.stdout.write(f"sign in  {facts['username']} / {facts['password']}")
        self.stdout.write(f"gateway  {gateway}")
        self.stdout.write(
            f"try      curl -i {gateway}/v1/embeddings -H 'authorization: Bearer {key}' "
            f'-H \'content-type: application/json\' -d \'{{"model": "{load.MODEL}", "input": "hello"}}\''
        )
        self.stdout.write("Ctrl-C stops everything.")


def _gateway(chosen: UpOptions) -> str:
    return f"http://{chosen.gateway_host}:{chosen.gateway_port}"


def _set_up(platform: Platform, handover: Path) -> dict[str, Any]:
    """Run the database part as a child; its secrets come back through a private file that is then removed."""
    try:
        platform.manage("demo_setup", str(handover))
        facts: dict[str, Any] = json.loads(handover.read_text())
    finally:
        handover.unlink(missing_ok=True)
    return facts


@contextmanager
def _for_scripts(chosen: UpOptions, facts: dict[str, Any]) -> Iterator[None]:
    """`demo.json` for as long as the demo serves, readable by its owner only."""
    path = chosen.state_dir / beside.FOR_SCRIPTS
    document = {
        "console": f"http://{chosen.console_host}:{chosen.console_port}",
        "gateway": _gateway(chosen),
        "model": load.MODEL,
        "username": facts["username"],
        "password": facts["password"],
        "tenants": {
            slug: {"api_key": key, "target_p95_ms": facts["targets_ms"][slug]}
            for slug, key in facts["api_keys"].items()
        },
    }
    path.unlink(missing_ok=True)
    try:
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as stream:
            json.dump(document, stream, indent=2)
    except OSError as error:
        raise ServiceError(f"cannot write {path}: {error}") from error
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
