"""A search for words looks into the whole trail, by parts of words; older and newer events are pages like any."""

from __future__ import annotations

import re
from urllib.parse import urlencode

import pytest
from django.db import DatabaseError, connection, transaction
from django.urls import reverse

from console.pages import audit
from tenants.audit import Target, record
from tenants.models import AuditEvent
from tenants.scoping import all_tenants, tenant_scope
from tenants.trail.search import Asked, matching
from tests.console.api.asking import ask
from tests.console.conftest import World
from tests.tenants.conftest import SYSTEM, Cast, team

__all__ = ["team"]


def write(name: str, cast: Cast | None = None, **facts: object) -> None:
    tenant = cast.tenant if cast else None
    record(
        by=SYSTEM, action="key.created", target=Target("api_key", "key_x", name), after=facts, tenant=tenant
    )


def found(words: str) -> list[str]:
    return list(
        matching(AuditEvent.objects.all(), Asked(q=words))
        .order_by("seq")
        .values_list("target_name", flat=True)
    )


@pytest.mark.django_db
@pytest.mark.parametrize(
    "words", ["nightly", "IGHT", "nightly 4711", "47 nigh", "Zürich", "100% _safe", "夜间"]
)
def test_words_are_found_whole_or_in_part_in_any_case(words: str) -> None:
    write("Nightly", note="4711 in Zürich, 100% _safe, 夜间任务")
    write("another", note="4712")
    with all_tenants("a test"):
        assert found(words) == ["Nightly"]


@pytest.mark.django_db
@pytest.mark.parametrize("words", ["1%9", "100_", "\\", "nothing-says-this", "nightly another"])
def test_nothing_of_a_word_is_a_pattern_and_every_word_has_to_occur(words: str) -> None:
    write("nightly", note="100 of 199")
    write("another", note="1009")
    with all_tenants("a test"):
        assert found(words) == []


def raw(statement: str) -> list[tuple[object, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(statement)
        return list(cursor.fetchall())


@pytest.mark.django_db
def test_words_are_shown_to_their_own_tenant_only(team: Cast) -> None:
    write("ours", team)
    record(by=SYSTEM, action="a.b", target=Target("t", "i", "theirs"), tenant=team.other)
    own, every = (
        "SELECT DISTINCT tenant_id FROM tenants_auditwords_own",
        "SELECT 1 FROM tenants_auditwords_every",
    )
    with tenant_scope(team.tenant.pk):
        assert raw(own) == [(team.tenant.pk,)] and raw(every) == []
        assert found("ours") == ["ours"] and found("theirs") == []
    assert raw(own) == [] and raw(every) == []
    with all_tenants("a test"):
        assert len(raw(every)) == AuditEvent.objects.count()


@pytest.mark.django_db
def test_what_others_wrote_takes_a_tenant_s_search_no_time(team: Cast) -> None:
    with tenant_scope(team.tenant.pk), connection.cursor() as cursor:
        cursor.execute("SET LOCAL enable_seqscan = off")
        plan = matching(AuditEvent.objects.all(), Asked(q="theirs")).explain()
    assert "audittext_by_words" not in plan and "audittext_by_tenant" in plan, "that index has words of all"


@pytest.mark.django_db
@pytest.mark.parametrize(
    "statement",
    [
        "SELECT * FROM tenants_audittext",
        "DELETE FROM tenants_audittext",
        "DELETE FROM tenants_auditwords_every",
        "INSERT INTO tenants_auditwords_own VALUES (1, 'tnt_a', 'x')",
    ],
)
def test_the_application_cannot_go_past_the_views(team: Cast, statement: str) -> None:
    with all_tenants("a test"), pytest.raises(DatabaseError), transaction.atomic():
        raw(statement)


def test_older_and_newer_events_are_reached_page_after_page(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit, "MAX_COUNTED", 4)
    client, address = world.client("operator"), f"{reverse('audit')}?q=stretch"
    for number in range(10):
        write(f"stretch-{number}")
    there = _walk(client, address, "older")
    assert [names for _, names in there] == [[9, 8, 7, 6], [5, 4, 3, 2], [1, 0]]
    back = _walk(client, there[-1][0], "newer")
    assert [names for _, names in back[1:]] == [[5, 4, 3, 2], [9, 8, 7, 6]]


def _walk(client: object, address: str, way: str) -> list[tuple[str, list[int]]]:
    """Where the links lead, and what is shown there."""
    seen: list[tuple[str, list[int]]] = []
    for _ in range(9):
        answer = client.get(address, follow=True)  # type: ignore[attr-defined]
        text = answer.content.decode()
        shown = [int(number) for number in dict.fromkeys(re.findall(r"stretch-(\d)", text))]
        seen.append((answer.request["PATH_INFO"] + "?" + answer.request["QUERY_STRING"], shown))
        links = re.findall(rf'href="(\?[^"]*go={way}[^"]*)"', text)
        if not links:
            return seen
        address = reverse("audit") + links[0].replace("&amp;", "&")
    raise AssertionError("never came to an end")


def test_the_api_searches_everything_page_by_page(world: World) -> None:
    client, seen, after = world.client("operator"), [], {}
    for number in range(5):
        write(f"paged-{number}")
        write("between")
    while True:
        page = ask(client, "GET", f"/audit?{urlencode({'q': 'paged', 'limit': 2, **after})}").json()
        seen += [event["target_name"] for event in page["data"]]
        after = {"after": page["next_cursor"]}
        if not page["has_more"]:
            break
    assert seen == [f"paged-{number}" for number in (4, 3, 2, 1, 0)]


def test_what_is_no_number_searches_from_the_newest(world: World) -> None:
    client = world.client("operator")
    for odd in ("x", "-1", "٣", "9" * 40, ""):
        for way in ("", "&go=older", "&go=newer", "&go=away"):
            answer = client.get(f"{reverse('audit')}?q=a&from={odd}{way}", follow=True)
            assert answer.status_code == 200
