"""Rows the control plane's tests start from, and an operator who may do everything."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest
from django.utils import timezone

from serving.contract import DeviceInfo, HostReport
from serving.control.catalog.models import Model, Version
from serving.control.fleet import hosts
from serving.control.fleet.models import Host
from serving.control.profiles.models import ProfileBinding, SlaProfile
from tenants.actors import Actor
from tenants.scoping import all_tenants

GIB = 2**30


@pytest.fixture
def operator() -> Actor:
    return Actor.system("test")


@pytest.fixture
def make_version(db: None) -> Callable[..., Version]:
    """A version of a model, `ready` unless told otherwise; the echo engine needs no artifact."""

    def make(
        name: str = "minilm", *, state: str = "ready", memory_bytes: int = GIB, **values: Any
    ) -> Version:
        model, _ = Model.objects.get_or_create(name=name)
        model.last_number += 1
        model.save()
        return Version.objects.create(
            model=model,
            number=model.last_number,
            engine="echo",
            state=state,
            memory_bytes=memory_bytes,
            created_by="test",
            **values,
        )

    return make


@pytest.fixture
def make_host(db: None) -> Callable[..., Host]:
    """A host that was heard of just now."""

    def make(
        name: str = "alpha", *, memory_bytes: int = 8 * GIB, cuda: int = 0, at: datetime | None = None
    ) -> Host:
        devices = (
            DeviceInfo(name="cpu", kind="cpu", memory_bytes=memory_bytes, cores=2),
            *(
                DeviceInfo(name=f"cuda:{index}", kind="cuda", memory_bytes=memory_bytes)
                for index in range(cuda)
            ),
        )
        report = HostReport(host=name, epoch=1, devices=devices, replica_dir=f"/run/{name}/r")
        hosts.record_heartbeat(report, at or timezone.now())
        return Host.objects.get(name=name)

    return make


@pytest.fixture
def default_profile(db: None) -> SlaProfile:
    """The platform default, which a migration made; a test that flushed the database took it away."""
    profile, _ = SlaProfile.objects.get_or_create(name="standard")
    with all_tenants("a test puts the platform's default back"):
        ProfileBinding.objects.get_or_create(
            tenant=None, model=None, endpoint=None, defaults={"profile": profile}
        )
    return profile
