"""A demo that is started again finds things as they were left."""

from __future__ import annotations

import pytest

from console.demo.setup import _validated, _version
from serving.control.catalog.actions import set_alias
from serving.control.catalog.models import Model, Version
from tests.console.conftest import World
from tests.tenants.conftest import SYSTEM

pytestmark = pytest.mark.django_db


def test_the_version_somebody_deployed_stays_deployed(world: World) -> None:
    newer = Version.objects.create(
        model=world.model, number=2, engine="echo", options={}, state="ready", created_by="tests"
    )
    model = Model.objects.get(pk=world.model.pk)
    set_alias(by=SYSTEM, model=model, alias="champion", version=newer)
    said: list[str] = []
    assert _validated(_version(model, said.append), said.append, 0.0).pk == world.version.pk
    assert said == []
    assert model.aliases.get(alias="champion").version_id == newer.pk
