"""`manage.py createoperator`: the first account, which makes all others."""

from __future__ import annotations

import os
import secrets
import sys
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import transaction

from tenants.actions.users import change_platform_role, create_user, set_password
from tenants.actors import Actor
from tenants.errors import DomainError
from tenants.models import User
from tenants.roles import PlatformRole

PASSWORD_VARIABLE = "TIDEGATE_OPERATOR_PASSWORD"  # noqa: S105 - the name of a variable


class Command(BaseCommand):
    help = (
        "Create an operator, or make an existing account one. The password comes from "
        f"{PASSWORD_VARIABLE}, from standard input (--password-stdin), or is generated and printed once."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("username")
        parser.add_argument("--email", default="")
        parser.add_argument(
            "--password-stdin", action="store_true", help="read the password's line from stdin"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        given = _given_password(from_stdin=options["password_stdin"])
        try:
            generated = _ensure_operator(options["username"], options["email"], given)
        except DomainError as error:
            raise CommandError(error.message) from error
        self.stdout.write(f"{options['username']} is an operator.")
        if generated:
            self.stdout.write(f"Password (shown once): {generated}")


def _given_password(*, from_stdin: bool) -> str | None:
    if from_stdin:
        return sys.stdin.readline().rstrip("\n")
    return os.environ.get(PASSWORD_VARIABLE) or None


@transaction.atomic
def _ensure_operator(username: str, email: str, password: str | None) -> str | None:
    """Returns the password when it had to be generated. An existing account keeps its own unless one is given."""
    by = Actor.system("createoperator")
    user = User.objects.filter(username__iexact=username).first()
    if user is None:
        generated = None if password else secrets.token_urlsafe(15)
        role = PlatformRole.OPERATOR
        create_user(by=by, username=username, email=email, password=password or generated, platform_role=role)
        return generated
    change_platform_role(by=by, user=user, platform_role=PlatformRole.OPERATOR)
    if password is not None:
        set_password(by=by, user=user, password=password)
    return None
