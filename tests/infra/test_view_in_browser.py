"""`genenv view` in a real browser, over a real run.

Invariants: a person gets from the list of runs to a task and a token with clicks or keys alone; no
page logs an error or asks another host; the console answers. Screenshots of each page, on a desk,
on a phone and in the dark, are kept in `.ci/out/screenshots`.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

playwright = pytest.importorskip("playwright.sync_api")
from playwright.sync_api import Browser, Page, expect, sync_playwright  # noqa: E402

from tests.infra.test_browser import CHROMIUM, SHOTS  # noqa: E402
from tests.pipeline.commands import environment, genenv  # noqa: E402
from tests.waiting import until  # noqa: E402

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not Path(CHROMIUM).exists(), reason="no chromium: apt-get install chromium"),
]


WIDER = "document.documentElement.scrollWidth - innerWidth"
"""By how many pixels a page is wider than the screen."""


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Return the address of a `genenv view` over a run of two epochs."""
    folder = tmp_path_factory.mktemp("view")
    done = genenv("run", "tiny", "--set", "epochs=2", "--root", "root", cwd=folder, timeout=600)
    assert done.returncode == 0, done.stderr
    log = folder / "view.log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "flows.cli.app", "view", "--root", "root", "--port", "0"],
            cwd=folder, env=environment(), stdout=out, stderr=subprocess.STDOUT,
        )  # fmt: skip
    try:
        yield until(lambda: (re.search(r"http://\S+", log.read_text()) or [""])[0]).rstrip("/")
    finally:
        process.terminate()
        process.wait(60)
    assert "Traceback" not in log.read_text()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Return a browser, without its own sandbox: as root, which CI is, that does not start."""
    with sync_playwright() as driver:
        made = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield made
        made.close()


@pytest.fixture
def page(browser: Browser, address: str) -> Iterator[Page]:
    """Return an open page, which may log no error and ask no other host."""
    opened = browser.new_page(viewport={"width": 1280, "height": 900})
    wrong: list[str] = []
    opened.on("console", lambda said: wrong.append(said.text) if said.type == "error" else None)
    opened.on("pageerror", lambda error: wrong.append(str(error)))
    opened.on(
        "request",
        lambda asked: wrong.append(asked.url) if not asked.url.startswith(address) else None,
    )
    yield opened
    opened.close()
    assert wrong == []


def shot(page: Page, name: str) -> None:
    """Keep a picture of the whole page."""
    SHOTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=SHOTS / f"view-{name}.png", full_page=True, animations="disabled")


def test_a_person_gets_from_the_runs_to_a_token(page: Page, address: str):
    page.goto(address)
    shot(page, "runs")
    page.get_by_role("link", name=re.compile("^tiny-")).click()
    curves = page.locator("[data-curve] canvas")
    expect(curves.first).to_be_visible()
    assert curves.count() >= 4
    shot(page, "run")
    page.get_by_role("link", name="Task map").click()
    marks = page.locator("svg a .mark")
    assert marks.count() > 0
    shot(page, "tasks")
    marks.first.click()
    expect(page.get_by_role("heading", name="What pi_env wrote")).to_be_visible()
    shot(page, "story")
    page.locator(".attempt h3 a").first.click()
    expect(page.get_by_role("heading", name="Token by token")).to_be_visible()
    assert page.locator(".tok[title]").count() > 0
    page.get_by_label("beside").select_option(index=1)
    page.get_by_role("button", name="Show").click()
    expect(page.get_by_role("heading", name="Token by token")).to_have_count(2)
    shot(page, "traces")


def test_rejections_and_lineage_are_a_click_from_the_run(page: Page, address: str):
    page.goto(address)
    page.get_by_role("link", name=re.compile("^tiny-")).click()
    run = page.url
    page.get_by_role("link", name="Rejections").click()
    expect(page.get_by_role("heading", name="What was rejected, and why")).to_be_visible()
    shot(page, "rejections")
    page.goto(run)
    page.get_by_role("link", name="Lineage").click()
    shot(page, "lineage")
    page.locator("svg a .node").last.click()
    expect(page.get_by_role("heading", name="Rows that the update trained on")).to_be_visible()
    shot(page, "checkpoint")


def test_the_console_is_reached_and_used_by_keys_alone(page: Page, address: str):
    page.goto(address)
    for _ in range(12):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.textContent") == "SQL":
            break
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile("/sql"))
    page.locator("#sql").focus()
    page.keyboard.type("SELECT count(*) AS attempts FROM traces")
    page.keyboard.press("Control+Enter")
    expect(page.get_by_role("cell")).to_have_count(1)
    assert int(page.get_by_role("cell").inner_text().replace(",", "")) > 0
    shot(page, "console")


@pytest.mark.parametrize("look", ["dark", "phone", "print"])
def test_pages_can_be_read_in_the_dark_on_a_phone_and_on_paper(look, page: Page, address: str):
    if look == "phone":
        page.set_viewport_size({"width": 390, "height": 800})
    page.emulate_media(
        color_scheme="dark" if look == "dark" else "light",
        media="print" if look == "print" else "screen",
    )
    page.goto(address)
    page.get_by_role("link", name=re.compile("^tiny-")).click()
    expect(page.locator("[data-curve] canvas").first).to_be_visible()
    assert page.evaluate(WIDER) <= 0
    shot(page, f"run-{look}")
    page.goto(f"{page.url}/tasks")
    assert page.evaluate(WIDER) <= 0
    shot(page, f"tasks-{look}")
