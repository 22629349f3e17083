"""Two tenants with their people, and one of everything a page can show."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import timedelta

import pytest
from django.test import Client
from django.utils import timezone

from serving.control.catalog.actions import create_model, register_version
from serving.control.catalog.models import Model, Version
from serving.control.fleet.models import Deployment, Host, Replica
from serving.control.profiles.actions import bind_profile, create_profile
from serving.control.profiles.models import ProfileBinding, SlaProfile
from tenants.actions.keys import create_key
from tenants.models import ApiKey, User
from tests import shared_rows
from tests.tenants.conftest import SYSTEM, Cast, build_cast


def sign_in(client: Client, user: User, ago_s: float = 0) -> None:
    """As by the page: the session knows how and when the person showed who they are."""
    client.force_login(user)
    session = client.session
    session["account_authentication_methods"] = [{"method": "password", "at": time.time() - ago_s}]
    session["account_authentication_methods_user"] = str(user.pk)
    session.save()


@dataclass
class World:
    cast: Cast
    model: Model
    version: Version
    deployment: Deployment
    profile: SlaProfile
    binding: ProfileBinding
    key: ApiKey
    token: str

    def client(self, who: str) -> Client:
        """A browser in which `who` is signed in; nobody in the one of `anonymous`."""
        client = Client(headers={"accept": "text/html"})
        if who != "anonymous":
            sign_in(client, self.cast.users[who])
        return client


@pytest.fixture
def world(request: pytest.FixtureRequest) -> World:
    built: World = shared_rows.rows(request, build_world)
    return built


def build_world() -> World:
    """The model is granted to the first tenant only, and so is the profile."""
    cast = build_cast()
    model = create_model(
        by=SYSTEM, name="minilm", description="Sentences in, vectors out", tenants=[cast.tenant]
    )
    version = register_version(
        by=SYSTEM, model=model, source=None, engine="echo", price_micro_per_device_hour=1_200_000
    )
    Version.objects.filter(pk=version.pk).update(
        state="ready",
        inputs=[{"name": "text", "datatype": "BYTES", "shape": [-1]}],
        outputs=[{"name": "embedding", "datatype": "FP32", "shape": [-1, 384]}],
        cost={"a_ms": 2.0, "b_ms_per_row": 0.0, "c_ms_per_token": 0.04},
        points=[{"rows": 1, "tokens": 8, "execute_ms": 2.4}, {"rows": 4, "tokens": 64, "execute_ms": 4.5}],
    )
    version.refresh_from_db()
    profile = create_profile(
        by=SYSTEM, name="quick", sla_class="interactive", target_p95_ms=50, deadline_ms=500
    )
    key, token = create_key(by=SYSTEM, tenant=cast.tenant, name="support chat")
    return World(
        cast=cast,
        model=model,
        version=version,
        deployment=_deployed(model, version),
        profile=profile,
        binding=bind_profile(by=SYSTEM, profile=profile, tenant=cast.tenant),
        key=key,
        token=token,
    )


def _deployed(model: Model, version: Version) -> Deployment:
    seen = timezone.now() + timedelta(hours=1)
    devices = [{"name": "cpu", "kind": "cpu", "memory_bytes": 1 << 34, "cores": 2}]
    host = Host.objects.create(name="box", last_seen_at=seen, replica_dir="/run/r", devices=devices)
    deployment = Deployment.objects.create(model=model, version=version, created_by="tests")
    Replica.objects.create(
        deployment=deployment,
        version=version,
        host=host,
        slot=0,
        device="cpu",
        address="unix:/r",
        state="ready",
    )
    return deployment
