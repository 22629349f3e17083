"""`manage.py usage verify`: do the ledger's minutes, hours, days, weeks and the platform's sums say the same?"""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.utils import timezone

from tenants.agreement import Disagreement, disagreements
from tenants.usage_columns import COUNTS


class Command(BaseCommand):
    help = "verify: compare the ledger's days with its hours, minutes, weeks and the platform's sums; exits with 1 when any differ."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("what", choices=("verify",))

    def handle(self, *args: Any, **options: Any) -> None:
        found = list(disagreements(timezone.now()))
        for each in found:
            self.stdout.write(_line(each))
        if found:
            raise CommandError(f"{len(found)} sums differ")
        self.stdout.write("Minutes, hours, days, weeks and the platform's days say the same.")


def _line(each: Disagreement) -> str:
    differs = [
        f"{name} {said} ≠ {summed}"
        for name, said, summed in zip(COUNTS, each.said, each.summed, strict=True)
        if said != summed
    ]
    return f"{each.tenant_id or 'platform'} {each.day} {each.period}s: {', '.join(differs)}"
