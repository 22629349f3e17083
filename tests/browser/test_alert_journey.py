"""An operator is told of an alert where they are, finds its rule and where the time goes, and answers it."""

from __future__ import annotations

import threading
import time

import pytest
from asgiref.sync import async_to_sync
from channels.layers import get_channel_layer
from playwright.sync_api import Page, expect

from console.live.alerts import messages_of
from serving.control.alerts.models import Alert
from serving.control.telemetry.store import write
from serving.telemetry.frames import STAGES, slots_of
from serving.telemetry.histogram import Histogram
from serving.telemetry.tally import Tally, encode_tally
from serving.telemetry.windows import SeriesKey, Slice
from tenants.scoping import all_tenants
from tests.browser.conftest import Console, Traffic
from tests.browser.test_live_page import WAIT_MS, badge_is, page, sign_in
from tests.console.alerting import alert
from tests.console.conftest import World

pytestmark = pytest.mark.browser
__all__ = ["page"]


def tell(state: str) -> None:
    """What the controller does with a transition, after its rows: it tells whoever watches."""
    with all_tenants("the controller tells of alerts of any tenant"):
        Alert.objects.update(state=state)
        messages = messages_of(Alert.objects.select_related("rule", "tenant"))

    async def send() -> None:
        layer = get_channel_layer()
        for scope, text in messages:
            await layer.group_send(scope.group, {"type": "live.frame", "text": text})

    sending = threading.Thread(target=async_to_sync(send))
    sending.start()
    sending.join(timeout=10)


def answered(world: World) -> None:
    """Requests of the last minutes, a tenth of them late."""
    histograms = {stage: Histogram({450: 100}, 740_000) for stage in STAGES}
    tally = Tally(answered=100, kept=90, slots=slots_of(histograms.items()))
    key = SeriesKey(world.cast.tenant.pk, "minilm", world.version.pk, "infer", "interactive")
    write(10, Slice(int(time.time()) // 10 * 10 - 120, 10, {key: encode_tally(tally)}))


def test_from_the_bell_to_the_rule_the_stages_and_the_answer(
    page: Page, world: World, console: Console, traffic: Traffic
) -> None:
    answered(world)
    sign_in(page, world, console)
    page.goto("/")
    badge_is(page, "live")
    bell = page.locator("#bell [data-count]")
    expect(bell).to_be_hidden()
    alert(world)
    tell("firing")
    note = page.locator("#notes a")
    expect(note).to_contain_text("slow", timeout=WAIT_MS)
    expect(bell).to_have_text("1")

    note.click()
    row = page.locator("tr[data-alert]")
    expect(row).to_contain_text("slow")
    badge_is(page, "live")
    expect(bell).to_have_text("1")
    page.get_by_role("link", name="Rules", exact=True).click()
    expect(page.get_by_role("row", name="slow")).to_contain_text("total_p95_ms")

    page.goto("/promises/?range=1h")
    expect(page.locator("#promises")).to_contain_text("used up")
    page.locator("[data-unfold]").first.click()
    expect(page.locator(".tg-stages").first).to_contain_text("execute")

    page.goto("/alerts/")
    row.get_by_role("link", name="Acknowledge").click()
    page.locator("dialog #id_comment").fill("looking at it")
    page.locator("dialog .modal-footer .btn-primary").click()
    expect(row).to_contain_text("looking at it")
    row.get_by_role("link", name="Silence").click()
    expect(page.locator("dialog #id_matchers")).to_have_value("alert=slow\nmodel=a")
    page.locator("dialog #id_comment").fill("known work")
    page.locator("dialog .modal-footer .btn-primary").click()
    expect(page.locator("main")).to_contain_text("known work")

    badge_is(page, "live")
    expect(bell).to_have_text("1")
    tell("resolved")
    expect(bell).to_be_hidden(timeout=WAIT_MS)
    expect(page.locator("#notes")).to_contain_text("is over")
