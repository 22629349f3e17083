"""A person tunes a version: asks in a dialog, sees the table grow by itself, and makes a version of the best."""

from __future__ import annotations

from playwright.sync_api import Page, expect

from serving.contract import TuningReport
from serving.control.catalog.models import Version
from serving.control.fleet.models import Host
from serving.control.tuning.actions import record_tuning
from serving.control.tuning.models import TuningRun
from tests.browser.conftest import Console
from tests.browser.test_live_page import WAIT_MS, page, pytestmark, sign_in  # noqa: F401
from tests.console.conftest import World
from tests.console.tuned import ROWS, build_encoder


def test_one_tunes_a_version_and_makes_a_better_one(page: Page, world: World, console: Console) -> None:  # noqa: F811
    Host.objects.update(features=["bf16", "int8"])
    version = build_encoder(world.model)
    sign_in(page, world, console)
    page.goto(f"/models/{world.model.name}/")
    page.get_by_role("link", name="Tune").first.click()
    dialog = page.locator("#dialog")
    dialog.locator("#id_samples").fill("one\ntwo\n")
    dialog.get_by_role("button", name="Measure").click()
    expect(page.locator("h1")).to_contain_text(f"Tuning of {version}", timeout=WAIT_MS)
    expect(page.locator('[data-candidate="0"] [data-state]')).to_have_attribute("data-state", "measuring")
    run = TuningRun.objects.get()
    for row in ROWS:
        record_tuning(TuningReport(tuning_id=run.pk, row=row))
    expect(page.locator('[data-candidate="1"]')).to_contain_text("428", timeout=WAIT_MS)
    expect(page.locator('[data-candidate="1"]')).to_contain_text("ahead")
    record_tuning(TuningReport(tuning_id=run.pk, is_done=True))
    page.get_by_role("button", name="Make this a version").click(timeout=WAIT_MS)
    expect(page.locator("h1")).to_contain_text(world.model.name)
    made = Version.objects.get(model=world.model, number=version.number + 1)
    assert (made.state, made.options["dtype"]) == ("validating", "bf16")
