"""Before what a stolen session must not be able to do, people show once more that it is them.

Asked of whoever gives or takes rights on the platform, or ways to sign in: a browser left open, or a cookie
that was copied, is then worth little.
"""

from __future__ import annotations

import time
from typing import Any, cast

from allauth.account import app_settings
from allauth.account.adapter import get_adapter
from allauth.account.internal.flows.login import get_authentication_records
from allauth.socialaccount.models import SocialAccount
from django.conf import settings
from django.contrib.auth import REDIRECT_FIELD_NAME
from django.http import HttpRequest
from django.urls import reverse
from django.utils.http import urlencode

from tenants.errors import DomainError
from tenants.models import User

SSO_SHOWN_AT = "sso_shown_at"
"""Session entry: when the person last showed the provider who they are (Unix seconds), 0 where it does not say."""


class NotShownLately(DomainError):
    """The session is theirs; that the person is, was shown too long ago."""

    code = "sign_in_again"


def ask_who_it_is(request: HttpRequest) -> None:
    """Raises `NotShownLately` unless the person signed in, or showed again that it is them, minutes ago."""
    records = get_authentication_records(request, cast(User, request.user))
    newest = max((_shown_at(request, record) for record in records), default=0.0)
    if not is_fresh(newest):
        raise NotShownLately("This is asked only of somebody who has just signed in: confirm that it is you.")


def is_fresh(at: float) -> bool:
    return time.time() - at < app_settings.REAUTHENTICATION_TIMEOUT


def _shown_at(request: HttpRequest, record: dict[str, Any]) -> float:
    """Of a sign-in at the provider it counts when they showed it there: who came by its open session showed nothing."""
    at = float(record["at"])
    is_providers = record.get("method") == "socialaccount"
    return min(at, float(request.session.get(SSO_SHOWN_AT, 0.0))) if is_providers else at


def address_to_show_it(request: HttpRequest, back: str) -> str | None:
    """Where the person can: by password, second factor, or at the provider. None where nothing of these is theirs."""
    user = cast(User, request.user)
    ways = get_adapter().get_reauthentication_methods(user)
    if ways:
        return f"{ways[0]['url']}?{urlencode({REDIRECT_FIELD_NAME: back})}"
    if settings.OIDC_ISSUER and SocialAccount.objects.filter(user=user).exists():
        address = reverse("openid_connect_login", args=["sso"])
        return f"{address}?{urlencode({REDIRECT_FIELD_NAME: back, 'again': '1'})}"
    return None
