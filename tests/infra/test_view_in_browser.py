"""`genenv view` in a real browser, over a real run.

Invariants: every page of a run is reached by clicks, and each of its numbers is what its SQL gives;
ten questions are answered in two clicks or one search each (docs/view.md); the keyboard alone
reaches everything; what is asked and kept in the console comes back; nothing that a model or a
person wrote is carried out; no page logs an error or asks another host. Pages can be read on a
desk, on a phone, in the dark and on paper, and axe-core finds nothing against WCAG 2.2 AA in them.

Screenshots are kept in `.ci/out/screenshots`. GENENV_VIEW_ROOT names a root to walk in place of a
small one that is made here: that of `make run`, for example.
"""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from PIL import Image

playwright = pytest.importorskip("playwright.sync_api")
from playwright.sync_api import (  # noqa: E402
    Browser,
    Locator,
    Page,
    ViewportSize,
    expect,
    sync_playwright,
)

from genenv_core import pools  # noqa: E402
from genenv_core.storage.records.runs import RunLog, StageAttempt  # noqa: E402
from genenv_core.storage.sql.catalog import query  # noqa: E402
from genenv_core.storage.store.local import LocalStore  # noqa: E402
from tests.infra.test_browser import CHROMIUM, SHOTS  # noqa: E402
from tests.pipeline.commands import environment, genenv  # noqa: E402
from tests.unit.builders_root import START, commit_epoch  # noqa: E402
from tests.unit.view.axe import COLOURED, axe_core, violations  # noqa: E402
from tests.unit.view.builders_comparing import play, tasks  # noqa: E402
from tests.unit.view.hostile_root import RUN_NAMES, hostile_root  # noqa: E402
from tests.unit.view.reading_pages import Pages, held_against_sql  # noqa: E402
from tests.waiting import BOUND_S, until  # noqa: E402

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(
        not Path(CHROMIUM).exists(), reason="no Chromium: `make browser` installs it"
    ),
]

WIDER = "document.documentElement.scrollWidth - innerWidth"
"""By how many pixels a page is wider than the screen."""

REACHABLE = """() => {
  window.reachable = [...document.querySelectorAll(
    'a[href]:not([tabindex="-1"]), button, input:not([type=hidden]), select, textarea, summary, '
    + '[tabindex="0"]'
  )].filter((one) => !one.disabled && one.checkVisibility());
  return window.reachable.length;
}"""
"""Finds everything on a page that a person can act on, and returns how much that is."""

FOCUSED = """() => {
  const one = document.activeElement;
  const ring = getComputedStyle(one).outlineStyle !== 'none';
  const mark = one.querySelector('.mark, .node');
  return [window.reachable.indexOf(one), ring || Boolean(mark)];
}"""
"""Which of those has the focus, and whether a person sees that."""

CUT_DRAWINGS = """() => [...document.querySelectorAll('.map svg')].filter((one) =>
  [one.parentElement, document.documentElement].some((box) =>
    one.getBoundingClientRect().right > box.getBoundingClientRect().right + 1
    || one.getBoundingClientRect().bottom > box.getBoundingClientRect().bottom + 1)
).length"""
"""Finds maps that are wider or higher than what holds them."""

PAPER_WIDTH = 688
"""Pixels between the margins of A4."""

BROKEN_NUMBERS = """() => [...document.querySelectorAll('td.n')].filter((cell) => {
  const text = document.createRange();
  text.selectNodeContents(cell);
  return new Set([...text.getClientRects()].map((line) => line.top)).size > 1;
}).length"""
"""Finds the numbers of tables that are broken over lines."""

OF_THE_BAND = """(curve) => {
  const drawing = document.querySelector(`[data-curve=${curve}] canvas`);
  const {data} = drawing.getContext('2d').getImageData(0, 0, drawing.width, drawing.height);
  let found = 0;
  for (let at = 3; at < data.length; at += 4) found += Math.abs(data[at] - 26) < 3 ? 1 : 0;
  return found;
}"""
"""Finds pixels as translucent as the band, --band of the style sheet, in the chart of a curve."""

DRAWN = """([place, colour, from]) => {
  const drawing = document.querySelector(`${place} canvas`);
  const {width, height} = drawing;
  const left = Math.floor(width * from);
  const {data} = drawing.getContext('2d').getImageData(left, 0, width - left, height);
  let found = 0;
  for (let at = 0; at < data.length; at += 4) {
    found += colour.every((part, index) => data[at + index] === part) ? 1 : 0;
  }
  return found;
}"""
"""Finds pixels of a colour in a plot, from a share of its width on."""

TOKENS = re.compile(r"\d (k|M)")
"""How many tokens a run has spent, as the list of runs and its own page say it."""

