"""A person watches the overview: figures move, a lost server is noticed, and a key is made in a dialog."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator

import pytest
from playwright.sync_api import ConsoleMessage, Locator, Page, expect, sync_playwright

from serving.control.telemetry.store import write
from serving.telemetry.tally import Tally, encode_tally
from serving.telemetry.windows import SeriesKey, Slice
from tests.browser.conftest import QUIET, Console, Traffic, session_cookie
from tests.console.conftest import World

pytestmark = pytest.mark.browser

PASSWORD = "correct horse battery"
WAIT_MS = 25_000


@pytest.fixture
def page(chromium_path: str, console: Console) -> Iterator[Page]:
    """A fresh browser. Whatever it complains of (scripts, refused sources) fails the test."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium_path, args=list(QUIET))
        context = browser.new_context(viewport={"width": 1440, "height": 900}, base_url=console.url)
        opened = context.new_page()
        opened.set_default_timeout(WAIT_MS)
        complaints: list[str] = []
        opened.on("pageerror", lambda error: complaints.append(str(error)))
        opened.on("console", lambda message: _note(message, complaints))
        yield opened
        browser.close()
    assert complaints == []


def sign_in(page: Page, world: World, console: Console, who: str = "operator") -> None:
    page.context.add_cookies([session_cookie(who, world, console)])  # type: ignore[list-item]


def badge_is(page: Page, state: str) -> None:
    expect(page.locator("#live-badge")).to_have_attribute("data-state", state, timeout=WAIT_MS)


def test_one_signs_in_and_sees_promises_being_kept(page: Page, world: World, traffic: Traffic) -> None:
    operator = world.cast.users["operator"]
    operator.set_password(PASSWORD)
    operator.save()
    page.goto("/")
    page.fill("#id_login", "operator")
    page.fill("#id_password", PASSWORD)
    page.click("button[type=submit]")
    row = page.locator(f"tr[data-key^={world.cast.tenant.pk}]")
    expect(row).to_contain_text("kept", timeout=WAIT_MS)
    expect(row).to_contain_text("req/s")
    badge_is(page, "live")
    expect(page.locator('[data-chart="latency"] canvas')).to_be_visible()
    expect(page.locator('[data-chart="stages"] .u-legend')).to_contain_text("execute")


def drawn(canvas: Locator) -> str:
    """What is on it now. A screenshot would wait for an element that stays, and a chart may be made anew."""
    return str(canvas.evaluate("canvas => canvas.toDataURL()"))


def test_the_charts_move_every_second(page: Page, world: World, console: Console, traffic: Traffic) -> None:
    sign_in(page, world, console)
    page.goto("/")
    badge_is(page, "live")
    canvas = page.locator('[data-chart="rps"] canvas')
    expect(canvas).to_be_visible(timeout=WAIT_MS)
    overview = page.locator("#overview")
    before, second = drawn(canvas), overview.get_attribute("data-second") or ""
    expect(overview).not_to_have_attribute("data-second", second, timeout=WAIT_MS)
    assert drawn(canvas) != before


def test_a_restarted_server_is_found_again(
    page: Page, world: World, console: Console, traffic: Traffic
) -> None:
    sign_in(page, world, console)
    page.goto("/")
    badge_is(page, "live")
    console.stop()
    badge_is(page, "reconnecting")
    console.start()
    badge_is(page, "live")


def test_figures_that_stand_still_say_since_when(
    page: Page, world: World, console: Console, traffic: Traffic
) -> None:
    sign_in(page, world, console, "viewer")
    page.goto("/")
    badge_is(page, "live")
    traffic.stop()
    badge_is(page, "stale")
    expect(page.locator(".tg-live-text")).to_have_text(re.compile(r"stale \d+ s"))


def test_a_key_is_made_in_a_dialog_and_shown_once(page: Page, world: World, console: Console) -> None:
    sign_in(page, world, console, "owner")
    page.goto("/tenants/acme/")
    page.get_by_role("link", name="New API key").click()
    dialog = page.locator("dialog[open]")
    dialog.get_by_label("Name").fill("browser bot")
    dialog.get_by_role("button", name="Create key").click()
    token = dialog.locator("code").first
    expect(token).to_have_text(re.compile(r"tg_[a-z0-9]{12}_[A-Za-z0-9_-]{43}"))
    secret = token.text_content() or ""
    dialog.get_by_role("button", name="I have copied it").click()
    expect(page.locator("#keys")).to_contain_text("browser bot")
    assert secret not in page.content()


def test_the_page_works_on_a_phone_and_in_the_dark(
    page: Page, world: World, console: Console, traffic: Traffic
) -> None:
    sign_in(page, world, console)
    page.set_viewport_size({"width": 380, "height": 800})
    page.goto("/")
    badge_is(page, "live")
    page.locator("[data-theme-switch]").click()
    expect(page.locator("html")).to_have_attribute("data-bs-theme", "dark")
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0


def _note(message: ConsoleMessage, complaints: list[str]) -> None:
    """A lost connection is what some of these tests are about; the browser mentions it by itself."""
    is_expected = "WebSocket" in message.text or "ERR_CONNECTION" in message.text
    if message.type == "error" and not is_expected:
        complaints.append(message.text)


def test_a_dialog_is_used_with_the_keyboard_alone(page: Page, world: World, console: Console) -> None:
    sign_in(page, world, console)
    page.goto(f"/tenants/{world.cast.tenant.slug}/")
    opener = page.locator("a[hx-get]", has_text="New API key").first
    opener.press("Enter")
    expect(page.locator("dialog #id_name")).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.locator("dialog")).to_be_hidden()
    expect(opener).to_be_focused()
    opener.press("Enter")
    page.locator("dialog #id_name").fill("by keyboard")
    page.keyboard.press("Enter")
    expect(page.locator("dialog .modal-footer .btn-primary")).to_be_focused()


def test_a_table_that_is_cut_says_so_and_takes_the_focus(page: Page, world: World, console: Console) -> None:
    sign_in(page, world, console)
    page.set_viewport_size({"width": 380, "height": 800})
    page.goto("/profiles/")
    table = page.locator(".table-responsive")
    expect(table).to_have_attribute("data-cut", "after")
    expect(table).to_have_attribute("tabindex", "0")
    table.evaluate("box => box.scrollTo(10000, 0)")
    expect(table).to_have_attribute("data-cut", "before")
    assert page.evaluate("document.documentElement.scrollWidth") == 380


def test_a_longer_span_is_read_from_what_was_stored_and_is_in_the_address(
    page: Page, world: World, console: Console
) -> None:
    now = int(time.time()) // 10 * 10
    key = SeriesKey(world.cast.tenant.pk, "minilm", world.version.pk, "embeddings", "interactive")
    for start in range(now - 600, now - 60, 10):
        write(10, Slice(start, 10, {key: encode_tally(Tally(answered=50))}))
    sign_in(page, world, console)
    page.goto("/")
    page.click('[data-range="15m"]')
    expect(page.locator('[data-chart="rps"] .u-legend')).to_contain_text("acme", timeout=WAIT_MS)
    expect(page.locator("[data-ranges] .active")).to_have_text("15 min")
    assert "range=15m" in page.url
    page.click('[data-range="live"]')
    expect(page.locator("[data-ranges] .active")).to_have_text("Live")
    assert "range" not in page.url
