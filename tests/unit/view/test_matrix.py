"""Rejections and suspects by reason and epoch, and the rows behind each number.

Invariants: a number of the matrix leads to as many rows; a share that is not nothing is not called
0%; the question of the suspects is asked while their page is on its way.
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from markupsafe import escape
from starlette.requests import Request
from starlette.testclient import TestClient

from flows.view.pages import rejected
from flows.view.reading import Panel, Reader
from flows.view.shown import LONGEST, linked
from genenv_core.storage.sql.catalog import query
from genenv_core.storage.store.local import LocalStore
from genenv_core.types import Rejection
from schemas.enums import SelectionReason
from tests.mutations import mutation
from tests.unit.builders_root import small_root
from tests.unit.view.reading_pages import Pages, held_against_sql, tables

REJECTED = "flows/view/pages/rejected.py"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a root with one run."""
    place = tmp_path_factory.mktemp("matrix") / "root"
    small_root(place)
    return place


@mutation(
    "the rows behind a rejection are of every update", REJECTED,
    "AND s.update = {text(kept_from)} ", "AND s.update <> 'none' ",
)  # fmt: skip
@mutation(
    "the rows behind a rejection are of every reason", REJECTED,
    "AND rejection = {text(reason)}{when.format('')}\\n", "{when.format('')}\\n",
)  # fmt: skip
@mutation(
    "the rows behind a rejection are of every epoch", REJECTED,
    'when = "" if epoch is None else f" AND {{}}epoch = {epoch}"', 'when = ""',
)  # fmt: skip
@mutation(
    "the rows behind a suspect are of every epoch", REJECTED,
    'when = "" if epoch is None else f" AND epoch = {epoch}"', 'when = ""',
)  # fmt: skip
@pytest.mark.parametrize(
    ("way", "asked"),
    [
        (
            "rejections",
            "SELECT kept_from, rejection AS reason, epoch, rejections AS rows FROM rejections",
        ),
        ("suspects", "SELECT '', reason, epoch, count(*) AS rows FROM suspects GROUP BY ALL"),
    ],
)
def test_a_number_leads_to_as_many_rows(way: str, asked: str, client: TestClient, pool):
    page = client.get(f"/runs/run-a/{way}").text
    links = set(Pages(page).links)
    counts = query(pool, asked).rows()
    assert len(counts) > 2
    for kept_from, reason, epoch, rows in counts:
        link = f"/runs/run-a/{way}?reason={reason}&epoch={epoch}&from={kept_from}"
        assert link in links
        behind = client.get(link).text
        (shown,) = (one for one in tables(behind) if one.name == "behind")
        assert len(shown.rows) == rows, link
        assert f">{rows} row{'' if rows == 1 else 's'}" in behind
        assert held_against_sql(behind, lambda sql: query(pool, sql).to_dicts()) == 1


def test_a_reason_leads_to_its_rows_of_all_epochs(client: TestClient, pool):
    links = Pages(client.get("/runs/run-a/rejections").text).links
    link = "/runs/run-a/rejections?reason=unparseable&from=tasks"
    assert link in links
    text = client.get(link).text
    (shown,) = (one for one in tables(text) if one.name == "behind")
    rows = query(pool, "SELECT epoch FROM tasks WHERE rejection = 'unparseable'").height
    assert len(shown.rows) == rows == 2
    assert "unparseable of all epochs" in text


