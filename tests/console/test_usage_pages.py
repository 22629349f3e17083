"""Usage, its export and the statement: the same sums, told apart as asked, within what the reader may see."""

from __future__ import annotations

import csv
import io
import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from console.pages import usage_export
from serving.contract import UsageRow
from tenants.models import AuditEvent, UsageDay
from tenants.scoping import all_tenants
from tenants.usage import record_usage
from tests.console.conftest import World

NOW = datetime.now(UTC).replace(hour=12, minute=0, second=0, microsecond=0)


def use(world: World, days_ago: int = 0, **values: Any) -> None:
    defaults = {
        "minute": int((NOW - timedelta(days=days_ago)).timestamp()),
        "tenant_id": world.cast.tenant.pk,
        "key_id": world.key.pk,
        "model": "minilm",
        "version_id": world.version.pk,
        "sla_class": "interactive",
        "requests": 10,
        "device_us": 1_000_000,
        "cost_micro": 2_000_000,
    }
    record_usage("tests", [UsageRow(**(defaults | values))])


def page(client: Client, name: str = "usage", query: str = "", *args: str) -> str:
    response = client.get(reverse(name, args=args) + query)
    assert response.status_code == 200
    return re.sub(r"\s+", " ", response.content.decode())


def csv_of(client: Client, query: str = "") -> list[dict[str, str]]:
    response: Any = client.get(reverse("usage_export") + query)
    assert response.status_code == 200 and response["content-type"] == "text/csv; charset=utf-8"

    async def whole() -> bytes:
        return b"".join([part async for part in response.streaming_content])

    return list(csv.DictReader(io.StringIO(async_to_sync(whole)().decode(), newline="")))


@pytest.mark.parametrize(
    ("group", "texts"),
    [
        ("day", (f"{NOW:%Y-%m-%d}", "gemma", "minilm")),
        ("tenant", ("Acme", "Globex")),
        ("key", ("support chat", "key_other")),
        ("model", ("minilm", "gemma")),
        ("version", ("v1", "mv_gone")),
        ("class", ("interactive", "batch")),
    ],
)
def test_sums_are_told_apart_by_what_was_asked(world: World, group: str, texts: tuple[str, ...]) -> None:
    use(world)
    use(
        world,
        tenant_id=world.cast.other.pk,
        key_id="key_other",
        model="gemma",
        version_id="mv_gone",
        sla_class="batch",
    )
    text = page(world.client("operator"), query=f"?by={group}")
    body = text[text.index("<tbody>") :]
    for each in texts:
        assert each in body
    assert ">4.00<" in text, "the total is of all rows"


def test_what_is_shown_adds_up_to_what_is_exported(world: World) -> None:
    for days_ago in (0, 3, 40):
        use(world, days_ago)
    use(world, 1, tenant_id=world.cast.other.pk)
    rows = csv_of(world.client("operator"), "?days=90")
    assert sum(int(row["cost_micro"]) for row in rows) == 8_000_000
    assert ">8.00<" in page(world.client("operator"), query="?days=90")
    assert [row["day"] for row in rows] == sorted(row["day"] for row in rows)
    assert {row["tenant_name"] for row in rows} == {"Acme", "Globex"}


def test_an_export_holds_what_its_reader_may_see_and_says_that_it_was_made(world: World) -> None:
    use(world)
    use(world, tenant_id=world.cast.other.pk)
    rows = csv_of(world.client("viewer"))
    assert {row["tenant_id"] for row in rows} == {world.cast.tenant.pk}
    with all_tenants("a test"):
        assert AuditEvent.objects.filter(action="usage.exported", actor_name="viewer").count() == 1


def test_an_export_in_pages_loses_and_repeats_nothing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(usage_export, "PAGE_ROWS", 3)
    for days_ago in range(5):
        for key in ("key_a", "key_b"):
            use(world, days_ago, key_id=key)
    rows = csv_of(world.client("operator"))
    assert len({(row["day"], row["key_id"]) for row in rows}) == len(rows) == 10


def test_a_name_in_an_export_is_no_formula(world: World) -> None:
    use(world, model="=HYPERLINK(1)")
    assert csv_of(world.client("operator"))[0]["model"] == "'=HYPERLINK(1)"


def test_filters_narrow_every_figure_and_can_be_taken_back(world: World) -> None:
    use(world)
    use(world, key_id="key_other", model="gemma")
    text = page(world.client("operator"), query=f"?key={world.key.pk}&by=key")
    assert ">2.00<" in text and "key_other" not in text
    assert f"API key: {world.key.name}" in text
    assert ">2.00<" in page(world.client("operator"), query="?model=gemma")


def test_a_custom_span_is_kept_when_something_else_changes(world: World) -> None:
    use(world, 5)
    day = f"{NOW - timedelta(days=5):%Y-%m-%d}"
    text = page(world.client("operator"), query=f"?since={day}&until={day}")
    assert ">2.00<" in text and f'name="since" value="{day}"' in text
    assert len(csv_of(world.client("operator"), f"?since={day}&until={day}")) == 1


@pytest.mark.parametrize(
    "query",
    [
        "?since=2026-02-31&until=x",
        "?days=-1&by=nothing",
        "?since=9999-12-31&until=9999-12-31",
        "?by=%00x"[:4],
    ],
)
def test_odd_addresses_show_the_usual_page(world: World, query: str) -> None:
    use(world)
    assert ">2.00<" in page(world.client("operator"), query=query)


def test_the_page_says_what_the_month_will_come_to_and_how_it_knows(world: World) -> None:
    assert "Told once there was a whole day with usage" in page(world.client("operator"))
    use(world, 1)
    assert "the days left as the one before today: 2.00" in page(world.client("operator"))
    use(world, 2)
    assert "as the mean of the 2 before today: 2.00" in page(world.client("operator"))


def test_a_statement_lists_what_was_charged_in_its_month(world: World) -> None:
    use(world)
    use(world, version_id="mv_gone", cancelled=1, cancelled_us=5)
    with all_tenants("a test"):
        UsageDay.objects.filter(version_id="mv_gone").update(key_name="an old name")
    text = page(world.client("viewer"), "statement", f"?month={NOW:%Y-%m}", "acme")
    for each in (
        "Statement of Acme",
        "v1",
        "mv_gone",
        "support chat",
        ">4.00<",
        "the month is still running",
    ):
        assert each in text
    text = page(world.client("viewer"), "statement", "?month=2000-01", "acme")
    assert ">4.00<" in text, "a month that is not offered is the running one"


def test_a_statement_of_an_empty_month_says_so(world: World) -> None:
    assert "Nothing was used in this month" in page(world.client("viewer"), "statement", "", "acme")


@pytest.mark.parametrize("query", ["?by=day", "?by=version", "?by=key&days=90"])
def test_a_page_of_usage_asks_the_database_ten_times_at_most(world: World, query: str) -> None:
    use(world)
    client = world.client("operator")
    client.get(reverse("usage"))
    with CaptureQueriesContext(connection) as queries:
        page(client, query=query)
    assert len(queries) <= 10, [each["sql"] for each in queries]
