"""Single sign-on by OpenID Connect: who the provider says somebody is, and what their groups let them do.

Everything allauth leaves to trust in the connection is checked here: the signature of the ID token (whoever
fetched it), its algorithm, and that user info speaks of the same person.
"""

from __future__ import annotations

import time
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jwt
import structlog
from allauth.core.exceptions import ImmediateHttpResponse
from allauth.socialaccount.adapter import DefaultSocialAccountAdapter
from allauth.socialaccount.internal import jwtkit
from allauth.socialaccount.models import SocialAccount
from allauth.socialaccount.providers.oauth2.client import OAuth2Error
from allauth.socialaccount.providers.oauth2.views import OAuth2CallbackView, OAuth2LoginView
from allauth.socialaccount.providers.openid_connect.views import OpenIDConnectOAuth2Adapter
from django.conf import settings
from django.contrib import messages
from django.db import transaction
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect, QueryDict
from django.shortcuts import render
from django.urls import reverse
from django.utils.translation import gettext as _
from requests.exceptions import RequestException

from console.again import SSO_SHOWN_AT, is_fresh
from tenants.actions.groups import apply_groups
from tenants.actions.users import create_user
from tenants.actors import Actor
from tenants.audit import Target, record
from tenants.groups import granted_by, parse_groups
from tenants.logins import find_by_address
from tenants.lookalikes import is_lookalike
from tenants.models import User

PROVIDER_ID = "sso"
ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
_ASKED_AGAIN = "sso_asked_again"
log = structlog.get_logger(__name__)
_BY = Actor.system("single sign-on")


class SignedTokens(OpenIDConnectOAuth2Adapter):
    def complete_login(self, request: HttpRequest, app: Any, token: Any, **rest: Any) -> Any:
        """Raises `OAuth2Error` for an answer without an ID token, or user info of somebody else."""
        found = super().complete_login(request, app, token, **rest)
        said = found.account.extra_data
        if "id_token" not in said:
            raise OAuth2Error("no ID token")
        if "userinfo" in said and said["userinfo"].get("sub") != said["id_token"].get("sub"):
            raise OAuth2Error("user info of another person")
        return found

    def _decode_id_token(self, app: Any, id_token: str) -> dict[str, Any]:
        if _algorithm(id_token) not in ALGORITHMS:
            raise OAuth2Error("an ID token of this algorithm is not accepted")
        return jwtkit.verify_and_decode(
            credential=id_token,
            keys_url=self.openid_config["jwks_uri"],
            issuer=self.openid_config["issuer"],
            audience=app.client_id,
            lookup_kid=jwtkit.lookup_kid_jwk,
            verify_signature=True,
        )


@dataclass(frozen=True, slots=True)
class Identity:
    """What the provider says. `email` is empty unless it says that the address is theirs."""

    name: str
    email: str
    groups: list[str]

    @classmethod
    def of(cls, said: Mapping[str, Any]) -> Identity:
        signed, told = said.get("id_token", {}), said.get("userinfo", {})
        facts = {**signed, **told}
        groups = facts.get(settings.OIDC_GROUPS_CLAIM, [])
        return cls(
            name=str(facts.get("preferred_username") or facts.get("email") or facts["sub"]),
            email=_proven_address(told) or _proven_address(signed),
            groups=[str(group) for group in groups] if isinstance(groups, list) else [str(groups)],
        )


class GroupsAdapter(DefaultSocialAccountAdapter):
    """Finds or makes the account, and gives it the roles of its groups, before anybody is signed in."""

    def is_open_for_signup(self, request: HttpRequest, sociallogin: Any) -> bool:
        return False

    def pre_social_login(self, request: HttpRequest, sociallogin: Any) -> None:
        said = Identity.of(sociallogin.account.extra_data)
        granted = granted_by(said.groups, parse_groups(settings.OIDC_ROLES))
        if not granted:
            # Whoever lost their last group also loses what it gave.
            if sociallogin.is_existing:
                apply_groups(by=_BY, user=sociallogin.user, granted=granted)
            raise _refused(request, said, "none of their groups gives a role here")
        if not sociallogin.is_existing:
            sociallogin.connect(request, _account(request, said))
        apply_groups(by=_BY, user=sociallogin.user, granted=granted)
        sociallogin.user.refresh_from_db()
        _note_shown(request, sociallogin.user, _shown_at(sociallogin.account.extra_data))