CELLS_IN_SIGHT = """() => [...document.querySelectorAll('[data-findings]')].filter((one) =>
  one.getBoundingClientRect().top < Math.min(innerHeight,
    one.closest('.wide').getBoundingClientRect().bottom)).length"""
"""Counts the runs whose row a person sees."""

COLOURS = ((0, 114, 178), (213, 94, 0))
"""--s0 and --s1 of the style sheet."""

SAID = 2000
"""Letters of a page that a failure quotes."""

PATIENCE_MS = 1000 * BOUND_S
"""Longest wait for anything of a page: other suites play beside this one."""

OF_A_KIND = 12
"""Tasks, and traces, whose pages are walked; there are thousands in a root of `make run`."""


@contextmanager
def served(root: Path, log: Path) -> Iterator[str]:
    """Yield the address of a `genenv view` over a root; it may print no traceback."""
    with log.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "flows.cli.app", "view", "--root", str(root), "--port", "0"],
            cwd=log.parent, env=environment(), stdout=out, stderr=subprocess.STDOUT,
        )  # fmt: skip
    try:
        yield until(lambda: (re.search(r"http://\S+", log.read_text()) or [""])[0]).rstrip("/")
    finally:
        process.terminate()
        process.wait(60)
    assert "Traceback" not in log.read_text()


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the root to walk, with a run of five epochs."""
    if given := os.environ.get("GENENV_VIEW_ROOT"):
        return Path(given).absolute()
    folder = tmp_path_factory.mktemp("view")
    done = genenv("run", "tiny", "--set", "epochs=5", "--root", "root", cwd=folder, timeout=600)
    assert done.returncode == 0, done.stderr
    return folder / "root"


@pytest.fixture(scope="module")
def run(root: Path) -> str:
    """Return the name of its run with the most epochs."""
    with pools.connect(root) as con:
        asked = "SELECT arg_max(run_id, epochs_planned) AS run FROM runs"
        return query(con, asked)["run"].item()


@pytest.fixture(scope="module")
def address(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Return the address of the pages over the root."""
    with served(root, tmp_path_factory.mktemp("served") / "view.log") as found:
        yield found


