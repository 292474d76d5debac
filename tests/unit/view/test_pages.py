"""The pages of `genenv view`.

Invariants: every number of a table is what its SQL gives; a page shows what a run has written since
the last one; texts of models are text; whatever an address holds, the answer is a page that says
what is wrong, and the next one works.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from datetime import UTC, datetime
from functools import cache
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import quote

import polars as pl
import pytest
from starlette.testclient import TestClient

from flows.view import reading
from flows.view.app import application
from flows.view.pages import console
from flows.view.pages.run import renewed_s
from flows.view.pages.runs import LATER, line_of
from flows.view.shown import shown
from genenv_core.evidence import beginning
from genenv_core.pools import Answer, connect
from genenv_core.storage.records.runs import RunLog, StageAttempt
from genenv_core.storage.sql.catalog import query
from genenv_core.storage.sql.sources import open_tables
from genenv_core.storage.store.local import LocalStore
from schemas.relations import describe
from tests.examples import some
from tests.mutations import mutation
from tests.unit import builders_root
from tests.unit.builders_root import START, commit_epoch, fill, rows_of, small_root
from tests.unit.builders_runs import write_stage
from tests.unit.view.reading_pages import Pages, held_against_sql, tables

pytestmark = pytest.mark.slow

TASK, TRACE = "e0001-t000000", "e0001-g000000-s0000"
PAGES = {
    "runs": "/",
    "filtered": "/?q=run-a+desk",
    "compared": "/compare?run=run-a&run=run-b",
    "arms": "/compare?run=run-a&run=run-b&by=arm",
    "arms and settings": "/compare?run=run-a&run=run-b&by=settings",
    "run": "/runs/run-a",
    "tasks": "/runs/run-a/tasks",
    "tasks of an update": "/runs/run-a/tasks?epoch=1&used=agent&by=family&sort=p_hat",
    "test tasks": "/runs/run-a/heldout",
    "test tasks of a family": "/runs/run-a/heldout?family=k1",
    "story": f"/runs/run-a/tasks/{TASK}",
    "a held-out task": "/runs/run-a/tasks/e0000-test-000000",
    "trace": f"/runs/run-a/traces/{TRACE}",
    "two traces": f"/runs/run-a/traces/{TRACE}?with=e0001-g000000-s0001",
    "rejections": "/runs/run-a/rejections",
    "suspects": "/runs/run-a/suspects",
    "lineage": "/runs/run-a/lineage",
    "checkpoint": "/runs/run-a/checkpoints/agent/1",
    "checkpoint of pi_env": "/runs/run-a/checkpoints/env/1",
    "search": "/find?q=bolts",
    "rejected": "/runs/run-a/rejections?reason=unparseable&epoch=1&from=tasks",
    "suspected": "/runs/run-a/suspects?reason=by_chance",
    "console": "/sql?q=SELECT+*+FROM+epochs",
}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a root with two runs."""
    place = tmp_path_factory.mktemp("view") / "root"
    fill(small_root(place), "run-b")
    return place


def test_the_ids_of_these_tests_are_there(pool):
    found = query(pool, f"SELECT 1 FROM traces WHERE trace_id = '{TRACE}' AND run_id = 'run-a'")
    assert found.height == 1


@pytest.fixture(scope="module")
def answered(client: TestClient) -> Callable[[str], Any]:
    """Return what gives the answer of an address, asked for once."""
    return cache(client.get)


@pytest.mark.parametrize("name", PAGES)
def test_every_number_is_what_its_sql_gives(name: str, answered: Callable[[str], Any], pool):
    answer = answered(PAGES[name])
    assert answer.status_code == 200, answer.text
    assert held_against_sql(answer.text, lambda sql: query(pool, sql).to_dicts()) > 0


IDS = re.compile(r"^/runs/([^/]+)/(?:tasks|traces)/([^/?]+)(?:\?with=(.+))?$")


def kind(link: str) -> str:
    """Return a link without the numbers of its ids and its epoch."""
    without = re.sub(r"(?<=/)e\d{4}-[^/?]+", lambda found: re.sub(r"\d+", "N", found[0]), link)
    return re.sub(r"(?<=epoch=)\d+", "N", without)


@pytest.fixture(scope="module")
def visited() -> set[str]:
    """Return the links that were followed already."""
    return set()


