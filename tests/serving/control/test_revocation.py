"""From an action in the console to the table of a gateway, over a real database."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from asgiref.sync import sync_to_async
from django.db import connections

from serving.contract import ConfigChange
from serving.seam.follower import ConfigFollower
from serving.seam.postgres import PostgresSeam
from tenants.actions.keys import create_key, revoke_key
from tenants.actions.tenants import create_tenant
from tenants.actors import Actor
from tests.serving.seam.test_seam import database_url

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
async def _connections_end_with_the_test() -> AsyncIterator[None]:
    yield
    await sync_to_async(connections.close_all)()


@pytest.mark.parametrize("hears_hints", [True, False])
async def test_a_revoked_key_is_soon_unknown_to_a_follower(
    operator: Actor, tmp_path: Path, hears_hints: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    known: set[str] = set()

    def take(changes: list[ConfigChange]) -> None:
        for change in changes:
            known.discard(change.key) if change.body is None else known.add(change.key)

    seam = PostgresSeam(database_url())
    if not hears_hints:
        monkeypatch.setattr(seam, "wait_for_hint", asyncio.sleep)
    follower = ConfigFollower(seam, ("key",), tmp_path / "last-good.json", take)
    await follower.start()
    tenant = await sync_to_async(create_tenant)(by=operator, slug="acme", name="Acme")
    key, _ = await sync_to_async(create_key)(by=operator, tenant=tenant, name="k")
    await _until(lambda: key.pk in known)
    await sync_to_async(revoke_key)(by=operator, key=key)
    await _until(lambda: key.pk not in known)
    assert follower._poll_interval_s <= 0.25  # so that even without a hint it is a fraction of a second
    await follower.stop()
    await seam.close()


async def _until(condition) -> None:  # type: ignore[no-untyped-def]
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.005)