@pytest.fixture(scope="module")
def axe(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the source of axe-core."""
    return axe_core(tmp_path_factory.mktemp("axe"))


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Return a browser, without its own sandbox: as root, which CI is, that does not start."""
    with sync_playwright() as driver:
        made = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        expect.set_options(timeout=PATIENCE_MS)
        yield made
        made.close()


def patient(page: Page) -> Page:
    """Give a page the time that a busy machine takes; returns it."""
    page.set_default_timeout(PATIENCE_MS)
    return page


@contextmanager
def opened(browser: Browser, address: str) -> Iterator[Page]:
    """Yield a page that may log no error, show no dialog and ask no other host."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    page = patient(context.new_page())
    wrong: list[str] = []
    page.on("console", lambda said: wrong.append(said.text) if said.type == "error" else None)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("dialog", lambda dialog: (wrong.append(dialog.message), dialog.dismiss())[1])
    page.on(
        "request",
        lambda asked: wrong.append(asked.url) if not asked.url.startswith(address) else None,
    )
    yield page
    if wrong:  # the page says why, where the server refused it
        wrong.append(page.inner_text("body")[:SAID])
    context.close()
    assert not wrong, "\n".join(wrong)


@pytest.fixture
def page(browser: Browser, address: str) -> Iterator[Page]:
    """Return an open page of the root."""
    with opened(browser, address) as made:
        yield made


def follow(page: Page, link: Locator) -> None:
    """Click what leads to another page, and wait until that is there whole.

    A click returns as soon as the browser has taken it; what is counted or evaluated right after
    it is found on whichever page is there at that moment.
    """
    with page.expect_navigation():
        link.click()


def shot(page: Page, name: str) -> None:
    """Keep a picture of the whole page."""
    SHOTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=SHOTS / f"view-{name}.png", full_page=True, animations="disabled")


def fetched(address: str, path: str) -> str:
    with urllib.request.urlopen(address + path, timeout=60) as answer:
        return answer.read().decode()


def kind_of(path: str) -> str:
    """Return what kind of page a link leads to, '' for one that is not walked."""
    plain = path.split("?")[0].split("#")[0]
    if plain.startswith(("/static", "/sql")):
        return ""
    parts = plain.strip("/").split("/")
    return "/".join(part for index, part in enumerate(parts) if index not in (1, 3)) or "runs"


def test_every_number_of_every_page_is_what_its_sql_gives(root: Path, address: str):
    waiting, seen, counted = ["/"], {"/"}, dict[str, int]()
    with pools.connect(root) as con:
        while waiting:
            path = waiting.pop(0)
            text = fetched(address, path)
            counted[kind_of(path)] = counted.get(kind_of(path), 0) + 1
            held_against_sql(text, lambda sql: query(con, sql).to_dicts())
            for link in Pages(text).links:
                kind = kind_of(link) if link.startswith("/") else ""
                known = sum(kind_of(one) == kind for one in seen)
                if kind and link not in seen and known < OF_A_KIND:
                    seen.add(link)
                    waiting.append(link)
    ways = ("tasks", "heldout", "rejections", "suspects", "lineage")
    kinds = {"runs", *(f"runs/{way}" for way in ways)}
    assert counted.keys() >= kinds, counted
    assert counted["runs/tasks"] > 5 and counted["runs/traces"] > 5


class Person:
    """Somebody at the page of a run, who has two clicks or one search for a question."""

    def __init__(self, page: Page, start: str) -> None:
        """Open the page of the run."""
        self.page = page
        self.start = start
        self._left = 2

    def begin(self) -> None:
        """Go back to the page of the run for another question."""
        self.page.goto(self.start)
        self._left = 2

    def click(self, name: str | re.Pattern[str]) -> None:
        """Follow a link."""
        self.follow("a", name)

    def follow(self, css: str, name: str | re.Pattern[str] = "") -> None:
        """Follow the first link that fits."""
        assert self._left >= 1, "a third click"
        self._left -= 1
        found = self.page.locator(css)
        follow(self.page, (found.filter(has_text=name) if name else found).first)

    def search(self, words: str) -> None:
        """Search by the field at the top."""
        assert self._left == 2, "a search and a click"
        self._left = 0
        field = self.page.locator("#find")
        field.fill(words)
        with self.page.expect_navigation():
            field.press("Enter")

    def reads(self, *words: str | re.Pattern[str]) -> None:
        """See these words on the page."""
        for one in words:
            expect(self.page.get_by_text(one).first).to_be_visible()


def test_ten_questions_are_answered_in_two_clicks_or_one_search(
    page: Page, address: str, root: Path, run: str
):
    with pools.connect(root) as con:

        def one(sql: str) -> str:
            return str(query(con, f"SELECT {sql}").item())

        own = f"run_id = '{run}'"
        unused = one(f"min(task_id) FROM selections WHERE {own} AND NOT kept AND epoch > 0")
        failed = one(f"min(s.trace_id) FROM scores AS s WHERE {own} AND NOT success")
        failed_task = one(f"task_id FROM scores WHERE {own} AND trace_id = '{failed}'")
        last = one(f"max(epoch) FROM epochs WHERE {own}")
    person = Person(page, f"{address}/runs/{run}")

    def better() -> None:
        person.reads("Success on test tasks")
        expect(page.locator("[data-curve=test] canvas")).to_be_visible()

    def edge() -> None:
        person.reads("Success on new tasks", "the band around alpha")
        assert page.evaluate(OF_THE_BAND, "skill") > 1000 > page.evaluate(OF_THE_BAND, "in_band")

    def learned_from() -> None:
        person.follow("[data-panel=rows] td a", re.compile("^5$"))
        person.click("those that trained the agent")
        assert "epoch=5" in page.url and "used=agent" in page.url
        expect(page.get_by_role("heading", name="Task map")).to_be_visible()

    def solved_half_the_time() -> None:
        person.click("Task map")
        person.follow("[data-panel=tasks] td a")
        person.reads("What pi_env wrote", "Expected answer")

    def not_used() -> None:
        person.search(unused)
        person.reads("What the updates might use, and why")
        expect(page.locator("[data-panel=decisions] td").first).to_be_visible()

    def why_failed() -> None:
        person.search(failed_task)
        person.reads(re.compile("✗"), "expected")
        expect(page.locator(".attempt mark").first).to_be_visible()

    def unsure() -> None:
        person.search(failed)
        person.reads("Token by token")
        assert page.locator(".tok[title*='p = ']").count() > 0

    def refused() -> None:
        person.click("Rejections")
        person.reads("What was rejected, and why")
        expect(page.locator("[data-panel=reasons] td").first).to_be_visible()
        person.follow("[data-panel=by_epoch] td a")
        expect(page.locator("[data-panel=behind] td").first).to_be_visible()

    def rows_of_a_checkpoint() -> None:
        person.click("Lineage")
        person.follow(f"svg a[href$='/agent/{last}']")
        person.reads("Rows that the update trained on")

    def who_computed() -> None:
        expect(page.locator("#stages")).to_be_visible()
        assert page.locator("table.grid .state").count() > 9

    questions: list[Callable[[], None]] = [
        better, edge, learned_from, solved_half_the_time, not_used, why_failed, unsure, refused,
        rows_of_a_checkpoint, who_computed,
    ]  # fmt: skip
    assert len(questions) == 10
    for answered in questions:
        person.begin()
        answered()


def test_a_person_gets_from_the_runs_to_two_attempts_beside_each_other(
    page: Page, address: str, run: str
):
    page.goto(address)
    expect(page.locator("[data-tokens]").first).to_have_text(TOKENS)
    shot(page, "runs")
    follow(page, page.get_by_role("link", name=run, exact=True))
    expect(page.locator(".numbers div", has_text="tokens").last).to_contain_text(TOKENS)
    curves = page.locator("[data-curve] canvas")
    expect(curves.first).to_be_visible()
    assert curves.count() >= 4
    shot(page, "run")
    follow(page, page.get_by_role("link", name="Task map"))
    marks = page.locator("svg a .mark")
    assert marks.count() > 0
    shot(page, "tasks")
    follow(page, marks.first)
    expect(page.get_by_role("heading", name="What pi_env wrote")).to_be_visible()
    shot(page, "story")
    follow(page, page.locator(".attempt h3 a").first)
    page.get_by_label("beside").select_option(index=1)
    follow(page, page.get_by_role("button", name="Show"))
    expect(page.get_by_role("heading", name="Token by token")).to_have_count(2)
    shot(page, "traces")
    for way in ("heldout", "rejections", "suspects", "lineage", "checkpoints/agent/1"):
        page.goto(f"{address}/runs/{run}/{way}")
        shot(page, way.replace("/", "-"))


def test_tokens_are_chosen_and_words_found_by_keys(page: Page, address: str, root: Path, run: str):
    with pools.connect(root) as con:
        asked = f"SELECT min(trace_id) AS one FROM %s WHERE run_id = '{run}'"
        scored = query(con, asked % "trainer_logprobs")["one"].item()
        trace = scored or query(con, asked % "traces")["one"].item()
    page.goto(f"{address}/runs/{run}/traces/{trace}")
    page.locator(".tokens").focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    said = page.locator(".chosen[role=status]")
    expect(said).to_contain_text(re.compile(r"Token 2 of \d+: id \d+"))
    if scored:  # the trainer scored it again
        expect(said).to_contain_text("by the trainer")
    page.keyboard.press("Home")
    expect(said).to_contain_text("Token 1 of")
    field = page.locator("#within input")
    words = page.locator(".turn:not(.expected) .words").first.inner_text()[:12]
    field.fill(words.upper())
    expect(page.locator("#within [role=status]")).to_contain_text(re.compile(r"^1 of [1-9]"))
    field.fill("no attempt says this")
    expect(page.locator("#within [role=status]")).to_have_text("0 of 0")
    shot(page, "trace")


def test_keys_lead_to_the_search_and_to_the_next_task_and_attempt(
    page: Page, address: str, root: Path, run: str
):
    with pools.connect(root) as con:
        asked = f"SELECT min(task_id) AS one FROM scores WHERE run_id = '{run}'"
        task = query(con, asked)["one"].item()
    for place in (f"{address}/runs/{run}/tasks/{task}", "an attempt"):
        if place == "an attempt":
            follow(page, page.locator(".attempt h3 a").first)
        else:
            page.goto(place)
        first = page.url
        with page.expect_navigation():
            page.keyboard.press("j")
        assert page.url != first
        with page.expect_navigation():
            page.keyboard.press("k")
        assert page.url == first
    page.keyboard.press("/")
    expect(page.locator("#find")).to_be_focused()
    page.keyboard.type("j/k")
    expect(page.locator("#find")).to_have_value("j/k")
    assert page.url == first


def test_a_search_by_words_says_how_many_it_found(page: Page, address: str, root: Path, run: str):
    with pools.connect(root) as con:
        asked = "SELECT prompt FROM tasks WHERE prompt IS NOT NULL ORDER BY task_id DESC LIMIT 1"
        first, *_, last = query(con, asked)["prompt"].item().split()
    page.goto(f"{address}/runs/{run}")
    page.locator("#find").fill(f"{last.upper()} {first}")
    with page.expect_navigation():
        page.locator("#find").press("Enter")
    expect(page.locator("#hits")).to_contain_text(re.compile(r"^[1-9][0-9,]* hits? in "))
    expect(page.locator("[data-panel=found] td").first).to_be_visible()
    shot(page, "found")
    page.goto(f"{address}/find?q=zork+nowhere")
    expect(page.locator("#hits")).to_contain_text("Nothing has all of")


@pytest.mark.parametrize(
    "way", ["", "/tasks?epoch=2", "/rejections", "/lineage", "a task", "a trace", "the console"]
)
def test_the_keyboard_alone_reaches_everything(way: str, page: Page, address: str, run: str):
    page.goto(f"{address}/runs/{run}{way if way.startswith('/') else ''}")
    if way == "the console":
        page.goto(f"{address}/sql?q=SELECT+epoch,p_hat+FROM+epochs+ORDER+BY+1")
    if way in ("a task", "a trace"):
        page.goto(f"{address}/runs/{run}/tasks")
        follow(page, page.locator("[data-panel=tasks] td a").first)
    if way == "a trace":
        follow(page, page.locator(".attempt h3 a").first)
    count = page.evaluate(REACHABLE)
    assert count > 5
    reached: set[int] = set()
    for _ in range(count + 5):
        page.keyboard.press("Tab")
        index, seen = page.evaluate(FOCUSED)
        assert seen or index < 0, page.evaluate("document.activeElement.outerHTML")
        reached.add(index)
    radios = page.locator("input[type=radio]").count()  # one stop for all of a name
    missed = set(range(count)) - reached
    assert len(missed) <= max(0, radios - 1), [
        page.evaluate("(index) => window.reachable[index].outerHTML", one) for one in missed
    ]


def test_the_console_keeps_what_was_asked_and_draws_the_answer(page: Page, address: str):
    page.goto(address)
    for _ in range(12):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.textContent") == "SQL":
            break
    with page.expect_navigation(url=re.compile("/sql")):
        page.keyboard.press("Enter")
    page.locator("#sql").focus()
    asked = "SELECT epoch, count(*) AS attempts FROM traces GROUP BY epoch ORDER BY epoch"
    page.keyboard.type(asked)
    with page.expect_navigation():
        page.keyboard.press("Control+Enter")
    expect(page.locator("[data-panel=answer] td").first).to_be_visible()
    expect(page.locator("#asked a")).to_have_text([asked])
    page.locator("#keep input").fill("How many attempts?")
    page.keyboard.press("Enter")
    expect(page.locator("#kept a")).to_have_text(["How many attempts?"])
    page.get_by_text("Plot", exact=True).click()
    expect(page.locator("#plotting canvas")).to_be_visible()
    assert page.locator("#plotting [name=y]").input_value() == "attempts"
    shot(page, "console")
    follow(page, page.get_by_role("link", name="How did the tasks change?"))
    expect(page.locator("[data-panel=answer] td").first).to_be_visible()
    follow(page, page.get_by_role("link", name="How many attempts?"))
    expect(page.locator("#sql")).to_have_value(asked)
    page.get_by_role("button", name="remove How many attempts?").click()
    expect(page.locator("#kept")).to_be_hidden()
    page.get_by_role("button", name="forget these").click()
    expect(page.locator("#asked")).to_be_hidden()


def test_a_plot_has_every_row_of_its_last_place(page: Page, address: str):
    asked = (
        "SELECT e AS epoch, line, e + n AS value "
        "FROM range(1, 3) AS t(e), (VALUES ('a', 1), ('b', 2)) AS u(line, n)"
    )
    page.goto(f"{address}/sql?{urllib.parse.urlencode({'q': asked})}")
    page.get_by_text("Plot", exact=True).click()
    page.get_by_label("points only").check()
    for colour in COLOURS:
        assert page.evaluate(DRAWN, ["#plotting", colour, 0.8]) > 5, colour


@pytest.mark.parametrize("look", ["dark", "phone", "print"])
def test_pages_can_be_read_in_the_dark_on_a_phone_and_on_paper(
    look: str, page: Page, address: str, run: str
):
    if look == "phone":
        page.set_viewport_size({"width": 390, "height": 800})
    if look == "print":
        page.set_viewport_size({"width": PAPER_WIDTH, "height": 974})
    page.emulate_media(
        color_scheme="dark" if look == "dark" else "light",
        media="print" if look == "print" else "screen",
    )
    page.goto(f"{address}/runs/{run}/tasks?epoch=2")
    task = page.locator("[data-panel=tasks] td a").first.get_attribute("href") or ""
    ways = {
        "run": f"/runs/{run}", "tasks": f"/runs/{run}/tasks?epoch=2", "story": task,
        "lineage": f"/runs/{run}/lineage", "rejections": f"/runs/{run}/rejections",
        "suspects": f"/runs/{run}/suspects", "found": "/find?q=a",
        "console": "/sql?q=SELECT+epoch,p_hat,share_in_band,r_env_mean+FROM+epochs+ORDER+BY+epoch",
    }  # fmt: skip
    for name, way in ways.items():
        page.goto(address + way)
        if name == "run":
            expect(page.locator("[data-curve] canvas").first).to_be_visible()
        assert page.evaluate(WIDER) <= 0, name
        if name == "tasks":
            assert page.evaluate(CUT_DRAWINGS) == 0
        assert look != "print" or page.evaluate(BROKEN_NUMBERS) == 0, name
        shot(page, f"{name}-{look}")


def broken(page: Page, axe: str) -> list[str]:
    """Return what an open page breaks of WCAG on a desk and on a phone, in the light and the dark.

    Nothing but colours changes in the dark.
    """
    found = list[str]()
    for theme, width in (("light", 1400), ("light", 390), ("dark", 390), ("dark", 1400)):
        page.set_viewport_size({"width": width, "height": 900})
        page.emulate_media(color_scheme="dark" if theme == "dark" else "light")
        said = violations(page, axe, COLOURED if theme == "dark" else ())
        found += [f"{page.url}, {theme}, {width} px: {one}" for one in said]
    return found


def test_every_kind_of_page_keeps_wcag(
    browser: Browser, axe: str, address: str, root: Path, run: str
):
    page = patient(browser.new_page())  # that may log an error: two of these pages are errors
    with pools.connect(root) as con:
        own = f"WHERE run_id = '{run}'"
        failed = f"SELECT task_id, trace_id FROM scores {own} AND NOT success LIMIT 1"
        task, trace = query(con, failed).row(0)
        (other,) = query(con, f"SELECT max(trace_id) FROM scores {own}").row(0)
        held = f"SELECT task_id, family FROM tasks {own} AND source = 'test' LIMIT 1"
        held_task, family = query(con, held).row(0)
    ways = {
        "runs": "/", "run": f"/runs/{run}", "tasks": f"/runs/{run}/tasks", "console": "/sql",
        "story": f"/runs/{run}/tasks/{task}", "trace": f"/runs/{run}/traces/{trace}",
        "rejections": f"/runs/{run}/rejections", "suspects": f"/runs/{run}/suspects",
        "behind": f"/runs/{run}/rejections?reason=zero_signal&from=agent",
        "two traces": f"/runs/{run}/traces/{trace}?with={other}",
        "heldout": f"/runs/{run}/heldout?family={family}", "held": f"/runs/{run}/tasks/{held_task}",
        "lineage": f"/runs/{run}/lineage", "checkpoint": f"/runs/{run}/checkpoints/agent/1",
        "found": "/find?q=a", "nothing": "/find?q=zork", "error": "/runs/none",
        "answer": "/sql?q=SELECT+epoch,p_hat,seconds+FROM+epochs", "fault": "/sql?q=SELECT+none",
    }  # fmt: skip
    wrong = list[str]()
    for way in ways.values():
        page.goto(address + way)
        page.evaluate("document.querySelectorAll('details').forEach((one) => one.open = true)")
        wrong += broken(page, axe)
    page.close()
    assert not wrong, "\n".join(wrong)


def test_a_comparison_keeps_wcag(browser: Browser, axe: str, tmp_path: Path):
    store = LocalStore(tmp_path / "root")
    for place, run in enumerate(("tiny-one", "tiny-two")):
        play(store, run, {epoch: tasks([0.1, 0.5 + 0.1 * epoch]) for epoch in (0, 1)}, seed=place)
    wrong = list[str]()
    with served(store.root, tmp_path / "view.log") as address, opened(browser, address) as page:
        for way in ("", "?run=tiny-one&run=tiny-two", "?run=tiny-one&run=tiny-two&by=arm"):
            page.goto(f"{address}/compare{way}")
            wrong += broken(page, axe)
    assert wrong == []


def test_the_report_keeps_wcag(browser: Browser, axe: str, root: Path, run: str, tmp_path: Path):
    done = genenv("report", run, "--root", str(root), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    with opened(browser, "file://") as page:
        page.goto((tmp_path / "report.html").as_uri())
        assert broken(page, axe) == []


AT_THE_SIDE = """(region) => {
  const [box, cell] = [region, region.querySelector('tbody tr > :not(.choose)')]
    .map((one) => one.getBoundingClientRect());
  const style = getComputedStyle(region.querySelector('tbody tr > :not(.choose)'));
  return [cell.left - box.left, style.boxShadow !== 'none', region.scrollLeft];
}"""
"""Where the first cell of a table stands in its region, whether it casts a shadow, and how far the
region is scrolled."""

HIGH = """() => [...document.querySelectorAll('.wide tr')].map((row) =>
  [row.getBoundingClientRect().height, row.textContent.trim().slice(0, 80)]
).filter(([height]) => height > 40)"""
"""Finds rows of tables that are higher than a line and what a button needs."""

PHONE: ViewportSize = {"width": 390, "height": 800}


def darkness(page: Page, region: Locator, right: int) -> int:
    """Return how much darker than paper the last pixels of a region are, below its words."""
    box = region.bounding_box()
    assert box
    left, low = box["x"] + box["width"] - right, box["y"] + box["height"] - 3
    data = page.screenshot(clip={"x": left, "y": low, "width": right, "height": 2})
    return 255 - min(Image.open(io.BytesIO(data)).convert("L").tobytes())


def at_its_end(page: Page, region: Locator) -> tuple[float, float]:
    """Scroll a region to its end, where the shadow changes sides with a later frame.

    Returns where its first cell stands, and how far it is scrolled.
    """
    region.evaluate("(one) => one.scrollTo(one.scrollWidth, 0)")
    until(lambda: region.evaluate(AT_THE_SIDE)[1])
    until(lambda: darkness(page, region, 3) < 8)
    place, _, scrolled = region.evaluate(AT_THE_SIDE)
    return place, scrolled


def test_on_a_phone_the_first_column_stays_and_a_shadow_says_that_a_table_goes_on(
    page: Page, address: str, run: str
):
    page.set_viewport_size(PHONE)
    for way, panel in (
        ("/", "runs"), (f"/runs/{run}", "rows"), (f"/runs/{run}", "stages"),
        (f"/runs/{run}/tasks", "tasks"), (f"/runs/{run}/heldout", "heldout"),
        (f"/runs/{run}/rejections", "reasons"),
    ):  # fmt: skip
        page.goto(address + way)
        region = page.locator(f".wide:has([data-panel={panel}])")
        region.scroll_into_view_if_needed()
        assert darkness(page, region, 3) > 8, panel
        place, shadow, _ = region.evaluate(AT_THE_SIDE)
        assert not shadow, panel
        first = place if panel == "runs" else 0  # a box to choose the run goes before it
        place, scrolled = at_its_end(page, region)
        assert scrolled > 20, panel
        assert 0 <= place <= first and place < 1, panel


def test_on_a_phone_rows_are_a_line_high_and_results_come_first(page: Page, address: str, run: str):
    page.set_viewport_size(PHONE)
    ways = ("", "/tasks", "/heldout", "/rejections", "/lineage")
    for way in ("/", *(f"/runs/{run}{way}" for way in ways)):
        page.goto(address + way)
        assert page.evaluate(HIGH) == [], way
        if way == "/":
            box = page.locator("[data-panel=runs] [data-column=gain]").bounding_box()
            assert box and box["x"] + box["width"] <= PHONE["width"]
            columns = page.locator("[data-panel=runs] [data-column]").all_inner_texts()
            assert columns.index("gain") < columns.index("domain") < columns.index("seed")
        if way == "/tasks":
            assert page.evaluate(CUT_DRAWINGS) == 0


@pytest.mark.parametrize("clipboard", [True, False])
def test_what_is_cut_is_copied_whole_by_the_keyboard(
    clipboard: bool, browser: Browser, address: str, run: str
):
    page = patient(browser.new_page())
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    if not clipboard:  # as for a page of another host, over plain HTTP
        page.add_init_script("delete Navigator.prototype.clipboard")
    page.goto(f"{address}/runs/{run}/lineage")
    digest = page.locator("[data-panel=checkpoints] .id").first
    whole = digest.locator("[title]").get_attribute("title") or ""
    assert re.fullmatch("[0-9a-f]{64}", whole)
    expect(digest).to_have_text(whole[:8])
    digest.locator("a").focus()
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page.get_by_role("status")).to_have_text(f"copied {whole}")
    assert page.evaluate("document.activeElement.value") == whole
    page.locator("#find").focus()
    page.keyboard.press("Control+V")
    expect(page.locator("#find")).to_have_value(whole)
    page.close()


def test_runs_are_chosen_and_compared(browser: Browser, tmp_path: Path):
    store = LocalStore(tmp_path / "root")
    values = [0.1, 0.4, 0.7]
    epochs = {epoch: tasks([value + 0.05 * epoch for value in values]) for epoch in range(4)}
    for place, run in enumerate(("tiny-one", "tiny-two")):  # one line lies on the other
        play(store, run, epochs, seed=place)
    with served(store.root, tmp_path / "view.log") as address, opened(browser, address) as page:
        page.goto(f"{address}/compare")
        for box in page.locator("input[type=checkbox]").all():
            box.check()
        follow(page, page.get_by_role("button", name="Compare the chosen runs"))
        answer = "[data-curve=answer]"
        expect(page.locator(f"{answer} canvas")).to_be_visible()
        for colour in COLOURS:
            assert page.evaluate(DRAWN, [answer, colour, 0]) > 40, colour
        assert page.evaluate(OF_THE_BAND, "skill") > 1000 > page.evaluate(OF_THE_BAND, "answer")
        read = page.locator(f"{answer} .readout")
        expect(read).to_contain_text("epoch 3")
        expect(read.locator("output").first).to_have_text(
            re.compile(r"^0\.550 \(change \+0\.150 to \+0\.150\)$")
        )
        page.locator(f"{answer} .u-over").hover(position={"x": 2, "y": 50})
        expect(read).to_contain_text("epoch 0")
        expect(read.locator("output").first).to_have_text("0.400")
        expect(page.locator("[data-panel=results] th a").nth(1)).to_have_text("…two")
        shot(page, "compare")
        with pools.connect(store.root) as con:
            assert held_against_sql(page.content(), lambda sql: query(con, sql).to_dicts()) > 2
        page.get_by_label("a line an arm, the mean").check()
        follow(page, page.get_by_role("button", name="Show"))
        expect(page.locator(".legend")).to_contain_text("genenv 2 runs")
        for look in ("phone", "print", "dark"):
            sizes = {"phone": 390, "print": PAPER_WIDTH, "dark": 1280}
            page.set_viewport_size({"width": sizes[look], "height": 800})
            page.emulate_media(
                color_scheme="dark" if look == "dark" else "light",
                media="print" if look == "print" else "screen",
            )
            for by in ("run", "arm"):
                page.goto(f"{address}/compare?run=tiny-one&run=tiny-two&by={by}")
                assert page.evaluate(WIDER) <= 0, (look, by)
                assert look != "print" or page.evaluate(BROKEN_NUMBERS) == 0, by
                shot(page, f"compare-{by}-{look}")


def test_the_list_of_runs_says_how_much_is_wrong_with_those_in_sight(
    browser: Browser, tmp_path: Path
):
    store = LocalStore(tmp_path / "root")
    for place in range(30):
        play(store, f"run-{place:02d}", {0: tasks([0.9, 0.8, 0.7]), 1: tasks([0.1, 0.2, 0.3])})
    with (
        served(tmp_path / "root", tmp_path / "view.log") as address,
        opened(browser, address) as page,
    ):
        asked = list[str]()
        page.on("request", lambda one: asked.append(one.url) if "/findings" in one.url else None)
        page.goto(address)
        cell = page.locator("[data-findings] a").first
        expect(cell).to_have_text(re.compile(r"^\d+ (warnings?|failures?)"))
        assert (cell.get_attribute("title") or "").startswith("epoch 1: ")
        in_sight = page.evaluate(CELLS_IN_SIGHT)
        filled = page.locator("[data-findings]:not(:empty)")
        expect(filled).to_have_count(in_sight)
        assert len(set(asked)) == in_sight < 30
        shot(page, "runs-findings")
        page.locator("[data-findings]").last.scroll_into_view_if_needed()
        expect(page.locator("[data-findings]").last).not_to_be_empty(timeout=60_000)
        cell.scroll_into_view_if_needed()
        follow(page, cell)
        assert page.url.endswith("#findings")
        expect(page.locator("#findings li").first).to_be_visible()


def test_a_page_renews_itself_while_a_run_is_at_work(browser: Browser, tmp_path: Path):
    store = LocalStore(tmp_path / "root")
    log = RunLog(store, "run-a")
    log.open({"arm": "genenv", "domain": {"name": "desk"}, "seed": 0, "epochs": 9}, START)
    for epoch in range(3):
        commit_epoch(store, log, epoch)
    begun = {"stage": "rollout", "epoch": 3, "stage_key": "k", "state": "running"}
    where = {"run_id": "run-a", "host": "h", "pid": os.getpid(), "started_at": START}
    attempt = log.begin(StageAttempt.model_validate({**begun, **where}))
    with (
        served(tmp_path / "root", tmp_path / "view.log") as address,
        opened(browser, address) as page,
    ):
        page.goto(f"{address}/runs/run-a")
        expect(page.get_by_text("at work")).to_be_visible()
        page.get_by_text("All settings").click()
        commit_epoch(store, log, 3)
        expect(page.locator("#main")).to_have_attribute("data-epochs", "3")
        expect(page.locator("main pre", has_text="domain:")).to_be_visible()  # it stays open
        log.end(attempt.model_copy(update={"state": "computed", "seconds": 1.0}))
        expect(page.get_by_text("Nothing is at work")).to_be_visible(timeout=60_000)
        expect(page.locator("main pre", has_text="domain:")).to_be_visible()
        log.begin(StageAttempt.model_validate({**begun, **where, "stage": "score"}))
        # A gap between two stages is not the end.
        expect(page.get_by_text("score of epoch 3")).to_be_visible(timeout=60_000)


def test_nothing_that_somebody_wrote_is_carried_out(browser: Browser, tmp_path: Path):
    hostile_root(tmp_path / "root")
    with (
        served(tmp_path / "root", tmp_path / "view.log") as address,
        opened(browser, address) as page,
    ):
        page.goto(address)
        shot(page, "hostile-runs")
        assert page.get_by_role("link", name=RUN_NAMES[0]).count() == 1
        page.goto(f"{address}/runs/run-a/tasks")
        follow(page, page.locator("[data-panel=tasks] td a").first)
        assert page.evaluate(WIDER) <= 0
        shot(page, "hostile-story")
        follow(page, page.locator(".attempt h3 a").first)
        expect(page.get_by_role("heading", name="Token by token")).to_be_visible()
        page.goto(f"{address}/runs/run-a/rejections")
        page.goto(f"{address}/find?q=%3Cscript%3E")
        expect(page.get_by_text("<script>alert(document.domain)</script>").first).to_be_visible()