@pytest.fixture(scope="module")
def known(pool) -> set[tuple[str, str]]:
    """Return run and id of each task and each attempt."""
    ids = "SELECT run_id, task_id FROM tasks UNION SELECT run_id, trace_id FROM traces"
    return set(query(pool, ids).iter_rows())


@pytest.mark.parametrize("name", PAGES)
def test_every_link_leads_to_a_page(
    name: str, answered: Callable[[str], Any], visited: set[str], known: set[tuple[str, str]]
):
    """A page's first new link of each kind is followed; the ids in all are those of the tables."""
    kinds = set[str]()
    links = {link for link in Pages(answered(PAGES[name]).text).links if link.startswith("/")}
    # Questions for the console are those of the tables, which another test asks.
    for link in sorted(link for link in links if not link.startswith("/sql?")):
        if found := IDS.match(link):
            run, *ids = found.groups()
            assert {(run, one) for one in ids if one} <= known, link
        if link not in visited and kind(link) not in kinds:
            visited.add(link)
            kinds.add(kind(link))
            assert answered(link).status_code == 200, link


def test_the_list_of_runs_begins_at_the_agent_before_any_update(client: TestClient):
    (listed, *_) = tables(client.get("/").text)
    columns = [name for name in listed.columns if name not in LATER]
    first = dict(zip(columns, listed.rows[0][1:], strict=True))
    assert (first["start → last"], first["measure"]) == ("0.250 → 0.250", "P(answer)")


@mutation(
    "the list of runs shows a column that no run fills", "flows/view/pages/runs.py",
    "if name in filled or name in LATER", "if True",
)  # fmt: skip
@mutation(
    "the list of runs has the ends of an interval the wrong way round",
    "genenv_core/report/outcome.py",
    """[{signed(row['gain_low'])}, {signed(row['gain_high'])}]""",
    """[{signed(row['gain_high'])}, {signed(row['gain_low'])}]""",
)  # fmt: skip
def test_a_line_of_the_list_says_what_a_run_came_to(client: TestClient):
    row = {
        "gain": 0.217, "gain_low": -0.0196, "gain_high": 0.238, "start": 0.49, "value": 0.7064,
        "measure": "answer_probability", "p_hat": 0.459, "alpha": 0.5, "share_signal": 0.619,
        "seconds": 752.1, "epochs": 11, "planned": 12, "arm": "genenv", "domain": "desk", "seed": 0,
        "tags": ["a", "b"], "note": "", "pinned": False, "tokens": 1_234_567,
        "started_at": datetime(2026, 11, 24, 4, 5, 6, tzinfo=UTC),
    }  # fmt: skip
    said = {name: text for name, text in line_of(row).items() if text}
    assert said == {
        "gain": "+0.217", "interval": "[−0.020, +0.238]", "measure": "P(answer)",
        "start → last": "0.490 → 0.706", "p_hat (α)": "0.46 (0.5)", "signal": "62%",
        "time": "12.5 min", "tokens": "1.23 M", "epochs": "11 of 12",
        "arm": "genenv", "domain": "desk", "seed": "0",
        "tags": "a, b", "started": "2026-11-24 04:05",
    }  # fmt: skip
    (listed, *_) = tables(client.get("/").text)
    assert "pinned" not in listed.columns and "arm" in listed.columns


def test_the_run_whose_ids_are_searched_for_opens(client: TestClient):
    for asked, place in (
        ("run-b", "/runs/run-b"),
        (TASK, f"/tasks/{TASK}"),
        (TRACE, f"/traces/{TRACE}"),
    ):
        answer = client.get("/find", params={"q": asked}, follow_redirects=False)
        assert answer.status_code == 303
        assert answer.headers["location"].endswith(place)


def test_a_run_is_found_whatever_its_name_holds(tmp_path: Path):
    store = small_root(tmp_path / "root", "a?b#c")
    with TestClient(application(store), base_url="http://localhost") as browser:
        answer = browser.get("/find", params={"q": "a?b#c"}, follow_redirects=False)
        assert answer.headers["location"] == "/runs/a%3Fb%23c"


def test_the_words_of_a_search_stay_in_its_field(client: TestClient):
    assert (
        'placeholder="Find an id, or words of a task" value="bolts"'
        in client.get("/find?q=bolts").text
    )


