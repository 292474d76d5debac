"""The task map and the lineage, as the pages of `genenv view` draw and list them.

Invariants: a whole difficulty is a whole number; the map says what a circle is; what never changes
is said once and is no column; a digest is short, and its title has the whole.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from starlette.testclient import TestClient

from flows.view.app import application
from flows.view.pages import tasks
from flows.view.pages.tasks import LETTER, _map, _step
from flows.view.reading import Panel
from flows.view.shown import DIGITS, brief, named
from genenv_core.storage.sql.sandbox import Answer
from tests.mutations import mutation
from tests.unit import builders_root
from tests.unit.builders_root import rows_of, small_root
from tests.unit.view.reading_pages import tables

TASKS = "flows/view/pages/tasks.py"
DIGEST = "0123456789abcdef" * 4


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """Return a browser of a run with long digests."""

    def long(table: str, epoch: int) -> pl.DataFrame:
        frame = rows_of(table, epoch)
        if table != "checkpoints":
            return frame
        return frame.with_columns(digest=pl.lit(DIGEST), parent_digest=pl.lit(DIGEST))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(builders_root, "rows_of", long)
        store = small_root(tmp_path_factory.mktemp("drawings") / "root")
    with TestClient(application(store), base_url="http://localhost") as made:
        yield made


def panel(rows: list[dict[str, Any]]) -> Panel:
    return Panel.of("tasks", "", "", Answer(pl.DataFrame(rows), False))


def points(*difficulties: float) -> Panel:
    """Return tasks of these difficulties."""
    return panel(
        [
            {
                "task_id": f"t{n}", "epoch": 1, "family": "k1", "difficulty": difficulty,
                "successes": 4, "n": 8, "p_hat": 0.5,
            }
            for n, difficulty in enumerate(difficulties)
        ]
    )  # fmt: skip


@mutation(
    "whole difficulties have ticks between them", TASKS,
    "if not only_whole or one.is_integer()", "if not only_whole or True",
)  # fmt: skip
@mutation(
    "a whole difficulty of the map is no whole number", TASKS,
    "difficulty {whole(row['difficulty'])}", "difficulty {row['difficulty']:.2f}",
)  # fmt: skip
@pytest.mark.parametrize(
    ("difficulties", "labels"),
    [
        ((1.0, 2.0, 4.0), ["1", "2", "3", "4"]),
        ((1.0, 1.5), ["1", "1.05", "1.1", "1.15", "1.2", "1.25", "1.3", "1.35", "1.4", "1.45",
                      "1.5"]),
        ((3.0,), ["3"]),
    ],
)  # fmt: skip
def test_the_axis_of_difficulties(difficulties: tuple[float, ...], labels: list[str]):
    settings = panel([{"alpha": 0.5, "k_min": 0.1}])
    drawn = _map(points(*difficulties), None, "difficulty", settings)
    assert [label for _, label in drawn["ticks"]] == labels
    assert drawn["marks"][0].label.endswith(f"difficulty {difficulties[0]:.0f}")


@mutation(
    "a task without the number has a place", TASKS,
    "for row in chosen if row[column] is not None", "for row in chosen",
)  # fmt: skip
def test_the_map_by_similarity_leaves_out_what_has_none():
    settings = panel([{"alpha": 0.5, "k_min": 0.1}])
    rows = [row | {"similarity": None} for row in points(1.0, 2.0, 3.0)]
    rows[0]["similarity"], rows[2]["similarity"] = 0.4, 0.8
    drawn = _map(panel(rows), None, "similarity", settings)
    assert [mark.task_id for mark in drawn["marks"]] == ["t0", "t2"] and drawn["unplaced"]
    assert [label for _, label in drawn["ticks"]][::4] == ["0.4", "0.6", "0.8"]
    older = _map(panel([row | {"similarity": None} for row in rows]), None, "similarity", settings)
    assert (older["marks"], older["ticks"], older["unplaced"]) == ([], [], True)
    assert not _map(panel(rows), None, "difficulty", settings)["unplaced"]


@pytest.mark.parametrize("most", [pytest.param(tasks.POINTS, marks=pytest.mark.slow), 1])
def test_each_column_of_the_map_has_its_words(
    client: TestClient, monkeypatch: pytest.MonkeyPatch, most: int
):
    monkeypatch.setattr(tasks, "POINTS", most)
    for by, words in tasks.BY.items():
        answer = client.get(f"/runs/run-a/tasks?by={by}")
        assert answer.status_code == 200
        assert f">{words}</text>" in answer.text and answer.text.count("<circle") >= 2


@mutation(
    "labels of a phone lie over each other", TASKS, "(widest + 1) * LETTER", "(widest + 1) * 1",
)  # fmt: skip
def test_labels_have_room_on_a_phone():
    assert _step([(0.0, "k1")] * 6) == 1
    step = _step([(0.0, "a long family")] * 12)
    assert 14 * LETTER * 12 / step <= tasks.WIDTH - tasks.LEFT
    assert _step([]) == 1


@mutation(
    "a heap of circles leaves its place", TASKS, "if down * gap <= room[1]:", "if True:",
)  # fmt: skip
@mutation(
    "two heaps of many attempts touch", TASKS,
    "min(CLUSTER[1], (HEIGHT - TOP - BOTTOM - 2 * PAD) / levels)", "CLUSTER[1]",
)  # fmt: skip
@pytest.mark.parametrize(("count", "n"), [(1, 8), (7, 8), (100, 8), (900, 8), (3, 64), (40, 64)])
def test_heaps_never_touch(count: int, n: int):
    rows = [
        row | {"task_id": f"{solved}-{row['task_id']}", "n": n, "p_hat": solved / n}
        for solved in (0, 1, n - 1, n)
        for row in points(*[2.0] * count)
    ]
    marks = _map(panel(rows), None, "difficulty", panel([{"alpha": 0.5, "k_min": 0.1}]))["marks"]
    of = {
        solved: [mark for mark in marks if mark.task_id.startswith(f"{solved}-")]
        for solved in (0, 1, n - 1, n)
    }
    heights = {
        solved: (min(m.y - m.size for m in some), max(m.y + m.size for m in some))
        for solved, some in of.items()
    }
    assert heights[1][1] <= heights[0][0] and heights[n][1] <= heights[n - 1][0]
    assert heights[n][0] >= tasks.TOP and heights[0][1] <= tasks.HEIGHT - tasks.BOTTOM
    for some in of.values():
        assert len({(round(m.x, 3), round(m.y, 3)) for m in some}) == count


def test_the_whole_map_is_on_a_phone():
    sheet = (Path(tasks.__file__).parents[1] / "static" / "view.css").read_text()
    assert ".drawing svg { min-width" not in sheet


@mutation(
    "base tasks that trained the agent are of every epoch", TASKS,
    'when = "" if epoch is None else f" AND epoch = {epoch}"\n    return (',
    'when = ""\n    return (',
)  # fmt: skip
@pytest.mark.slow
def test_the_map_of_what_trained_the_agent_leads_to_the_base_tasks(client: TestClient):
    assert "have no place here" not in client.get("/runs/run-a/tasks").text
    for epoch, attempts in ((1, 4), (2, 8)):  # the second update used those of the first again
        text = client.get(f"/runs/run-a/tasks?used=agent&epoch={epoch}").text
        (place,) = re.findall(r'have no place here: <a href="([^"]+)"', text)
        link = {"sec-fetch-site": "same-origin"}
        answer = tables(client.get(unescape(place), headers=link).text)
        (rows,) = [one.rows for one in answer if one.name == "answer"]
        assert sum(int(row[1]) for row in rows) == attempts


def test_the_map_says_what_a_circle_is(client: TestClient, monkeypatch: pytest.MonkeyPatch):
    text = client.get("/runs/run-a/tasks").text
    assert "A circle is a task: from left to right its difficulty" in text
    assert "smaller circles where they are many" in text
    monkeypatch.setattr(tasks, "POINTS", 1)
    assert "is as large as they are many" in client.get("/runs/run-a/tasks").text


@mutation(
    "an empty map is drawn",
    "flows/view/templates/tasks.html.j2",
    "{% if map.marks %}",
    "{% if true %}",
)
@pytest.mark.slow
def test_an_empty_map_says_why(client: TestClient, tmp_path: Path, monkeypatch):
    text = client.get("/runs/run-a/tasks?q=zork").text
    assert "<svg viewBox" not in text and "no task fits the choice" in text

    def unlike(table: str, epoch: int) -> pl.DataFrame:
        frame = rows_of(table, epoch)
        return frame.with_columns(similarity=None) if table == "tasks" else frame

    monkeypatch.setattr(builders_root, "rows_of", unlike)
    store = small_root(tmp_path / "root")
    with TestClient(application(store), base_url="http://localhost") as browser:
        text = browser.get("/runs/run-a/tasks?by=similarity").text
    assert "<svg viewBox" not in text and "none of these tasks has this number" in text


@mutation(
    "columns that never change are columns", TASKS,
    "for name in SETTLED if _is_settled(points, name)", "for name in ()",
)  # fmt: skip
@mutation(
    "a column that changes is left out", TASKS,
    "for row in points}) == 1", "for row in points}) > 0",
)  # fmt: skip
@pytest.mark.slow
def test_what_never_changes_is_said_once(client: TestClient, tmp_path: Path, monkeypatch):
    text = client.get("/runs/run-a/tasks").text
    (listed,) = (one for one in tables(text) if one.name == "tasks")
    assert not {"alpha", "n"} & set(listed.columns)
    assert "The same for all of them: n 4." in text  # this run has no alpha

    def uneven(table: str, epoch: int) -> pl.DataFrame:
        frame = rows_of(table, epoch)
        if table != "task_scores":
            return frame
        return frame.with_columns(pl.col("n", "successes") * max(1, epoch))

    monkeypatch.setattr(builders_root, "rows_of", uneven)
    store = small_root(tmp_path / "root")
    with TestClient(application(store), base_url="http://localhost") as browser:
        (listed,) = (
            one for one in tables(browser.get("/runs/run-a/tasks").text) if one.name == "tasks"
        )
    assert "n" in listed.columns and "alpha" not in listed.columns


@mutation(
    "digests are as long as they are", "flows/view/shown.py",
    "return text[:DIGITS]", "return text",
)  # fmt: skip
def test_a_digest_is_short_and_its_title_has_the_whole(client: TestClient):
    text = client.get("/runs/run-a/lineage").text
    (listed,) = (one for one in tables(text) if one.name == "checkpoints")
    at = [listed.columns.index(name) for name in ("digest", "parent_digest")]
    assert {row[place] for row in listed.rows for place in at} == {DIGEST[:DIGITS]}
    assert f'title="{DIGEST}">{DIGEST[:DIGITS]}</a><button type="button" class="copy-id"' in text
    assert "A larger one was the best of its policy by validation success" in text
    assert DIGEST in client.get("/runs/run-a/checkpoints/agent/1").text  # whole, to copy


@mutation(
    "ids of two attempts at a task look the same", "flows/view/shown.py",
    """ + ("" if sample is None else f".{sample}")""", "",
)  # fmt: skip
@pytest.mark.parametrize(
    ("whole", "cut"),
    [
        ("t000003-4257a5cf-0000120", "t3…120"),
        ("t000000-4257a5cf-0000000", "t0…0"),
        ("g000012-f628b418-0000000.0000", "g12…0.0"),
        (DIGEST, DIGEST[:DIGITS]),
        (DIGEST.upper(), DIGEST.upper()),
        ("x" * 20, "x" * 20),
        ("quickstart-genenv-s0-1d3786", "quickstart-genenv-s0-1d3786"),
        ("", ""),
    ],
)
def test_ids_and_digests_alone_are_cut(whole: str, cut: str):
    assert brief(whole) == cut


def test_what_is_cut_has_the_whole_beside_it():
    assert named(None) == ""
    assert named('"><b>', "/a?b") == '<a href="/a?b">&#34;&gt;&lt;b&gt;</a>'
    words = named("t000003-4257a5cf-0000120")
    assert 'title="t000003-4257a5cf-0000120">t3…120</span>' in words
    assert 'value="t000003-4257a5cf-0000120" aria-label="copy t000003' in words
