"""Somebody opens the link of an invitation in a browser, which sends forms with an origin of its own making."""

from __future__ import annotations

from playwright.sync_api import Page, expect

from tenants.actions.invitations import invite
from tests.browser.conftest import Console
from tests.browser.test_live_page import page, pytestmark, sign_in  # noqa: F401
from tests.console.conftest import World


def link(world: World, email: str) -> str:
    by = world.cast.actor("operator")
    _, secret = invite(by=by, tenant=world.cast.tenant, email=email, role="developer")
    return f"/join/{secret}"


def test_a_new_person_makes_their_account_behind_the_link(page: Page, world: World) -> None:  # noqa: F811
    page.goto(link(world, "new@example.org"))
    page.get_by_label("User name").fill("newcomer")
    page.get_by_label("Password").fill("correct horse battery staple")
    page.get_by_role("button", name="Make my account and join").click()
    expect(page.get_by_text("Welcome to")).to_be_visible()


def test_a_person_with_an_account_accepts(page: Page, world: World, console: Console) -> None:  # noqa: F811
    address = link(world, world.cast.users["nobody"].email)
    sign_in(page, world, console, "nobody")
    page.goto(address)
    page.get_by_role("button", name="Accept").click()
    expect(page.get_by_text("Welcome to")).to_be_visible()


def test_whoever_is_signed_in_as_somebody_else_signs_out_there(
    page: Page,  # noqa: F811
    world: World,
    console: Console,
) -> None:
    sign_in(page, world, console, "nobody")
    page.goto(link(world, "new@example.org"))
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_label("User name or e-mail")).to_be_visible()