def test_a_setting_that_one_run_leaves_open_is_a_difference(tmp_path: Path):
    store = LocalStore(tmp_path / "root")
    for name, most in (("setting", None), ("SETTING", 5)):
        config = {"arm": "genenv", "domain": {"name": "desk"}, "seed": 0, "epochs": 1}
        RunLog(store, name).open(config | {"most": most}, START)
    with TestClient(application(store), base_url="http://localhost") as browser:
        text = browser.get("/compare?run=setting&run=SETTING").text
    found = next(one for one in tables(text) if one.name == "differences")
    assert found.rows == [["most", "null", "5"]]


def test_an_attempt_that_nobody_judged_yet_is_not_called_failed(tmp_path: Path, monkeypatch):
    def unjudged(table: str, epoch: int) -> pl.DataFrame:
        frame = rows_of(table, epoch)
        return frame.clear() if table in ("scores", "benchmark_items") else frame

    monkeypatch.setattr(builders_root, "rows_of", unjudged)
    store = small_root(tmp_path / "root")
    with TestClient(application(store), base_url="http://localhost") as browser:
        for path in (PAGES["story"], PAGES["trace"]):
            text = browser.get(path).text
            assert "not judged" in text and "failed" not in text, path


def test_attempts_of_a_measurement_have_its_verdict_on_both_pages(tmp_path: Path, monkeypatch):
    def measured(table: str, epoch: int) -> pl.DataFrame:
        frame = rows_of(table, epoch)
        if table == "benchmark_items":
            return frame.with_columns(valid=pl.lit(True), score=pl.lit(1.0), reason=pl.lit(""))
        return frame.clear() if table == "scores" else frame

    monkeypatch.setattr(builders_root, "rows_of", measured)
    store = small_root(tmp_path / "root")
    with TestClient(application(store), base_url="http://localhost") as browser:
        for path, solved in ((PAGES["story"], "✓ solved"), (PAGES["trace"], "(solved)")):
            text = browser.get(path).text
            assert solved in text and "not judged" not in text, path


def test_a_row_leads_back_to_the_checkpoints_that_it_made(client: TestClient, pool):
    asked = "SELECT row_id, epoch FROM lineage WHERE policy = 'agent' AND run_id = 'run-a' LIMIT 1"
    row = query(pool, asked).to_dicts()[0]
    links = Pages(client.get(f"/runs/run-a/traces/{row['row_id']}").text).links
    assert f"/runs/run-a/checkpoints/agent/{row['epoch']}" in links


@mutation(
    "no table says what its columns are", "flows/view/templates/parts.html.j2",
    "{{ as_words(panel, panel.columns, words) }}", "",
)  # fmt: skip
def test_a_table_says_what_its_columns_are(client: TestClient):
    text = unescape(client.get(PAGES["story"]).text)
    (scores,) = [one for one in describe() if one.name == "task_scores"]
    (n,) = [column.description for column in scores.columns if column.name == "successes"]
    assert f"<dt>successes</dt><dd>{n}</dd>" in text


@mutation(
    "facts are described that are not shown", "flows/view/templates/parts.html.j2",
    "{{ as_words(panel, known) }}", "{{ as_words(panel, columns) }}",
)  # fmt: skip
def test_a_list_of_facts_describes_those_that_it_shows(client: TestClient):
    text = client.get("/runs/run-a").text
    assert "<div><dt>arm</dt><dd>" in text and "<div><dt>note</dt><dd>" not in text


@mutation(
    "the page keeps what is wrong with tasks to itself", "genenv_core/report/outcome.html.j2",
    "{% if outcome.recent %}", "{% if false %}",
)  # fmt: skip
def test_a_run_whose_tasks_are_alike_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def noted(table: str, epoch: int) -> pl.DataFrame:
        frame = rows_of(table, epoch)
        note = pl.lit("epoch 2: all <alike>" if epoch == 2 else "")
        return frame.with_columns(tasks_note=note) if table == "epochs" else frame

    plain = small_root(tmp_path / "plain")
    monkeypatch.setattr(builders_root, "rows_of", noted)
    for store, said in ((plain, 0), (small_root(tmp_path / "noted"), 1)):
        with TestClient(application(store), base_url="http://127.0.0.1:4300") as client:
            page = client.get("/runs/run-a").text
        assert page.count("all &lt;alike&gt;") == said


