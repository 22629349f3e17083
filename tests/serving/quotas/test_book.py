"""Which limits a gateway knows, through every change of the configuration."""

from __future__ import annotations

from serving.contract import QuotaEntry
from serving.quotas.book import Book
from tests.serving.quotas import rows


def updated(book: Book, *entries: QuotaEntry, zone: str = "UTC") -> Book:
    book.update(entries, lambda tenant_id: zone)
    return book


def test_what_is_held_of_a_quota_outlives_its_changes() -> None:
    entry, book = rows.entry("requests", "day", 10), Book()
    (holding,) = updated(book, entry)
    raised = rows.entry("requests", "day", 20, id=entry.id)
    assert list(updated(book, raised)) == [holding]
    assert holding.limit.value == 20


def test_an_update_looks_only_at_what_changed() -> None:
    """A thousand tenants have thousands of quotas, and every change of one comes by here."""
    entries, book = [rows.entry("requests", "day", 10) for _ in range(3)], Book()
    limits = [holding.limit for holding in updated(book, *entries)]
    changed = rows.entry("requests", "day", 11, id=entries[1].id)
    after = [holding.limit for holding in updated(book, entries[0], changed, entries[2])]
    assert [one is other for one, other in zip(limits, after, strict=True)] == [True, False, True]


def test_a_tenant_that_moves_has_its_days_in_the_new_zone() -> None:
    entry, book = rows.entry("requests", "day", 10), Book()
    updated(book, entry)
    (holding,) = updated(book, entry, zone="Asia/Tokyo")
    assert holding.limit.zone.key == "Asia/Tokyo"


def test_a_share_of_the_queue_binds_without_an_account() -> None:
    entry, book = rows.entry("queue", "", 4), Book()
    updated(book, entry)
    binding = book.binding("tnt_a", "key_a", "m")
    assert binding is not None and not len(binding) and not list(book)
    assert binding.queue_shares == ((entry.id, "waiting-requests", 4),)
    assert book.binding("tnt_b", "key_b", "m") is None