def login(request: HttpRequest, provider_id: str) -> HttpResponse:
    """Of what allauth takes from the address only `next` counts: a link must not choose what is asked there."""
    kept = QueryDict(mutable=True)
    if "next" in request.GET:
        kept["next"] = request.GET["next"]
    if "again" in request.GET:  # who is signed in there already has to show it once more, and it says when
        kept["auth_params"] = "prompt=login&max_age=0"
        request.session[_ASKED_AGAIN] = True
    request.GET = kept  # type: ignore[assignment]
    return _adapted(OAuth2LoginView, request, provider_id)


def callback(request: HttpRequest, provider_id: str) -> HttpResponse:
    return _adapted(OAuth2CallbackView, request, provider_id)


def _adapted(view: Any, request: HttpRequest, provider_id: str) -> HttpResponse:
    if provider_id != PROVIDER_ID or not settings.OIDC_ISSUER:
        raise Http404
    try:
        return view.adapter_view(SignedTokens(request, provider_id))(request)
    except (RequestException, KeyError) as error:  # away, or what it publishes about itself is no such thing
        log.warning("sso.provider_away", error=str(error))
        said = _("%(name)s does not answer as it should. Try again in a moment.") % {
            "name": settings.OIDC_NAME
        }
        messages.error(request, said)
        return HttpResponseRedirect(reverse("account_login"))


def _account(request: HttpRequest, said: Identity) -> User:
    """The account of the address, which is the provider's to vouch for, or a new one without a password."""
    if not said.email:
        raise _refused(request, said, "the provider does not say that the e-mail address is theirs")
    known = find_by_address(said.email)
    if known is not None and SocialAccount.objects.filter(user=known).exists():
        # Addresses are given to the next person; accounts are not.
        reason = "the account of their address is another identity's at the provider"
        raise _refused(request, said, reason, is_anothers=True)
    return known or create_user(by=_BY, username=_free_name(said), email=said.email)


def _proven_address(facts: Mapping[str, Any]) -> str:
    """Address and proof from the same place: the proof of one says nothing of another."""
    return str(facts.get("email", "")) if facts.get("email_verified") in (True, "true") else ""


def _free_name(said: Identity) -> str:
    """`ada`, or `ada-2` when another account has that name. An address only if it is theirs."""
    kept = "@.+-_" if said.name.lower() == said.email.lower() else ".+-_"
    name = unicodedata.normalize("NFKC", said.name)
    base = "".join(c if c.isalnum() or c in kept else "-" for c in name)[:140]
    if is_lookalike(base):
        base = "person"
    names = (base if number == 1 else f"{base}-{number}" for number in range(1, 1000))
    return next(name for name in names if not User.objects.filter(username__iexact=name).exists())


@transaction.atomic
def _refused(
    request: HttpRequest, said: Identity, reason: str, is_anothers: bool = False
) -> ImmediateHttpResponse:
    target = Target("user", "", said.email or "unknown account")
    by = Actor.anonymous(request)
    record(by=by, action="user.sign_in_failed", target=target, outcome="failure", reason=reason)
    context = {"said": said, "is_anothers": is_anothers}
    return ImmediateHttpResponse(render(request, "account/sso_refused.html", context, status=403))


def _note_shown(request: HttpRequest, user: User, at: float) -> None:
    """Ends where a provider was to ask once more and does not say that it did: asking it for ever would not help."""
    request.session[SSO_SHOWN_AT] = request.sso_shown_at = at  # type: ignore[attr-defined]
    if not request.session.pop(_ASKED_AGAIN, False) or is_fresh(at):
        return
    with transaction.atomic():
        by, reason = Actor.of_user(user, request), "the provider does not say that they signed in again"
        record(by=by, action="user.sign_in_failed", target=Target.of(user), outcome="failure", reason=reason)
    said = _("%(name)s does not say that you signed in there again just now.") % {"name": settings.OIDC_NAME}
    messages.error(request, said)
    raise ImmediateHttpResponse(HttpResponseRedirect(reverse("overview")))


def keep_shown(request: HttpRequest) -> None:
    """Signing in again begins a new session, which has to know it as well."""
    if hasattr(request, "sso_shown_at"):
        request.session[SSO_SHOWN_AT] = request.sso_shown_at


def _shown_at(said: Mapping[str, Any]) -> float:
    """`auth_time` of OpenID Connect Core 1.0, section 2: the provider must tell it when `max_age` was asked for."""
    told = said.get("id_token", {}).get("auth_time")
    return min(float(told), time.time()) if isinstance(told, int | float) else 0.0


def _algorithm(id_token: str) -> str:
    try:
        return str(jwt.get_unverified_header(id_token).get("alg"))
    except jwt.PyJWTError as error:
        raise OAuth2Error("the ID token cannot be read") from error
