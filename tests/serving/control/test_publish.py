"""What is published is what the rows say, in the order of the commits."""

from __future__ import annotations

import threading
from collections.abc import Callable

import psycopg
import pytest
from django.db import connection, connections, transaction

from serving.contract import KeyEntry, TenantEntry, decode_config
from serving.control import publish
from serving.control.catalog.models import Version
from serving.control.seam_tables import ConfigClock, ConfigEntry
from tenants.actions.keys import create_key, revoke_key
from tenants.actions.tenants import create_tenant, suspend_tenant
from tenants.actors import Actor
from tenants.models import Tenant
from tenants.scoping import all_tenants


def published(kind: str, key: str) -> object:
    row = ConfigEntry.objects.get(kind=kind, key=key)
    import json

    return None if row.deleted else decode_config(json.dumps(row.body))


@pytest.mark.django_db
def test_a_tenants_life_reaches_the_seam(operator: Actor) -> None:
    tenant = create_tenant(by=operator, slug="acme", name="Acme", max_concurrency=7)
    assert published("tenant", tenant.pk) == TenantEntry(
        id=tenant.pk, slug="acme", name="Acme", max_concurrency=7
    )
    suspend_tenant(by=operator, tenant=tenant)
    entry = published("tenant", tenant.pk)
    assert isinstance(entry, TenantEntry) and not entry.is_active


@pytest.mark.django_db
def test_a_revoked_key_leaves_a_tombstone(operator: Actor) -> None:
    tenant = create_tenant(by=operator, slug="acme", name="Acme")
    key, _ = create_key(by=operator, tenant=tenant, name="k", allowed_models=["m"])
    entry = published("key", key.pk)
    assert isinstance(entry, KeyEntry)
    assert entry.digest == bytes(key.digest) and entry.models == ("m",) and entry.scopes == ("infer",)
    revoke_key(by=operator, key=key)
    assert published("key", key.pk) is None


@pytest.mark.django_db
def test_an_unchanged_entry_gets_no_new_version(operator: Actor) -> None:
    tenant = create_tenant(by=operator, slug="acme", name="Acme")
    before = ConfigClock.objects.get().version
    assert publish.refresh("tenant", tenant.pk) is None
    assert ConfigClock.objects.get().version == before


@pytest.mark.django_db(transaction=True)
def test_outside_a_transaction_nothing_can_be_published() -> None:
    with pytest.raises(RuntimeError):
        publish.refresh("tenant", "tnt_x")


@pytest.mark.django_db(transaction=True)
def test_a_change_that_is_rolled_back_was_never_published(operator: Actor) -> None:
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        create_tenant(by=operator, slug="acme", name="Acme")
        raise ZeroDivisionError
    assert not ConfigEntry.objects.filter(kind="tenant").exists()


@pytest.mark.django_db
def test_reconciliation_heals_what_was_changed_past_the_actions(
    operator: Actor, make_version: Callable[..., Version]
) -> None:
    tenant = create_tenant(by=operator, slug="acme", name="Acme")
    make_version()
    publish.everything()
    Tenant.objects.filter(pk=tenant.pk).update(name="Renamed in psql")
    ConfigEntry.objects.filter(kind="model").update(body=None, deleted=True)
    ConfigEntry.objects.create(kind="key", key="key_gone", version=-1, body={"type": "key"})
    assert publish.everything() == 3
    entry = published("tenant", tenant.pk)
    assert isinstance(entry, TenantEntry) and entry.name == "Renamed in psql"
    assert published("model", "minilm") is not None
    assert published("key", "key_gone") is None
    assert publish.everything() == 0


@pytest.mark.django_db
def test_every_kind_of_the_contract_has_a_source() -> None:
    from typing import get_args

    from serving.contract import ConfigBody

    kinds = {entry.__struct_config__.tag for entry in get_args(ConfigBody)}
    assert set(publish.SOURCES) == kinds


def _in_thread(work: Callable[[], None]) -> threading.Thread:
    def run() -> None:
        try:
            work()
        finally:
            connections.close_all()

    thread = threading.Thread(target=run)
    thread.start()
    return thread


@pytest.mark.django_db(transaction=True)
def test_a_delta_reader_beside_many_publishers_misses_no_version() -> None:
    """The reader asks for "newer than what I saw" and must end with exactly what is there."""
    publishers, rounds = 5, 12

    def publish_many(name: str) -> Callable[[], None]:
        def work() -> None:
            for number in range(rounds):
                with transaction.atomic():
                    key = f"tnt_{name}{number % 3}"
                    publish.put("tenant", key, TenantEntry(id=key, slug=key[4:], name=f"{number}"))

        return work

    threads = [_in_thread(publish_many(str(index))) for index in range(publishers)]
    seen: dict[str, str] = {}
    versions: list[int] = []

    def read() -> None:
        with connection.cursor() as cursor:
            newest = versions[-1] if versions else 0
            cursor.execute(
                "SELECT key, body->>'name', version FROM control_config_entry WHERE version > %s ORDER BY version",
                [newest],
            )
            for key, name, version in cursor.fetchall():
                seen[key] = name
                versions.append(version)

    while any(thread.is_alive() for thread in threads):
        read()
    for thread in threads:
        thread.join()
    read()
    assert seen == dict(ConfigEntry.objects.values_list("key", "body__name"))
    assert versions == sorted(set(versions))
    assert ConfigClock.objects.get().version == publishers * rounds


@pytest.mark.django_db(transaction=True)
def test_two_changes_of_one_entrys_sources_at_once_both_end_up_in_it(operator: Actor) -> None:
    """The later publisher must see what the earlier one committed while it waited."""
    tenant = create_tenant(by=operator, slug="acme", name="Acme")
    first_published, may_commit = threading.Event(), threading.Event()

    def first() -> None:
        with transaction.atomic():
            with connection.cursor() as cursor:
                cursor.execute("SET LOCAL lock_timeout = '10s'")
            publish.refresh("profile", "pro_none")  # takes the clock's lock first
            Tenant.objects.filter(pk=tenant.pk).update(max_concurrency=5)
            publish.tenant(tenant.pk)
            first_published.set()
            may_commit.wait(10)

    def second() -> None:
        with transaction.atomic(), all_tenants("test"):
            publish.tenant(tenant.pk)

    thread = _in_thread(first)
    assert first_published.wait(10)
    waiting = _in_thread(second)
    may_commit.set()
    thread.join(10)
    waiting.join(10)
    entry = published("tenant", tenant.pk)
    assert isinstance(entry, TenantEntry) and entry.max_concurrency == 5


@pytest.mark.django_db(transaction=True)
def test_publishing_notifies_at_commit(operator: Actor) -> None:
    settings = connection.settings_dict
    url = psycopg.conninfo.make_conninfo(
        dbname=settings["NAME"],
        user=settings["USER"] or None,
        host=settings["HOST"] or None,
        port=settings["PORT"] or None,
    )
    with psycopg.connect(url, autocommit=True) as listener:
        listener.execute("LISTEN tidegate_config")
        create_tenant(by=operator, slug="acme", name="Acme")
        assert list(listener.notifies(timeout=10, stop_after=1))
