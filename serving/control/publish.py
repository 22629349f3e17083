"""What the data plane should do, computed from the rows and published in the transaction that changed them.

Order of locks: an action first locks and writes its own rows, then publishes. Publishing takes the
clock's row lock before it reads what it publishes, so of two transactions that change one entry's
sources the later sees the earlier's, and the entry ends up right. `everything()` finds and heals what
was changed past the actions.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from datetime import datetime

from django.db import connection, transaction
from django.db.models import Max
from django.db.models.functions import Now

from serving.contract import ConfigBody, encode_body
from serving.control import entries
from serving.control.catalog.models import Model, Version
from serving.control.fleet.models import Deployment
from serving.control.profiles.models import ProfileBinding, SlaProfile
from serving.control.seam_tables import ConfigClock, ConfigEntry
from serving.seam.postgres import CONFIG_CHANNEL
from tenants.changes import ChangeKind

Source = Callable[[str], ConfigBody | None]

SOURCES: dict[str, Source] = {
    "tenant": entries.tenant,
    "key": entries.key,
    "profile": entries.profile,
    "binding": entries.binding,
    "price": entries.price,
    "model": entries.model,
    "version": entries.version,
    "deployment": entries.deployment,
    "validation": entries.validation,
    "tuning": entries.tuning,
    "quota": entries.quota,
}
"""Kind → how its entry is computed from the rows; None where none should exist."""

# A reader never finds a version without the configuration of its replicas, or a binding without its
# profile: what others refer to comes first.
ORDER = tuple(SOURCES)


# ---------------------------------------------------------------- one object


def tenant(tenant_id: str) -> None:
    refresh("tenant", tenant_id)


def key(key_id: str) -> None:
    refresh("key", key_id)


def profile(row: SlaProfile | str) -> None:
    refresh("profile", _key(row))


def binding(row: ProfileBinding | str) -> None:
    refresh("binding", _key(row))


def price(price_id: str) -> None:
    refresh("price", price_id)


def model(row: Model) -> None:
    """The model's routes, grants and deployed versions."""
    refresh("model", row.name)


def version(row: Version | str) -> None:
    refresh("version", _key(row))


def validation(row: Version | str) -> None:
    """Asks for, or withdraws, a validation run."""
    refresh("validation", _key(row))


def tuning(run_id: str) -> None:
    """Asks for, or withdraws, a tuning run."""
    refresh("tuning", run_id)


def quota(quota_id: str) -> None:
    refresh("quota", quota_id)


def deployment(row: Deployment) -> None:
    """The deployment's replicas, with the versions and routes that go with them."""
    _lock_clock()
    for version_id in sorted(entries.versions_touching(row.pk)):
        refresh("version", version_id)
    refresh("deployment", row.pk)
    refresh("model", row.model.name)


def tenants_change(kind: ChangeKind, object_id: str) -> None:
    """Subscriber of `tenants.changes`: publishes in the announcer's transaction. People are no data-plane matter."""
    if kind != "user":
        refresh(kind, object_id)


def refresh(kind: str, entry_key: str) -> int | None:
    """Publish one entry as its rows are now; returns its new version, None when nothing changed."""
    _lock_clock()
    body = SOURCES[kind](entry_key)
    return delete(kind, entry_key) if body is None else put(kind, entry_key, body)


# ---------------------------------------------------------------- entries


def put(kind: str, entry_key: str, body: ConfigBody) -> int | None:
    """Write an entry; None (and no new version) when it already says so."""
    _lock_clock()
    document = json.loads(encode_body(body))
    known = ConfigEntry.objects.filter(kind=kind, key=entry_key).values_list("deleted", "body").first()
    if known == (False, document):
        return None
    return _write(kind, entry_key, document)


def delete(kind: str, entry_key: str) -> int | None:
    """Leave a tombstone; None when there is nothing to delete."""
    _lock_clock()
    if not ConfigEntry.objects.filter(kind=kind, key=entry_key, deleted=False).exists():
        return None
    return _write(kind, entry_key, None)


def _write(kind: str, entry_key: str, document: object | None) -> int:
    current = _tick()
    ConfigEntry.objects.update_or_create(
        kind=kind,
        key=entry_key,
        defaults={
            "version": current,
            "body": document,
            "deleted": document is None,
            "published_at": Now(),
        },
    )
    return current


def _lock_clock() -> None:
    """Publications queue here, in the order in which they will commit."""
    if not connection.in_atomic_block:
        raise RuntimeError("configuration is published inside the transaction that changes it")
    if not ConfigClock.objects.select_for_update().filter(pk=1).exists():
        ConfigClock.objects.bulk_create([ConfigClock()], ignore_conflicts=True)
        ConfigClock.objects.select_for_update().get(pk=1)


def _tick() -> int:
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE control_config_clock SET version = version + 1 WHERE id = 1"
            " RETURNING version, pg_notify(%s, '')",
            [CONFIG_CHANNEL],
        )
        return int(cursor.fetchone()[0])


# ---------------------------------------------------------------- reconciliation


def everything() -> int:
    """Compare all entries with the rows and publish what differs; returns how many did."""
    return sum(_reconcile(kind) for kind in ORDER)


def _reconcile(kind: str) -> int:
    published = _published(kind)
    wanted = entries.all_of(kind)
    gone = published.keys() - wanted.keys()
    suspects = [k for k, body in wanted.items() if _has_drifted(published.get(k), body)]
    return sum(_heal(kind, k) for k in sorted([*gone, *suspects]))


@transaction.atomic
def _heal(kind: str, entry_key: str) -> bool:
    # Computed again behind the lock: what differed may have been published meanwhile.
    return refresh(kind, entry_key) is not None


def _published(kind: str) -> dict[str, object]:
    rows: Iterable[tuple[str, object]] = ConfigEntry.objects.filter(kind=kind, deleted=False).values_list(
        "key", "body"
    )
    return dict(rows)


@transaction.atomic
def prune_tombstones(before: datetime) -> int:
    """Forget deletions published before then. Whoever has not read them yet is told to read everything."""
    _lock_clock()
    old = ConfigEntry.objects.filter(deleted=True, published_at__lt=before)
    newest = old.aggregate(newest=Max("version"))["newest"]
    if newest is None:
        return 0
    ConfigClock.objects.filter(pk=1).update(floor=newest)
    return old.filter(version__lte=newest).delete()[0]


def _has_drifted(published: object | None, body: ConfigBody | None) -> bool:
    # No entry for what exists: a key that has expired. `expiry` retracts it, with its audit event.
    return body is not None and published != json.loads(encode_body(body))


def _key(row: SlaProfile | ProfileBinding | Version | str) -> str:
    return row if isinstance(row, str) else str(row.pk)
