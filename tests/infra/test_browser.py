"""The Prefect UI in a real browser, as a person uses it: fill in, start, watch, read, retry.

Invariants: the deployment `begin` comes first, and its form fits on two screens; it starts a run
with the preset, tags and changes filled in; the run completes in the browser's eyes, and its
artifacts can be read there; a stage is drawn anew from the form; in the whole form of
`coevolution`, a run whose `grpo_update` fails is continued by the button Retry, with the earlier
stages Cached.

Screenshots are kept in `.ci/out/screenshots`. The browser is Debian's package `chromium`, or what
GENENV_CHROMIUM names; without one these tests are skipped.
"""

from __future__ import annotations

import functools
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

playwright = pytest.importorskip("playwright.sync_api")
from playwright.sync_api import Page, expect, sync_playwright  # noqa: E402

from genenv_core.storage.records.labels import read_labels  # noqa: E402
from genenv_core.storage.store.local import LocalStore  # noqa: E402
from tests.infra.servers import RUN_S, Up  # noqa: E402
from tests.pipeline.commands import REPOSITORY  # noqa: E402
from tests.waiting import until  # noqa: E402

CHROMIUM = os.environ.get("GENENV_CHROMIUM") or shutil.which("chromium") or "/usr/bin/chromium"
SHOTS = REPOSITORY / ".ci" / "out" / "screenshots"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(
        not Path(CHROMIUM).exists(), reason="no Chromium: `make browser` installs it"
    ),
]


@pytest.fixture
def page() -> Iterator[Page]:
    with sync_playwright() as driver:
        # The tests of CI run as root, where Chromium's own sandbox does not start.
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        opened = browser.new_page(viewport={"width": 1400, "height": 1000})
        opened.set_default_timeout(60_000)
        expect.set_options(timeout=60_000)
        yield opened
        browser.close()


def shot(page: Page, name: str) -> None:
    """Keep a picture of the page, taken once two in a row are equal."""
    SHOTS.mkdir(parents=True, exist_ok=True)
    # The graph of a run that is at work never rests.
    take = functools.partial(page.screenshot, animations="disabled", mask=[page.locator("canvas")])
    until(lambda: take() == take())
    page.screenshot(path=SHOTS / f"{name}.png", animations="disabled")


def open_form(page: Page, up: Up, deployment: str) -> None:
    """Click from the front page to the form of a deployment and choose the preset tiny."""
    page.goto(up.url)
    page.get_by_role("link", name="Deployments").click()
    listed = page.locator("a[href*='/deployments/deployment/']")
    expect(listed.first).to_have_text("begin")  # in the order that the page comes with
    listed.filter(has_text=re.compile(f"^{deployment}$")).click()
    page.get_by_role("button", name="Run", exact=True).click()
    page.get_by_role("menuitem", name="Custom run").click()
    page.get_by_role("button", name="Select Preset").click()
    page.get_by_role("option", name="tiny").click()


def add(page: Page, title: str, value: str) -> None:
    """Add an item to a list of the form."""
    head = page.get_by_text(f"{title} (Optional)", exact=True)
    items = head.locator("xpath=ancestor::div[following-sibling::fieldset][1]/..").last
    items.get_by_role("button", name="Add item").click()
    items.locator("textarea").last.fill(value)


def fill(page: Page, title: str, value: str) -> None:
    page.get_by_label(f"{title} (Optional)", exact=True).fill(value)


def submit(page: Page, up: Up) -> str:
    """Press Submit and open the page of the new flow run; returns its id."""
    with page.expect_response(re.compile("create_flow_run")) as answered:
        page.get_by_role("button", name="Submit").click()
    assert answered.value.status == 201, answered.value.text()
    run = answered.value.json()["id"]
    open_run(page, up, run)
    return run


def open_run(page: Page, up: Up, run: str) -> None:
    page.goto(f"{up.url}/v2/runs/flow-run/{run}")


def see_state(page: Page, state: str) -> None:
    """Wait until the open page of a flow run shows a state, without reloading the page."""
    head = page.get_by_role("main").get_by_text(state, exact=True).first
    expect(head).to_be_visible(timeout=RUN_S * 1000)


