"""System checks: settings that would be dangerous in use are refused before anything starts."""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.core.checks import CheckMessage, Error, Tags, Warning, register
from django.core.exceptions import ImproperlyConfigured
from django.db import connection

from tenants.groups import parse_groups

MIN_SECRET_CHARS = 32
MIN_PEPPER_BYTES = 16


@register(Tags.security)
def check_secret_key(app_configs: Sequence[Any] | None, **options: Any) -> list[CheckMessage]:
    try:
        secret = settings.SECRET_KEY
    except ImproperlyConfigured:
        secret = ""
    if len(secret) >= MIN_SECRET_CHARS:
        return []
    return [
        Error(
            f"TIDEGATE_SECRET_KEY holds fewer than {MIN_SECRET_CHARS} characters.",
            hint="Sessions are signed with it. `manage.py up` creates one, and commands typed while it runs find it; elsewhere set 50 random characters.",
            id="tidegate.E001",
        )
    ]


@register(Tags.security)
def check_key_pepper(app_configs: Sequence[Any] | None, **options: Any) -> list[CheckMessage]:
    if len(settings.KEY_PEPPER) >= MIN_PEPPER_BYTES:
        return []
    return [
        Error(
            f"TIDEGATE_KEY_PEPPER holds fewer than {MIN_PEPPER_BYTES} bytes.",
            hint="API keys are digested with it, the same in the console and in every gateway; never change it.",
            id="tidegate.E002",
        )
    ]


@register(Tags.security)
def check_debug(app_configs: Sequence[Any] | None, **options: Any) -> list[CheckMessage]:
    if not (settings.DEBUG and settings.USES_TLS):
        return []
    return [
        Error(
            "TIDEGATE_DEBUG is on behind TLS: error pages would show source and settings to visitors.",
            hint="Unset TIDEGATE_DEBUG.",
            id="tidegate.E003",
        )
    ]


@register(Tags.database, deploy=True)
def check_services(app_configs: Sequence[Any] | None, **options: Any) -> list[CheckMessage]:
    missing = [name for name in ("DATABASE_URL", "VALKEY_URL") if not getattr(settings, name)]
    return [
        Error(
            f"{name} is not set.", hint="`manage.py up` sets it to the embedded service.", id="tidegate.E004"
        )
        for name in missing
    ]


@register(Tags.database)
def check_row_security(
    app_configs: Sequence[Any] | None, databases: Sequence[str] | None = None, **options: Any
) -> list[CheckMessage]:
    """Asks the database, so it runs where one was named: `migrate`, `check --database default`."""
    if not databases:
        return []
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT current_user FROM pg_roles WHERE rolname = current_user AND (rolsuper OR rolbypassrls)"
        )
        unbound = cursor.fetchone()
    if unbound is None:
        return []
    return [
        Warning(
            f"The application works as {unbound[0]}, whom row-level security does not bind.",
            hint="After `migrate` it works as TIDEGATE_DATABASE_ROLE; where that cannot be made, log in as "
            "a role without SUPERUSER and BYPASSRLS.",
            id="tidegate.W002",
        )
    ]


@register(Tags.security)
def check_connections(app_configs: Sequence[Any] | None, **options: Any) -> list[CheckMessage]:
    database: dict[str, Any] = dict(settings.DATABASES["default"])
    if database.get("CONN_MAX_AGE", 0) == 0 and database.get("OPTIONS", {}).get("pool"):
        return []
    return [
        Error(
            "Database connections are persistent or not pooled.",
            hint="Under ASGI a persistent connection belongs to a thread that may never come back: "
            "CONN_MAX_AGE must be 0, with OPTIONS['pool'].",
            id="tidegate.E005",
        )
    ]


@register(Tags.security, deploy=True)
def check_exposure(app_configs: Sequence[Any] | None, **options: Any) -> list[CheckMessage]:
    if settings.USES_TLS or _is_loopback(settings.CONSOLE_HOST):
        return []
    return [
        Warning(
            f"The console listens on {settings.CONSOLE_HOST} without TLS: passwords travel in the clear.",
            hint="Put a TLS proxy in front and set TIDEGATE_TLS=1, or listen on 127.0.0.1.",
            id="tidegate.W001",
        )
    ]


@register(Tags.security)
def check_hosts(app_configs: Sequence[Any] | None, **options: Any) -> list[CheckMessage]:
    if "*" not in settings.ALLOWED_HOSTS:
        return []
    return [
        Error(
            "TIDEGATE_ALLOWED_HOSTS accepts every host name: links in e-mails could be forged.",
            hint="Name the hosts people use.",
            id="tidegate.E006",
        )
    ]


@register()
def check_objective(app_configs: Sequence[Any] | None, **options: Any) -> list[CheckMessage]:
    if 0.5 <= settings.SLA_OBJECTIVE < 1:
        return []
    return [
        Error(
            f"TIDEGATE_SLA_OBJECTIVE is {settings.SLA_OBJECTIVE}: it is a share from 0.5 to less than 1.",
            hint="0.99 lets one promised request in a hundred be late; with 1 there is no error budget to speak of.",
            id="tidegate.E009",
        )
    ]


@register(Tags.security)
def check_single_sign_on(app_configs: Sequence[Any] | None, **options: Any) -> list[CheckMessage]:
    if not settings.OIDC_ISSUER:
        return []
    issuer, found = urlsplit(settings.OIDC_ISSUER), list[CheckMessage]()
    if issuer.scheme != "https" and not _is_loopback(issuer.hostname or ""):
        hint = "Tokens and the client's secret would travel in the clear: use https."
        found.append(Error("TIDEGATE_OIDC_ISSUER is not an https address.", hint=hint, id="tidegate.E007"))
    try:
        is_empty = not parse_groups(settings.OIDC_ROLES)
    except ValueError as error:
        found.append(Error(f"TIDEGATE_OIDC_ROLES: {error}.", id="tidegate.E008"))
    else:
        if is_empty:
            hint = "Without a mapping no group gives a role, and nobody gets in by single sign-on."
            found.append(Error("TIDEGATE_OIDC_ROLES is empty.", hint=hint, id="tidegate.E008"))
    return found


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
