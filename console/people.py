"""Everybody who can sign in, as lists of people show them: pages' and the API's."""

from __future__ import annotations

from allauth.mfa.models import Authenticator
from django.db.models import Exists, OuterRef, Q, QuerySet

from tenants.models import User


def with_factor(people: QuerySet[User]) -> QuerySet[User]:
    """Each with `has_factor`: whether signing in asks for a second one."""
    factor = Authenticator.objects.filter(user=OuterRef("pk"), type=Authenticator.Type.TOTP)
    return people.annotate(has_factor=Exists(factor))


def named_like(words: str) -> Q:
    return Q(username__icontains=words) | Q(email__icontains=words)
