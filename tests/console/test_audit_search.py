"""A search for words in a long trail: bounded at each step, and nothing is missed by going on."""

from __future__ import annotations

import re
from urllib.parse import urlencode

import pytest
from django.urls import reverse

from console.pages import audit
from tenants.audit import Target, record
from tenants.trail import search
from tests.console.api.asking import ask
from tests.console.conftest import World
from tests.tenants.conftest import SYSTEM


@pytest.fixture(autouse=True)
def _short_reach(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "SEARCHED", 5)
    monkeypatch.setattr(audit, "SEARCHED", 5)


def test_a_search_over_the_api_goes_on_through_pages_that_found_nothing(world: World) -> None:
    client, found, sizes, after = world.client("operator"), [], [], {}
    _write_later_events()
    while True:
        page = ask(client, "GET", f"/audit?{urlencode({'q': 'minilm', 'limit': 2, **after})}").json()
        found += [event["id"] for event in page["data"]]
        sizes.append(len(page["data"]))
        after = {"after": page["next_cursor"]}
        if not page["has_more"]:
            break
    everything = ask(client, "GET", "/audit?target_type=model").json()["data"]
    assert {event["id"] for event in everything} <= set(found)
    assert len(found) == len(set(found)) and sizes[0] == 0


def test_the_page_says_how_far_it_searched_and_goes_on_from_there(world: World) -> None:
    client, address = world.client("operator"), f"{reverse('audit')}?q=minilm"
    _write_later_events()
    for _ in range(50):
        shown = client.get(address).content.decode()
        if "model.created" in shown.split("<tbody>")[1]:
            return
        (on,) = re.findall(r'href="(\?[^"]*from=\d+)"', shown)
        address = reverse("audit") + on.replace("&amp;", "&")
    raise AssertionError("never came to the event")


def test_what_is_no_number_searches_from_the_newest(world: World) -> None:
    client = world.client("operator")
    for odd in ("x", "-1", "٣", "9" * 40, ""):
        assert client.get(f"{reverse('audit')}?q=a&from={odd}").status_code == 200


def _write_later_events() -> None:
    for number in range(12):
        record(by=SYSTEM, action="key.created", target=Target("api_key", f"key_{number}", "a key"))