@mutation(
    "a family is held against another epoch than is said", "flows/view/pages/heldout.py",
    "AND s.epoch = {since}", "AND s.epoch = 1",
)  # fmt: skip
@mutation(
    "test tasks are of the newest epoch, whatever was asked", "flows/view/pages/heldout.py",
    'epoch = _chosen(request, "epoch", measured, newest["epoch"])', 'epoch = newest["epoch"]',
)  # fmt: skip
@mutation(
    "families are of an earlier epoch", "flows/view/pages/heldout.py",
    "n.epoch = {'NULL' if epoch is None else epoch}", "n.epoch = 1",
)  # fmt: skip
def test_test_tasks_by_family_since_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def learned(table: str, epoch: int) -> pl.DataFrame:
        frame = rows_of(table, epoch)
        place = pl.col("task_id").str.slice(-1).cast(pl.Int64)
        if table == "tasks":
            return frame.with_columns(
                family=pl.when(source="test").then(pl.format("k{}", place % 2)).otherwise("family")
            )
        if table == "evaluations":
            p = pl.when(mode="sampled").then(0.25 + 0.125 * epoch * (place % 2))
            return frame.with_columns(answer_probability=p)
        return frame

    monkeypatch.setattr(builders_root, "rows_of", learned)
    store = small_root(tmp_path / "root")
    with TestClient(application(store), base_url="http://localhost") as browser:
        text = browser.get("/runs/run-a").text
        assert "/runs/run-a/heldout?family=k1" in Pages(text).links
        of_one, of_all = (
            browser.get(f"/runs/run-a/heldout{asked}").text for asked in ("?family=k1", "")
        )
        between = browser.get("/runs/run-a/heldout?since=0&epoch=1").text
        back = browser.get("/runs/run-a/heldout?since=1&epoch=0").text
        wrong = browser.get("/runs/run-a/heldout?since=7")
    (families,) = [one for one in tables(text) if one.name == "families"]
    assert [row[:7] for row in families.rows] == [
        ["k0", "2", "answer_probability", "2", "0.250", "0.250", "0"],
        ["k1", "2", "answer_probability", "2", "0.250", "0.500", "0.250"],
    ]
    found = [
        next(one for one in tables(page) if one.name == "heldout").rows for page in (of_one, of_all)
    ]
    assert [[(row[4], row[1]) for row in rows] for rows in found] == [
        [("k1", "0.250")] * 2,
        [("k0", "0")] * 2 + [("k1", "0.250")] * 2,
    ]  # the least gain first
    assert "probability of the answer with the agents of epochs 0 and 2" in of_one
    assert not [one for one in tables(of_one) if one.name == "families"]
    (families,) = [one for one in tables(between) if one.name == "families"]
    assert [(row[0], row[1], row[6]) for row in families.rows] == [
        ("k0", "1", "0"), ("k1", "1", "0.125"),
    ]  # fmt: skip
    (families,) = [one for one in tables(back) if one.name == "families"]
    assert [(row[0], row[1], row[6]) for row in families.rows] == [
        ("k1", "0", "-0.125"), ("k0", "0", "0"),
    ]  # fmt: skip
    assert "with the agents of epochs 0 and 1" in between
    assert "/runs/run-a/heldout?since=0&epoch=1&family=k1" in Pages(between).links
    assert wrong.status_code == 400
    assert "since=7: test tasks were measured after epochs 0 to 2" in wrong.text


@mutation(
    "the page that is open is not marked among those of its run",
    "flows/view/templates/parts.html.j2", 'path.endswith("/" ~ way)', "false",
)  # fmt: skip
@mutation(
    "a run that is not there has pages", "flows/view/templates/error.html.j2",
    "{% block ways %}{% endblock %}\n", "",
)  # fmt: skip
def test_pages_of_a_run_lead_to_one_another(client: TestClient):
    ways = [f"/runs/run-a/{way}" for way in ("tasks", "heldout", "rejections", "suspects")]
    for path in ("/runs/run-a", *ways):
        text = client.get(path).text
        assert set(ways) <= set(Pages(text).links)
        assert text.count('aria-current="page"') == (path in ways)
    missing = client.get("/runs/nope/tasks")
    assert missing.status_code == 404 and "/runs/nope/heldout" not in missing.text


