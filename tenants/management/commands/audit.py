"""`manage.py audit verify`: proves that no event of the audit trail was changed, removed, added or moved."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.utils import timezone

from tenants.models import Tenant
from tenants.trail import checkpoints, signing
from tenants.trail.canonical import PLATFORM_CHAIN
from tenants.trail.verify import Verdict, verify, verify_all


class Command(BaseCommand):
    help = (
        "verify: follow the chains of the audit trail and tell the first broken row of each; exits with 1 "
        "when one is broken. checkpoint: sign every chain as it is now. key: print the public key."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("what", choices=("verify", "checkpoint", "key"))
        parser.add_argument(
            "--tenant", default="", help=f"only this tenant's chain (slug), or “{PLATFORM_CHAIN}”"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        if options["what"] == "verify":
            self._verify(options["tenant"])
        elif not signing.can_sign():
            raise CommandError("TIDEGATE_AUDIT_KEY is not set.")
        elif options["what"] == "key":
            self.stdout.write(signing.public_key())
        else:
            self.stdout.write(f"{checkpoints.sign_grown_chains(timezone.now())} chains signed")

    def _verify(self, tenant: str) -> None:
        verdicts = [verify(_chain(tenant))] if tenant else verify_all()
        broken = [verdict.broken for verdict in map(self._told, verdicts) if verdict.broken]
        if broken:
            raise CommandError(f"{len(broken)} broken: {broken[0]}")

    def _told(self, verdict: Verdict) -> Verdict:
        state = f"BROKEN {verdict.broken}" if verdict.broken else "whole"
        self.stdout.write(
            f"{verdict.chain}: {verdict.rows} rows, {verdict.checkpoints} checkpoints, {state}"
            f" ({verdict.hash[:16]})"
        )
        return verdict


def _chain(tenant: str) -> str:
    if tenant == PLATFORM_CHAIN:
        return PLATFORM_CHAIN
    found = Tenant.objects.filter(slug=tenant).first()
    if found is None:
        raise CommandError(f"There is no tenant “{tenant}”.")
    return found.pk