def test_a_run_is_filled_in_started_watched_and_read(page: Page, up: Up) -> None:
    open_form(page, up, "begin")
    height = page.evaluate("document.scrollingElement.scrollHeight")
    assert height < 2000, "the short form takes more than two screens"
    add(page, "Tags", "filled-in")
    add(page, "Changes", "run_id=browser")
    shot(page, "1-form")
    run = submit(page, up)
    see_state(page, "Running")
    shot(page, "2-running")
    see_state(page, "Completed")
    expect(page.get_by_text("browser · 2 epochs").first).to_be_visible()
    open_run(page, up, run)
    expect(page.get_by_text("Beginning flow run").first).to_be_visible()
    shot(page, "3-completed")
    assert up.flow_run(run)["parameters"]["request"]["preset"] == "tiny"
    assert read_labels(LocalStore(up.root), "browser").tags == ("filled-in",)
    page.get_by_role("tab", name="Artifacts").click()
    summary = page.get_by_role("link", name=re.compile("summary-browser"))
    expect(summary).to_be_visible()
    shot(page, "4-artifacts")
    summary.click()
    page.get_by_role("link", name=re.compile("^[0-9a-f]{8}$")).first.click()
    expect(page.get_by_role("heading", name="browser: 2 of 2 epochs")).to_be_visible()
    expect(page.get_by_text("genenv report browser").first).to_be_visible()
    link = page.get_by_role("link", name="metrics and model versions of browser")
    assert str(link.get_attribute("href")).startswith(up.mlflow_url)
    shot(page, "5-summary")
    page.goto(f"{up.url}/v2/artifacts/key/epochs-browser")
    page.get_by_role("link", name=re.compile("^[0-9a-f]{8}$")).first.click()
    expect(page.get_by_text("P(answer)").first).to_be_visible()
    shot(page, "6-table")


def test_a_stage_is_drawn_anew_from_the_form(page: Page, up: Up) -> None:
    up.until(up.start("coevolution", preset="tiny", run_id="browser"))  # there, or made now
    open_form(page, up, "begin")
    add(page, "Changes", "run_id=browser")
    fill(page, "Force", "rwr_update@2")
    run = submit(page, up)
    see_state(page, "Completed")
    (states,) = up.epochs(run, number=2)
    assert states["rwr_update · epoch 2 of 2"] == states["publish · epoch 2 of 2"] == "Completed"
    earlier = ("generate_tasks", "rollout", "score", "filter", "pool", "grpo_update")
    assert {states[f"{name} · epoch 2 of 2"] for name in earlier} == {"Cached"}


def test_a_run_that_a_limit_stopped_goes_on_with_a_higher_one(page: Page, up: Up) -> None:
    def begin(tokens: int) -> str:
        open_form(page, up, "begin")
        fill(page, "Epochs", "1")
        fill(page, "Tokens", str(tokens))
        for change in ("run_id=limited", "rollout.max_tokens=6"):  # attempts of its own
            add(page, "Changes", change)
        return submit(page, up)

    run = begin(1)
    see_state(page, "Stopped")
    open_run(page, up, run)
    page.get_by_role("tab", name="Artifacts").click()
    page.get_by_role("link", name=re.compile("summary-limited")).click()
    page.get_by_role("link", name=re.compile("^[0-9a-f]{8}$")).first.click()
    expect(page.get_by_text("limits.tokens 1 is reached").first).to_be_visible()
    shot(page, "10-stopped")
    before = up.stages(run)  # the start alone: its evaluation has more than one token
    assert before and not up.epochs(run, number=1)
    again = begin(10**9)
    see_state(page, "Completed")
    (states,) = up.epochs(again, number=1)
    assert states["publish · epoch 1 of 1"] == "Completed"
    after = up.stages(again)
    assert {after[name] for name in before} == {"Cached"} and len(after) > len(before)


def test_a_run_that_failed_is_retried_with_the_button(page: Page, up: Up) -> None:
    open_form(page, up, "coevolution")
    fill(page, "Run Id", "faulty")
    fill(page, "Passes", "3")  # another update than that of the other tests
    fill(page, "Test Fault", "grpo_update:2")
    run = submit(page, up)
    see_state(page, "Failed")
    open_run(page, up, run)
    page.get_by_role("tab", name="Details").click()
    expect(page.get_by_text("made this first attempt fail").first).to_be_visible()
    shot(page, "7-failed")
    page.get_by_role("main").get_by_role("button", name="Open menu").first.click()
    page.get_by_role("menuitem", name="Retry").click()
    page.get_by_role("alertdialog").get_by_role("button", name="Retry").click()
    see_state(page, "Completed")
    open_run(page, up, run)  # drawn anew, the picture shows all of it
    shot(page, "8-retried")
    first, second = up.epochs(run, number=2)
    assert first["grpo_update · epoch 2 of 2"] == "Failed"
    earlier = ("generate_tasks", "rollout", "score", "filter", "pool")
    assert {second[f"{name} · epoch 2 of 2"] for name in earlier} == {"Cached"}
    assert second["grpo_update · epoch 2 of 2"] == "Completed"
    page.get_by_role("tab", name="Subflow Runs").click()
    page.get_by_role("link", name="faulty · epoch 2 of 2").first.click()
    page.get_by_role("tab", name="Task Runs").click()
    expect(page.get_by_text("Cached").first).to_be_visible()
    shot(page, "9-cached")
