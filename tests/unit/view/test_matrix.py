"""Rejections and suspects by reason and epoch, and the rows behind each number.

Invariants: a number of the matrix leads to as many rows; a share that is not nothing is not called
0%.
"""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from markupsafe import escape
from starlette.testclient import TestClient

from flows.view.app import application
from flows.view.pages import rejected
from flows.view.reading import Panel
from flows.view.shown import LONGEST, linked
from genenv_core.storage.sql.catalog import query
from genenv_core.storage.sql.sandbox import Answer
from genenv_core.types import Rejection
from schemas.enums import SelectionReason
from tests.mutations import mutation
from tests.unit import builders_root
from tests.unit.builders_root import rows_of, small_root
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
        pytest.param(
            "rejections",
            "SELECT kept_from, rejection AS reason, epoch, rejections AS rows FROM rejections",
            marks=pytest.mark.slow,
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
    "a page has the first rows of a long table alone", "flows/view/templates/parts.html.j2",
    "panel.rows[begin:begin + rows]", "panel.rows[:rows]",
)  # fmt: skip
@mutation(
    "a page forgets what else was asked for", "flows/view/reading.py",
    "return {**self.asked, ROW: str(max(0, row))}", "return {ROW: str(max(0, row))}",
)  # fmt: skip
def test_rows_behind_a_number_are_counted_and_come_page_by_page(
    client: TestClient, pool, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(rejected, "LISTED", 1)
    place = "/runs/run-a/rejections"
    asked = "reason=unparseable&from=tasks"
    first, second, beyond = (
        client.get(f"{place}?{asked}{more}").text for more in ("", "&row=1", "&row=7")
    )
    said = '<p id="hits">2 rows, 25% of what was decided about.'
    assert said in first and said in second
    assert "rows 1 to 1 of 2" in first and "rows 2 to 2 of 2" in second
    assert "there are 2 rows only" in beyond
    listed = [row for text in (first, second, beyond) for row in _rows(text)]
    wanted = "SELECT epoch, task_id FROM tasks WHERE rejection = 'unparseable' ORDER BY ALL"
    assert [row[0] for row in listed] == [str(row[0]) for row in query(pool, wanted).rows()]
    assert Pages(first).links.count(f"?{asked}&row=1") == 1 and f"?{asked}&row=0" not in first
    assert f"?{asked}&row=0" in Pages(second).links
    assert client.get(f"{place}?{asked}&row=x").status_code == 400


def _rows(text: str) -> list[list[str]]:
    """Return the rows that a page lists behind a number."""
    return [row for one in tables(text) if one.name == "behind" for row in one.rows]


@mutation(
    "an epoch without a rejection has an empty cell", "flows/view/templates/matrix.html.j2",
    '<td class="n soft">0</td>{% endif %}{% endfor %}</tr>\n{% endfor %}',
    "<td></td>{% endif %}{% endfor %}</tr>\n{% endfor %}",
)  # fmt: skip
@pytest.mark.slow
def test_nothing_is_a_zero(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def once(table: str, epoch: int) -> pl.DataFrame:
        frame = rows_of(table, epoch)
        if table != "tasks" or epoch != 2:
            return frame
        return frame.filter(pl.col("rejection").ne_missing("unparseable"))

    monkeypatch.setattr(builders_root, "rows_of", once)
    store = small_root(tmp_path / "root")
    with TestClient(application(store), base_url="http://localhost") as browser:
        text = browser.get("/runs/run-a/rejections").text
    (counts,) = (one for one in tables(text) if one.name == "by_epoch")
    cells = [cell for row in counts.rows for cell in row]
    assert "0" in cells and "" not in cells


@mutation(
    "a suspect does not show the earlier task", REJECTED, "o.prompt AS earlier_text", "NULL AS more"
)
@mutation(
    "columns that no row fills are listed", "flows/view/pages/__init__.py",
    "if name in known])", "])",
)  # fmt: skip
@pytest.mark.slow
def test_a_task_with_the_words_of_an_earlier_one_stands_beside_it(
    client: TestClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    ids = {"task-1-0": "t000001-0123abcd-0000000", "task-2-0": "t000002-0123abcd-0000000"}

    def again(table: str, epoch: int) -> pl.DataFrame:
        frame = rows_of(table, epoch)
        if table != "tasks" or not epoch:
            return frame
        words = ["buy bolts please"] if epoch == 1 else ["please buy bolts"]
        first = frame.filter(pl.col("valid"))[0].with_columns(
            task_id=pl.lit(ids[f"task-{epoch}-0"]), prompt=pl.Series(words)
        )
        return first

    monkeypatch.setattr(builders_root, "rows_of", again)
    store = small_root(tmp_path / "root")
    with TestClient(application(store), base_url="http://localhost") as browser:
        text = browser.get("/runs/run-a/suspects?reason=near_duplicate").text
    (behind,) = (one for one in tables(text) if one.name == "behind")
    (row,) = behind.rows
    said = dict(zip(behind.columns, row, strict=True))
    assert said["text"] == "please buy bolts" and said["earlier_text"] == "buy bolts please"
    assert ids["task-1-0"] in said["detail"]
    text = client.get("/runs/run-a/suspects?reason=by_chance").text
    assert _rows(text) and "earlier text" not in text


def test_a_reason_that_nothing_has_gives_no_rows(client: TestClient):
    for way in ("rejections", "suspects"):
        answer = client.get(f"/runs/run-a/{way}", params={"reason": "<b>", "epoch": 1})
        assert answer.status_code == 200 and "<b>" not in answer.text
        assert '<p id="hits">0 rows.' in answer.text


def test_no_column_repeats_a_number_in_every_row(client: TestClient):
    assert "with this reason" not in client.get("/runs/run-a/suspects").text


@mutation(
    "an epoch without a rejection has no column", REJECTED,
    "between = list(range(min(epochs, default=0), max(epochs, default=-1) + 1))",
    "between = sorted(epochs)",
)  # fmt: skip
def test_an_epoch_of_which_nothing_was_refused_has_its_column():
    rows = [{"epoch": epoch, "reason": "flaw", "suspects": 1, "share": 0.5} for epoch in (2, 5)]
    found = rejected.Matrix.of(Panel.of("", "", "", Answer(pl.DataFrame(rows), False)), "suspects")
    assert found.epochs == [2, 3, 4, 5]
    none = rejected.Matrix.of(Panel.of("", "", "", Answer(pl.DataFrame(), False)), "suspects")
    assert none.epochs == []


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


@mutation(
    "the page of a suspect does not say what its number counts", REJECTED,
    'return f"{meaning} Its value: {value} {listed}"', "return meaning",
)  # fmt: skip
def test_the_page_of_a_suspect_says_what_its_number_counts(client: TestClient):
    meaning, value = (rejected._meaning("suspects", name) for name in ("reason", "value"))
    assert meaning.keys() == value.keys()
    assert value["near_duplicate"] == "how many earlier tasks have these words."
    text = client.get("/runs/run-a/suspects?reason=by_chance").text
    above = text[: text.index('<p id="hits">')]
    assert f"{escape(meaning['by_chance'])} Its value: always 1. A row is listed where" in above


def test_each_reason_of_a_rejection_has_its_meaning(client: TestClient):
    meaning = rejected._meaning("rejections", "rejection")
    no_rejection = {
        SelectionReason.KEPT, SelectionReason.INVALID_TASK, SelectionReason.NOT_ATTEMPTED,
        SelectionReason.NOT_IN_UPDATE,
    }  # fmt: skip
    assert meaning.keys() == {*Rejection} | ({*SelectionReason} - no_rejection)
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