@mutation(
    "a task that all attempts solved is one that some solved", "flows/view/pages/tasks.py",
    "successes BETWEEN 1 AND n - 1", "successes BETWEEN 1 AND n",
)  # fmt: skip
@mutation(
    "success of a place is the mean over all its epochs", "flows/view/pages/tasks.py",
    'f"FROM (\\n{chosen}\\n)\\nGROUP BY ALL ORDER BY ALL"',
    'f"FROM (\\n{chosen} OR true\\n)\\nGROUP BY ALL ORDER BY ALL"',
)  # fmt: skip
@pytest.mark.parametrize("by", ["difficulty", "family"])
def test_the_map_has_the_success_of_each_place(
    by: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def with_one_solved(table: str, epoch: int) -> pl.DataFrame:
        frame = rows_of(table, epoch)
        if table != "task_scores":
            return frame
        first = pl.int_range(pl.len()) == 0
        solved = pl.when(first).then("n").otherwise("successes")
        return frame.with_columns(successes=solved, p_hat=solved / pl.col("n"))

    monkeypatch.setattr(builders_root, "rows_of", with_one_solved)
    store = small_root(tmp_path / "root")
    with TestClient(application(store), base_url="http://localhost") as browser:
        text = browser.get(f"/runs/run-a/tasks?epoch=1&by={by}").text
    (means,) = [one for one in tables(text) if one.name == "means"]
    with open_tables(store, ["run-a"]) as pool:
        rows = query(
            pool,
            "SELECT t.difficulty, t.family, g.successes, g.n FROM task_scores AS g JOIN tasks AS t "
            "USING (run_id, task_id) WHERE g.epoch = 1 AND g.source <> 'base'",
        ).rows(named=True)
    assert {row["successes"] == row["n"] for row in rows} == {True, False}
    expected = list[list[str]]()
    for place in sorted({row[by] for row in rows}):
        here = [row for row in rows if row[by] == place]
        solved = sum(row["successes"] for row in here) / sum(row["n"] for row in here)
        some = sum(0 < row["successes"] < row["n"] for row in here) / len(here)
        many = str(len(here)), str(sum(row["n"] for row in here))
        expected.append([shown(place), *many, shown(solved), shown(some)])
    assert [
        [row[0] if by == "family" else shown(float(row[0])), *row[1:]] for row in means.rows
    ] == (expected)


@mutation(
    "the cost of a group counts those without signal", "flows/view/pages/run.py",
    "AND epoch > 0 AND NOT zero_signal", "AND epoch > 0",
)  # fmt: skip
@mutation(
    "the cost in all counts the rows of an update twice", "flows/view/pages/run.py",
    "FILTER (NOT ends_with(stage, '_update'))", "",
)  # fmt: skip
@mutation(
    "the cost of a group counts what is measured", "flows/view/pages/run.py",
    "FROM stages WHERE stage <> 'evaluate' HAVING", "FROM stages HAVING",
)  # fmt: skip
def test_a_run_says_what_a_group_with_signal_costs(tmp_path: Path):
    store = small_root(tmp_path / "root")
    ended = {"run_id": "run-a", "epoch": 1, "stage_key": "k", "host": "h", "pid": 1}
    ended |= {"state": "computed", "started_at": START}
    for stage, seconds in (("rollout", 8.0), ("grpo_update", 4.0), ("evaluate", 9.0)):
        attempt = StageAttempt.model_validate({**ended, "stage": stage, "seconds": seconds})
        RunLog(store, "run-a").end(RunLog(store, "run-a").begin(attempt))
    with connect(store.root) as pool:
        groups = query(
            pool,
            "SELECT count(*) FILTER (NOT zero_signal) AS groups FROM task_scores "
            "WHERE run_id = 'run-a' AND epoch > 0",
        ).item()
        asked = "SELECT tokens FROM cost WHERE run_id = 'run-a' AND epoch = 1 ORDER BY stage"
        tested, drawn, sampled = query(pool, asked)["tokens"]
    with TestClient(application(store), base_url="http://localhost") as browser:
        text = browser.get("/runs/run-a").text
    (found,) = [one for one in tables(text) if one.name == "cost"]
    assert groups and drawn and tested
    assert found.rows == [
        [stage, *map(shown, (seconds, seconds / groups, tokens, tokens / groups))]
        for stage, seconds, tokens in (
            ("evaluate", 9.0, tested), ("rollout", 8.0, sampled), ("grpo_update", 4.0, drawn),
            ("all but evaluate", 12.0, sampled),
        )
    ]  # fmt: skip


@mutation(
    "a note counts as something wrong in the list of runs", "flows/view/pages/runs.py",
    'COUNTED = {"failure": "failures", "warning": "warnings"}',
    'COUNTED = {"failure": "failures", "warning": "warnings", "note": "notes"}',
)  # fmt: skip
@mutation(
    "what was wrong long ago counts as of now in the list of runs", "flows/view/pages/runs.py",
    "for one in said.recent if", "for one in said.findings if",
)  # fmt: skip
def test_the_list_of_runs_counts_what_is_wrong_now(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def noted(table: str, epoch: int) -> pl.DataFrame:
        frame = rows_of(table, epoch)
        if table != "epochs":
            return frame
        note = "epoch 1: 2 different requests" if epoch == 1 else ""
        skipped = pl.lit("skipped" if epoch == 4 else "updated")
        return frame.with_columns(tasks_note=pl.lit(note), agent_action=skipped)

    asked = list[str]()
    panel = reading.Reader.panel
    monkeypatch.setattr(
        reading.Reader, "panel", lambda self, *said: asked.append(said[0]) or panel(self, *said)
    )
    monkeypatch.setattr(builders_root, "rows_of", noted)
    store = small_root(tmp_path / "root", epochs=4)
    with TestClient(application(store), base_url="http://localhost") as browser:
        page = browser.get("/runs/run-a").text
        asked.clear()
        listed = browser.get("/").text
        assert "findings" not in asked  # it waits for nothing that passes over all attempts
        assert '<td class="s" data-findings="run-a"></td>' in listed
        answer = browser.get("/runs/run-a/findings")
        assert browser.get("/runs/none/findings").status_code == 404
    now, earlier = page.split("more in earlier epochs")
    assert '<li class="note">' in now and "different requests" in earlier
    count = now.count('<li class="warning">')
    assert count > 1 and answer.json()["words"] == f"{count} warnings"
    assert answer.json()["first"] in page
    assert answer.headers["cache-control"] == "private, max-age=60"


@mutation(
    "a page looks no more once a stage has ended", "flows/view/pages/run.py",
    "RESTING_S if unfinished else 0", "0",
)  # fmt: skip
@mutation(
    "the page does not say how far a stage is", "flows/view/pages/run.py",
    '"words": progress.get((row["epoch"], row["stage"]), "")', '"words": ""',
)  # fmt: skip
@mutation(
    "what pi_env wrote first is not said", "genenv_core/evidence/beginning.py",
    "for epoch in (0, 1))", "for epoch in (0, 0))",
)  # fmt: skip
def test_a_page_says_how_far_a_stage_is_and_what_bootstrap_reached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(beginning, "doing", lambda *_: "3 of <8> groups")
    store = small_root(tmp_path / "root")
    warm = {"warm_starts": {"env": {"steps": 5, "steps_planned": 9, "loss": 1.0}}}
    texts = {"summary": {"tasks_generated": 4, "tasks_valid": 3}}
    for epoch, stage, facts in ((0, "bootstrap", warm), (1, "publish", texts)):
        made = write_stage(store, stage, epoch, tables={}, facts=facts)
        RunLog(store, "run-a").note_key(epoch, stage, made.key)
    begun = {"stage": "rollout", "epoch": 2, "stage_key": "k", "state": "running"}
    where = {"run_id": "run-a", "host": "h", "pid": 1, "started_at": START}
    RunLog(store, "run-a").begin(StageAttempt.model_validate({**begun, **where}))
    with TestClient(application(store), base_url="http://localhost") as browser:
        page = browser.get("/runs/run-a").text
    assert re.search(
        r"<b>at work</b> rollout of epoch 2 for [\d.]+ h: 3 of &lt;8&gt; groups</p>", page
    )
    assert 'data-live="5"' in page  # it renews itself
    assert [renewed_s(*one) for one in ((True, True), (False, True), (False, False))] == [5, 10, 0]
    assert re.search(
        r'<td><span class="state running"[^>]*>running</span> <span class="soft"></span>', page
    )
    assert "<li>pi_env: 5 of 9 steps, loss 1.000</li>" in page
    assert "<li>pi_env wrote 4 texts in epoch 1, 3 of them valid (75%)</li>" in page


@mutation(
    "pages show the tables of when the view began", "flows/view/reading.py",
    "            if session and seen == self._seen:\n",
    "            if session is not None and session.alive:\n",
)  # fmt: skip
def test_a_page_shows_what_was_written_since(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(reading, "FRESH_S", 0.0)
    store = small_root(tmp_path / "root", epochs=3)
    shutil.rmtree(tmp_path / "root" / "runs" / "run-a")
    log = RunLog(store, "run-a")
    config = {"arm": "genenv", "domain": {"name": "desk"}, "seed": 0, "epochs": 3}
    log.open(config, START)
    commit_epoch(store, log, 1)
    with TestClient(application(store), base_url="http://localhost") as browser:
        assert [row[0] for row in epochs(browser)] == ["1"]
        commit_epoch(store, log, 2)
        assert [row[0] for row in epochs(browser)] == ["1", "2"]


def epochs(browser: TestClient) -> list[list[str]]:
    """Return the rows of the epochs on a run's page."""
    text = browser.get("/runs/run-a").text
    return next(one.rows for one in tables(text) if one.name == "rows")


HOSTILE = [
    "<script>alert(1)</script>",
    "'; DROP TABLE tasks; --",
    "' OR '1'='1",
    "../../etc/passwd",
    "%2e%2e%2f%2e%2e%2f",
    "\x00",
    "\udcff".encode("utf-8", "surrogatepass").decode("latin-1"),
    "A" * 20_000,
    "{{ 7 * 7 }}",
    "${7*7}",
    "\r\nset-cookie: a=b",
    "🦆" * 50,
    "a/b?c#d",
    '"><img src=x onerror=alert(1)>',
    "SELECT * FROM read_csv('/etc/passwd')",
    "9" * 5000,
]
PLACES = [
    "/runs/{}",
    "/runs/run-a/tasks/{}",
    "/runs/run-a/traces/{}",
    "/runs/run-a/traces/" + TRACE + "?with={}",
    "/runs/run-a/tasks?epoch={}",
    "/runs/run-a/tasks?by={}",
    "/runs/run-a/checkpoints/agent/{}",
    "/runs/run-a/tasks?q={}",
    "/find?q={}",
    "/runs/run-a/heldout?split={}",
    "/runs/run-a/heldout?family={}",
    "/runs/run-a/rejections?reason={}",
    "/runs/run-a/rejections?reason=below_band&from={}",
    "/runs/run-a/suspects?reason=by_chance&epoch={}",
    "/?q={}",
    "/sql?q={}",
    "/sql?q=SELECT+1&as={}",
    "/compare?run=run-a&run={}",
    "/{}",
]


@mutation(
    "what an address holds is markup", "genenv_core/report/page.py",
    "        autoescape=True,\n", "        autoescape=False,\n",
)  # fmt: skip
@pytest.mark.parametrize("place", some(PLACES, ("/runs/{}", "/find?q={}", "/sql?q={}")))
def test_hostile_addresses_are_answered_with_a_page(
    place: str, client: TestClient, monkeypatch: pytest.MonkeyPatch
):
    # The console's process is the same code; test_hostile starts one for each of its questions.
    monkeypatch.setattr(reading.Reader, "apart", lambda reader, sql, limits, run: reader.ask(sql))
    for text in HOSTILE:
        answer = client.get(place.replace("{}", quote(text, safe="")))
        assert answer.status_code in (200, 400, 404), (place, text[:60], answer.status_code)
        assert "<script>alert" not in answer.text
        assert "<img src=x" not in answer.text
        assert "root:x:0" not in answer.text
        assert "Traceback" not in answer.text
        assert "set-cookie" not in answer.headers
    assert client.get("/").status_code == 200


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        ("SELEC 1", "syntax error"),
        ("FROM nowhere", "no table or view"),
        ("COPY tasks TO '/tmp/x'", ""),
        ("ATTACH '/tmp/x.db'", ""),
        ("SELECT * FROM read_text('/etc/passwd')", ""),
        ("SELECT 1; SELECT 2", ""),
    ],
)
def test_the_console_says_what_is_wrong_with_a_question(sql: str, words: str, client: TestClient):
    answer = client.get("/sql", params={"q": sql})
    assert answer.status_code == 400
    assert 'role="alert"' in answer.text
    assert words in answer.text.lower()


@mutation(
    "a page breaks the line of a wrong question", "flows/view/static/view.css",
    "pre.place { white-space: pre;", "pre.place { white-space: pre-wrap;",
)  # fmt: skip
@mutation(
    "a page shows the place of an error as words", "flows/view/templates/parts.html.j2",
    '<pre class="place" tabindex="0">{{ said[2] }}</pre>', "{{ said[2] }}",
)  # fmt: skip
@pytest.mark.parametrize("asked", [{}, {"as": "csv"}], ids=["answer", "download"])
def test_the_caret_stands_under_the_place_of_an_error(asked: dict[str, str], client: TestClient):
    answer = client.get("/sql", params={"q": "SELECT 1 FRM x", **asked})
    line = "line 1: SELECT 1 FRM x"
    assert f'tabindex="0">{line}\n{" " * line.index("x")}^</pre>' in answer.text
    sheet = client.get("/static/view.css").text
    assert "pre.place { white-space: pre; overflow-x: auto; }" in sheet


@mutation(
    "the console says nothing of an answer without rows", "flows/view/templates/console.html.j2",
    "{% if panel is not none %}", "{% if panel is not none and panel.rows %}",
)  # fmt: skip
@pytest.mark.parametrize(("n", "words"), [(0, "0 rows"), (1, "1 row"), (2, "2 rows")])
def test_the_console_says_how_many_rows_an_answer_has(n: int, words: str, client: TestClient):
    answer = client.get("/sql", params={"q": f"SELECT 1 AS a FROM range({n})"})
    assert f'id="answered">{words}</p>' in answer.text
    assert client.get("/sql").text.count('id="answered"') == 0


@mutation(
    "the console does not say why an answer is empty", "flows/view/pages/console.py",
    '"error": error, "remark": remark,', '"error": error, "remark": "",',
)  # fmt: skip
@mutation(
    "the page of the console hides why an answer is empty", "flows/view/templates/console.html.j2",
    "{% if remark %}: {{ remark | visible }}{% endif %}", "",
)  # fmt: skip
def test_the_console_says_why_an_answer_is_empty(client: TestClient, monkeypatch):
    said = Answer(pl.DataFrame({"a": []}), False, "no run here has rows in influence")
    monkeypatch.setattr(reading, "ask", lambda found, sql, limits: said)
    answer = client.get("/sql", params={"q": "FROM influence"})
    assert 'id="answered">0 rows: no run here has rows in influence</p>' in answer.text


@mutation(
    "the console asks all runs instead of the one", "flows/view/reading.py",
    "run = run or self._run", "run = self._run",
)  # fmt: skip
def test_the_console_asks_the_rows_of_one_run(client: TestClient, pool):
    (run, *others) = query(pool, "SELECT run_id FROM runs ORDER BY run_id")["run_id"]
    assert others and f'href="/sql?run={run}"' in client.get(f"/runs/{run}").text
    asked = {"q": "SELECT run_id FROM runs", "run": run}
    text = client.get("/sql", params=asked).text
    assert 'id="answered">1 row</p>' in text and f"<option selected>{run}</option>" in text
    assert f"&amp;run={run}" in text  # the ready questions keep it
    kept = client.get("/sql", params={**asked, "as": "json"}).json()
    assert [row["run_id"] for row in kept] == [run]
    assert client.get("/sql", params={**asked, "run": "nobody"}).status_code == 404


@mutation(
    "a download looks at every run of the root", "flows/view/pages/console.py",
    "(wrong := unknown_run(reader.store, run))",
    '(wrong := "" if run in list_runs(reader.store) else run)',
)  # fmt: skip
def test_the_console_lists_the_runs_for_its_box_alone(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
):
    listed = list[LocalStore]()
    monkeypatch.setattr(console, "list_runs", lambda store: listed.append(store) or ["run-a"])
    for run, kind in (("", "json"), ("run-a", "json"), ("run-a", "")):
        asked = {"q": "SELECT 1 AS one", "run": run, "as": kind}
        assert client.get("/sql", params=asked).status_code == 200
        assert len(listed) == (not kind)


@pytest.mark.parametrize("kind", ["csv", "json", "parquet"])
def test_an_answer_can_be_kept(kind: str, client: TestClient):
    answer = client.get("/sql", params={"q": "SELECT 1 AS one", "as": kind})
    assert answer.status_code == 200
    assert f"answer.{kind}" in answer.headers["content-disposition"]
    assert answer.content
