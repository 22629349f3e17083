"""Addresses and forms as somebody hostile types them: an answer that says so, never an error of ours."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.urls import reverse

from console.pages.forms import ActionForm
from tenants.actions.keys import create_key
from tests.console.conftest import World
from tests.tenants.conftest import SYSTEM

LISTS = (
    "alerts",
    "alert_history",
    "promises",
    "models",
    "tenants",
    "usage",
    "prices",
    "audit",
    "audit_exports",
    "profiles",
    "fleet",
    "overview",
)
QUERIES = (
    "page=-1",
    "page=99999999999999999999",
    "sort=__class__",
    "sort=--name",
    "q=%FF%FE",
    "q=%ED%A0%80",
    "days=%C2%B2",
    "days=-1",
    "since=9999-12-31",
    "until=9999-12-31",
    "until=0001-01-01",
    "since=2026-02-31",
)


@pytest.mark.parametrize("name", LISTS)
def test_a_list_ignores_what_it_does_not_know(world: World, name: str) -> None:
    client = world.client("operator")
    found = {query: client.get(f"{reverse(name)}?{query}").status_code for query in QUERIES}
    assert found == dict.fromkeys(QUERIES, 200)


@pytest.mark.parametrize("who", ["operator", "stranger"])
@pytest.mark.parametrize(
    "address",
    [
        "/models/?q=%00",
        "/usage/?model=%00",
        "/audit/?action=%00",
        "/audit/exports?since=%00",
        "/models/%00/",
        "/tenants/a%00b/edit",
        "/members/%00/role",
        "/keys/%00/revoke",
        "/profiles/%00/",
        "/bindings/%00/unbind",
        "/deployments/%00/scale",
        "/tunings/%00/",
    ],
)
def test_nul_is_refused_before_anything_is_asked_for_it(world: World, who: str, address: str) -> None:
    assert world.client(who).get(address).status_code == 400


def test_nul_is_refused_in_a_choice_of_tenant(world: World) -> None:
    assert world.client("operator").post(reverse("switch_tenant"), {"tenant": "\0"}).status_code == 400


@pytest.mark.parametrize(
    "typed",
    ["[" * 100_000, "9" * 5_000, '"\\ud800"', "[NaN]", "{"],
    ids=["deep", "long", "half", "nan", "no"],
)
def test_the_playground_says_what_is_no_json(world: World, typed: str) -> None:
    values = {"model": "minilm", "text": "x", "inputs": typed, "key": "tg_x"}
    answer = world.client("viewer").post(reverse("playground"), values)
    assert answer.status_code == 422
    assert "Enter a valid JSON" in answer.content.decode()


EDITS: dict[str, tuple[Callable[[World], str], dict[str, str], dict[str, str]]] = {
    "profile_edit": (lambda w: w.profile.pk, {"max_queue": "7"}, {"weight": "3"}),
    "tenant_edit": (lambda w: w.cast.tenant.slug, {"max_concurrency": "7"}, {"name": "Acme II"}),
    "model_edit": (lambda w: w.model.name, {"description": "mine"}, {"audience": "all"}),
}


def _typed(form: ActionForm) -> dict[str, object]:
    """What a browser sends of an untouched form."""
    return {field.name: "" if field.value() is None else field.value() for field in form}


@pytest.mark.parametrize("name", EDITS)
def test_who_saves_second_is_told_of_the_first(world: World, name: str) -> None:
    key, mine, theirs = EDITS[name]
    client, address = world.client("operator"), reverse(name, args=[key(world)])
    form = client.get(address).context["form"]
    shown = _typed(form) | {"confirmed": "1"}
    assert client.post(address, shown | mine).status_code == 302
    answer = client.post(address, shown | theirs)
    assert answer.status_code == 422
    assert "Somebody else changed this meanwhile" in answer.content.decode()
    again = _typed(client.get(address).context["form"])
    assert client.post(address, again | {"confirmed": "1"} | theirs).status_code == 302


@pytest.mark.parametrize("name", ["a\nb", "a\u202eb", "a\u2028b", "a\u200bb", "a\x1b[2Jb"])
def test_a_name_is_one_visible_line(world: World, name: str) -> None:
    """A key whose name has a line break could never be confirmed, and so never be revoked, in a browser."""
    values = {"name": name, "scopes": ["infer"], "expires": "never"}
    answer = world.client("owner").post(reverse("key_create", args=["acme"]), values)
    assert answer.status_code == 422
    assert "visible characters" in answer.content.decode()


def test_names_of_every_language_are_fine(world: World) -> None:
    for name in ("支持聊天", "می\u200cخواهم", "équipe 👩\u200d💻", "a  b"):
        values = {"name": name, "scopes": ["infer"], "expires": "never"}
        assert world.client("owner").post(reverse("key_create", args=["acme"]), values).status_code == 200


def test_what_a_page_shows_is_what_confirms(world: World) -> None:
    """Two spaces are shown as one."""
    key, _ = create_key(by=SYSTEM, tenant=world.cast.tenant, name="a  b")
    answer = world.client("owner").post(reverse("key_revoke", args=[key.pk]), {"name": "a b"})
    assert answer.status_code == 302
