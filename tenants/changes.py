"""Announces that a tenant, a key or what a person may do changed, inside the transaction that changes it.

Whoever publishes configuration subscribes (serving.control does, when its app is ready). A subscriber runs
in the announcer's transaction: what it writes commits with the change or not at all, and what it raises
undoes the change. So no gateway ever hears of something that did not happen, or misses something that did.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from django.db import transaction

ChangeKind = Literal["tenant", "key", "user"]
Subscriber = Callable[[ChangeKind, str], None]

_subscribers: list[Subscriber] = []


def subscribe(subscriber: Subscriber) -> None:
    """Call `subscriber(kind, id)` at each change from now on; subscribing twice changes nothing."""
    if subscriber not in _subscribers:
        _subscribers.append(subscriber)


def unsubscribe(subscriber: Subscriber) -> None:
    _subscribers.remove(subscriber)


def announce(kind: ChangeKind, object_id: str) -> None:
    """Tell every subscriber. Raises `RuntimeError` outside a transaction."""
    if not transaction.get_connection().in_atomic_block:
        raise RuntimeError("a change is announced inside the transaction that makes it")
    for subscriber in _subscribers:
        subscriber(kind, object_id)
