"""SLA profiles: what a request is promised. Milliseconds throughout."""

from __future__ import annotations

from typing import Any

from django.urls import reverse
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from console.api.fields import Body, Document, Moment, Number, Text, Whole
from console.api.schema import Page, Rehearsed, changed, gone, listed, made, shown
from console.api.views import ApiView
from serving.control.profiles.access import access_profile, visible_profiles
from serving.control.profiles.actions import create_profile, delete_profile, update_profile
from serving.control.profiles.models import LatePolicyChoice, SlaClassChoice, SlaProfile
from tenants.access import require
from tenants.roles import Right


class ProfileDocument(Document):
    id = serializers.CharField()
    name = serializers.CharField()
    description = serializers.CharField()
    sla_class = serializers.ChoiceField(choices=SlaClassChoice.values)
    target_p95_ms = serializers.FloatField()
    deadline_ms = serializers.FloatField()
    max_batch_size = serializers.IntegerField()
    max_wait_ms = serializers.FloatField()
    weight = serializers.FloatField()
    max_queue = serializers.IntegerField()
    late_policy = serializers.ChoiceField(choices=LatePolicyChoice.values)
    created_at = Moment()
    updated_at = Moment()


class ProfileChange(Body):
    """The bounds of one field are here; how they bound each other the action knows."""

    name = Text(max_length=63, required=False)
    description = Text(max_length=200, required=False, allow_blank=True)
    sla_class = serializers.ChoiceField(choices=SlaClassChoice.values, required=False)
    target_p95_ms = Number(min_value=1, max_value=3_600_000, required=False)
    deadline_ms = Number(min_value=1, max_value=86_400_000, required=False)
    max_batch_size = Whole(min_value=1, max_value=4096, required=False)
    max_wait_ms = Number(min_value=0, max_value=10_000, required=False)
    weight = Number(min_value=0.01, max_value=1000, required=False)
    max_queue = Whole(min_value=1, max_value=1_000_000, required=False)
    late_policy = serializers.ChoiceField(choices=LatePolicyChoice.values, required=False)


class ProfileBody(ProfileChange):
    name = Text(max_length=63)


class ProfileQuery(Page):
    name = serializers.CharField(required=False, max_length=63)


class Profiles(ApiView):
    """`/profiles`"""

    @listed("list_profiles", ProfileDocument, ProfileQuery)
    def get(self, request: Request) -> Response:
        """Profiles that can apply to you, newest first."""
        rows = visible_profiles(self.actor)
        if "name" in self.asked:
            rows = rows.filter(name=self.asked["name"])
        return self.rows(rows, ProfileDocument)

    @made("create_profile", ProfileBody, ProfileDocument, Rehearsed)
    def post(self, request: Request) -> Response:
        """Make a profile. It counts once something is bound to it."""
        require(self.actor, Right.MANAGE_PROFILES)
        values = self.read(ProfileBody)
        return self.make(lambda: create_profile(by=self.actor, **values), ProfileDocument, address_of)


class OneProfile(ApiView):
    """`/profiles/{id}`"""

    @shown("get_profile", ProfileDocument)
    def get(self, request: Request, profile_id: str) -> Response:
        """One profile."""
        return self.one(access_profile(self.actor, profile_id), ProfileDocument)

    @changed("change_profile", ProfileChange, ProfileDocument, Rehearsed)
    def patch(self, request: Request, profile_id: str) -> Response:
        """Change what is promised; gateways follow within a second."""
        values = self.read(ProfileChange)

        def act(profile: SlaProfile) -> Any:
            return update_profile(by=self.actor, profile=profile, **values)

        return self.change(lambda: self._managed(profile_id), act, ProfileDocument)

    @gone("delete_profile", Rehearsed)
    def delete(self, request: Request, profile_id: str) -> Response:
        """Delete a profile that nothing is bound to."""

        def act(profile: SlaProfile) -> Any:
            return delete_profile(by=self.actor, profile=profile)

        return self.remove(lambda: self._managed(profile_id), act, ProfileDocument)

    def _managed(self, profile_id: str) -> SlaProfile:
        return access_profile(self.actor, profile_id, Right.MANAGE_PROFILES)


def address_of(profile: SlaProfile) -> str:
    return reverse("api_profile", args=[profile.pk])