@mutation(
    "a page does not say that it lists the first rows alone", "flows/view/templates/behind.html.j2",
    "{% if all > rows.rows | length %}", "{% if false %}",
)  # fmt: skip
def test_rows_behind_a_number_are_limited_and_counted(
    client: TestClient, pool, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(rejected, "LISTED", 1)
    text = client.get("/runs/run-a/rejections?reason=unparseable&from=tasks").text
    assert '<p id="hits">2 rows, 25% of what was decided about. The first 1 are listed.' in text


def test_a_reason_that_nothing_has_gives_no_rows(client: TestClient):
    for way in ("rejections", "suspects"):
        answer = client.get(f"/runs/run-a/{way}", params={"reason": "<b>", "epoch": 1})
        assert answer.status_code == 200 and "<b>" not in answer.text
        assert '<p id="hits">0 rows.' in answer.text


def test_no_column_repeats_a_number_in_every_row(client: TestClient):
    assert "with this reason" not in client.get("/runs/run-a/suspects").text


@mutation(
    "suspects are asked for before their page begins", REJECTED,
    'lambda: Matrix.of(reader.panel("by_epoch", "Suspects", sql), "suspects")',
    '(lambda one: lambda: one)(Matrix.of(reader.panel("by_epoch", "", sql), "suspects"))',
)  # fmt: skip
def test_suspects_are_asked_for_while_their_page_is_on_its_way(root: Path):
    reader = Reader(LocalStore(root))
    asked: list[str] = []
    panel = reader.panel
    reader.panel = lambda name, *rest: asked.append(name) or panel(name, *rest)  # type: ignore
    try:
        for query_params, value in (({}, "matrix"), ({"reason": "by_chance"}, "behind")):
            request = SimpleNamespace(path_params={"run": "run-a"}, query_params=query_params)
            page = rejected.suspects(reader, cast(Request, request))
            assert page.streams and asked == ["run"]
            cast(Any, page.values[value])()
            assert len(asked) == 2
            asked.clear()
    finally:
        reader.close()


@mutation("a small share is called nothing", REJECTED, "part < SMALL", "part < 0")
@pytest.mark.parametrize(
    ("part", "words", "width"),
    [
        (None, "", ""),
        (0.0, "0%", ""),
        (0.004, "<1%", "w0"),
        (0.006, "1%", "w0"),
        (0.54, "54%", "w5"),
        (1.0, "100%", "w10"),
    ],
)
def test_a_share_has_words_and_a_bar(part: float | None, words: str, width: str):
    assert (rejected.share(part), rejected.bar(part)) == (words, width)


def test_every_bar_has_a_length_in_the_style_sheet():
    sheet = (Path(rejected.__file__).parents[1] / "static" / "view.css").read_text()
    for tenths in range(rejected.BARS + 1):
        assert f".matrix td.{rejected.bar(max(tenths, 0.1) / rejected.BARS)} {{" in sheet


def test_each_reason_of_a_suspect_has_its_meaning(client: TestClient):
    meaning = rejected._meaning("suspects", "reason")
    assert {"near_duplicate", "flaw", "by_chance", "constant_answer", "bimodal"} <= meaning.keys()
    assert meaning["by_chance"] == "one and the same text succeeded and failed on it."
    assert meaning["flaw"].endswith("`generation.guard` was off.")


def test_each_reason_of_a_rejection_has_its_meaning(client: TestClient):
    meaning = rejected._meaning("rejections", "rejection")
    decided = {SelectionReason.KEPT, SelectionReason.INVALID_TASK, SelectionReason.NOT_ATTEMPTED}
    assert meaning.keys() == {*Rejection} | ({*SelectionReason} - decided)
    assert meaning["truncated"] == "the text reached the limit of tokens before its end."
    page = client.get("/runs/run-a/rejections").text
    assert f"<code>unparseable</code>: {escape(meaning['unparseable'])}" in page
    assert "<code>accepts_canary</code>" not in page, "nothing was rejected for it"
    behind = client.get("/runs/run-a/rejections?reason=unparseable&from=tasks").text
    assert f"{escape(meaning['unparseable'])} Missing from tasks" in behind


@mutation(
    "tasks within words have no links", "flows/view/shown.py",
    "if column == WORDS and run and", "if False and",
)  # fmt: skip
def test_a_task_within_words_is_a_link():
    task = "t000003-f628b418-0000012"
    said = linked(f"same words as {task} <b>", "detail", "run a")
    link = f'<a href="/runs/run%20a/tasks/{task}">{task}</a>'
    assert said == f"same words as {link} &lt;b&gt;"
    for other in (f"trace {task}.0001", "nothing"):
        assert linked(other, "detail", "run a") == other
    assert "<a" not in linked(task, "text", "run a")
    assert linked(f"same words as {task}.", "detail", "run a").endswith("</a>.")
    cut = f"{'x' * (LONGEST - len(task))} {task}"
    assert "<a" not in linked(cut, "detail", "run a"), "the cut id would be that of another task"
    assert linked("f" * 64, "detail", "run a") == linked("f" * 64, "digest", "run a")


@mutation(
    "the sums of a matrix are of one reason", REJECTED,
    "total[self.counted] += row[self.counted]", "total[self.counted] = row[self.counted]",
)  # fmt: skip
def test_reasons_of_a_group_add_up_by_epoch_where_there_are_several():
    rows = [
        {"kept_from": group, "reason": reason, "epoch": epoch, "rejections": count, "share": part}
        for group, reason, epoch, count, part in (
            ("tasks", "unparseable", 1, 4, 0.04),
            ("tasks", "unparseable", 2, 3, 0.03),
            ("tasks", "duplicate", 1, 2, 0.02),
            ("agent", "zero_signal", 1, 7, 0.5),
        )
    ]
    panel = Panel("by_epoch", "By epoch", "", rows, list(rows[0]))
    matrix = rejected.Matrix.of(panel, "rejections")
    assert matrix.totals("tasks") == {
        1: {"rejections": 6, "share": pytest.approx(0.06)},
        2: {"rejections": 3, "share": pytest.approx(0.03)},
    }
    assert matrix.totals("agent") == {}
