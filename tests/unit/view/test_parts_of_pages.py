"""What pages are made of, without a server: tokens, plots, settings.

Invariants: a token says what it was and who scored it; a plot has numbers where a chart can draw
them and texts elsewhere; a secret setting is hidden; few questions at a time have a process apart.
"""

from __future__ import annotations

import math
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from flows.view import reading
from flows.view.pages.console import plot
from flows.view.pages.tasks import round_values
from flows.view.pages.trace import ShownToken
from flows.view.reading import APART, PAGE, Panel, Reader
from flows.view.shown import setting
from genenv_core.hiding import HIDDEN
from genenv_core.storage.sql.sandbox import Answer, Limits
from genenv_core.storage.store.local import LocalStore
from tests.mutations import mutation
from tests.waiting import BOUND_S, until


def panel(rows: list[dict[str, Any]]) -> Panel:
    frame = pl.DataFrame(rows, infer_schema_length=None, strict=False)
    return Panel.of("answer", "Answer", "", Answer(frame, False))


def test_a_token_says_what_it_was_and_who_scored_it():
    alone = ShownToken("a", 7, True, math.log(0.25), None)
    assert alone.said == "id 7, p = 0.2500, logprob -1.386"
    assert (alone.level, alone.apart) == (2, False)
    near = ShownToken("a", 7, True, -0.5, -0.5 + 2e-6)
    assert near.said.endswith("by the trainer -0.500 (+2e-06)") and not near.apart
    assert ShownToken("a", 7, True, -0.5, -0.7).apart
    assert ShownToken("a", 7, True, 0.0, None).level == 9
    assert "not sampled" in ShownToken("a", 7, False, 0.0, 0.0).said


def test_a_plot_has_numbers_where_they_can_be_drawn():
    made = plot(panel([{"n": 1, "x": 0.5, "t": "a"}, {"n": None, "x": math.inf, "t": "b"}]))
    assert made is not None
    assert made["numeric"] == ["n", "x"]
    assert made["rows"] == [[1, 0.5, "a"], [None, None, "b"]]


@pytest.mark.parametrize(
    "rows",
    [
        [{"n": 1}],
        [{"t": "a"}, {"t": "b"}],
        [{"b": True}, {"b": False}],
        [{"n": math.nan}, {"n": math.nan}],
        [{"n": None}, {"n": None}],
    ],
)
def test_there_is_no_plot_where_there_is_nothing_to_draw(rows: list[dict[str, Any]]):
    assert plot(panel(rows)) is None


@mutation(
    "an answer of no rows counts for none", "flows/view/reading.py",
    "        return True\n", "        return len(self) > 0\n",
)  # fmt: skip
def test_an_answer_of_no_rows_is_an_answer():
    assert panel([]) and not len(panel([]))


def test_a_secret_setting_is_hidden():
    assert setting('"hunter2"', "teacher.password") == HIDDEN
    assert setting("4", "rwr.steps") == "4"


def test_two_questions_at_a_time_have_a_process_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    asked: list[str] = []
    end = threading.Event()

    def held(_: object, sql: str, limits: Limits) -> Answer:
        asked.append(sql)
        assert end.wait(BOUND_S)
        return Answer(pl.DataFrame({"limit": [limits.memory]}), False)

    monkeypatch.setattr(reading, "ask", held)
    reader = Reader(LocalStore(tmp_path / "root"))
    with ThreadPoolExecutor(5) as several:
        answers = [several.submit(reader.apart, f"SELECT {n}", PAGE) for n in range(5)]
        until(lambda: len(asked) == APART)
        assert not reader._apart.acquire(blocking=False)  # so the others wait
        end.set()
    assert sorted(asked) == [f"SELECT {n}" for n in range(5)]
    assert {answer.result().frame["limit"].item() for answer in answers} == {PAGE.memory}


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (1.0, 4.0, [1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0]),
        (0.3, 1.7, [0.4, 0.6, 0.8, 1.0, 1.2, 1.4, 1.6]),
        (-3.0, 12.0, [-2.0, 0.0, 2.0, 4.0, 6.0, 8.0, 10.0, 12.0]),
        (-5.0, -5.0, [-5.0]),
        (0.0, 1e18, [n * 1e17 for n in range(11)]),
    ],
)
def test_an_axis_has_round_values(low: float, high: float, expected: list[float]):
    assert round_values(low, high) == pytest.approx(expected)
