"""Bamboogle's answers.

Invariants: every gold answer is right in every mode; normalising is SQuAD's; F1, containment and
the lenient reading of spreadsheets' dates stand beside exact match and do not change it; a marked
answer is found, except in mode strict; no prediction raises an error.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from genenv_core.benchmarks.bamboogle import BENCHMARK
from genenv_core.benchmarks.bamboogle.scoring import (
    LONGEST,
    SHOWN,
    contains,
    exact_match,
    extracted,
    f1,
    is_spreadsheet_date,
    normalized,
    same_date,
)
from genenv_core.benchmarks.bamboogle.suite import Bamboogle
from genenv_core.errors import ConfigError, DataError
from tests.mutations import mutation
from tests.unit.benchmarks.data import official

SCORING = "genenv_core/benchmarks/bamboogle/scoring.py"

SPREADSHEET_ROWS = [14, 18, 31, 32, 38, 52, 53, 55, 95, 98, 99, 106, 118]


def suite(*answers: str) -> Bamboogle:
    return Bamboogle([("Who?", answer) for answer in answers], "0" * 64)


def test_every_gold_answer_is_right_in_every_mode() -> None:
    found = BENCHMARK.load(official("bamboogle"))
    assert isinstance(found, Bamboogle) and list(found.items) == [str(row) for row in range(125)]
    for mode in BENCHMARK.modes:
        for item, gold in found.gold.items():
            verdict = found.judge(item, gold, mode)
            assert verdict.valid and verdict.score == 1
            assert found.measures(item, verdict) == dict.fromkeys(
                verdict.parts.keys() - {"answer"}, (1, 1)
            )
            assert not found.judge(item, f"not {gold}", mode).valid
    dated = [int(item) for item, gold in found.gold.items() if is_spreadsheet_date(gold)]
    assert dated == SPREADSHEET_ROWS


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("The  Titan IIIE!", "titan iiie"),
        ("a-an the (the) an", "aan"),  # punctuation goes before articles
        ("Theban", "theban"),
        ("A.B., 4,884 m", "ab 4884 m"),
        ("the", ""),
        ("\tGeorge\u00a0VI\n", "george vi"),
        ("“quoted” – éclair", "“quoted” – éclair"),  # ASCII's punctuation alone
    ],
)
def test_normalising_is_squads(text: str, plain: str) -> None:
    assert normalized(text) == plain


@mutation(
    "a part of a word contains an answer", SCORING,
    'f" {wanted} " in f" {normalized(answer)} "', "wanted in normalized(answer)",
)  # fmt: skip
def test_measures_by_hand() -> None:
    assert exact_match("The  Titan IIIE!", "titan iiie") and not exact_match(
        "Titan III", "Titan IIIE"
    )
    assert f1("James Cameron of Ontario", "James Cameron") == pytest.approx(2 / 3)
    assert f1("", "x") == f1("x", "") == 0
    assert contains("It was Austin, in Texas.", "Austin")
    assert not contains("Bostonian", "Boston") and not contains("anything", "the")


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("<answer>a</answer> then <Answer> Rick Scott </answer>", "Rick Scott"),
        (r"so \boxed{1{0}0} it is", "1{0}0"),
        ("Thought: ...\nAction: Finish[Olympia]", "Olympia"),
        ("So the final answer is: 20 June 1837\nMore", "20 June 1837"),
        ("<answer>a</answer> final answer: b", "a"),
        ("no mark", "no mark"),
        ("<answer>" + "x" * LONGEST, "<answer>" + "x" * LONGEST),
    ],
)
def test_a_marked_answer_is_found(text: str, answer: str) -> None:
    assert extracted(text) == answer


def test_strict_takes_the_text_whole() -> None:
    text = "The final answer is: Olympia"
    assert suite("Olympia").judge("0", text, "official").valid
    verdict = suite("Olympia").judge("0", text, "strict")
    assert verdict.valid is False and verdict.parts["contains"]


@mutation(
    "a part of a date is the date", SCORING,
    'for day in ("1 Jan 1901", "2 Feb 02")', 'for day in ("1 Jan 1901",)',
)  # fmt: skip
@pytest.mark.filterwarnings("error")  # dateutil's, about time zones, would stand in the terminal
def test_a_spreadsheets_date_may_be_said_in_words_where_that_is_asked_for() -> None:
    one = suite("29-May-32")
    for said in (
        "May 29, 1932",
        "29 May 1932",
        "1932-05-29",
        "the answer is <answer>29/5/32</answer>",
        "May 29, 1932, 10:00 EST",
    ):
        assert one.judge("0", said, "official").valid is False
        assert one.judge("0", said, "lenient").valid
        assert one.measures("0", one.judge("0", said, "official"))["lenient"] == (1, 1)
    for wrong in ("May 1932", "1932", "30 May 1932", "29 May 1933", "29 May", ""):
        assert not same_date(wrong, "29-May-32")
    for wrong in ("January 2001", "2001", "1 January", ""):
        assert not same_date(wrong, "1-Jan-01")
    assert suite("May 29, 1932").judge("0", "29-May-32", "lenient").valid is False  # gold is whole


@mutation(
    "a date's parser fails the scorer", SCORING,
    "except Exception:", "except (ValueError, OverflowError, TypeError):",
)  # fmt: skip
@pytest.mark.parametrize(
    "prediction",
    [None, 1, 1.5, True, [], {}, [["a"]], "", " ", "\0", "9" * 5000, "9" * 20_000,
     "\ud800", "-" * 99,
     "<answer>" * 5000, r"\boxed{" * 5000, "finish[" * 5000, "29-" * 3000, "٣٢", "1e999999999",
     "jan 20240229 " + "9" * 30 + "m"],
)  # fmt: skip
def test_no_prediction_raises(prediction: Any) -> None:
    for mode in BENCHMARK.modes:
        assert suite("29-May-32").judge("0", prediction, mode).valid is False


def test_a_verdict_shows_the_beginning_of_a_long_answer() -> None:
    verdict = suite("Olympia").judge("0", "Olympia " * 9000, "official")
    assert verdict.parts["answer"] == ("Olympia " * 9000)[:SHOWN] and verdict.parts["contains"]


def test_a_file_that_is_another_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"it has no test\.csv"):
        BENCHMARK.load(tmp_path)
    with pytest.raises(ConfigError, match="no such folder"):
        BENCHMARK.load(tmp_path / "none")
    for text, problem in (
        ("a,b\n1,2\n", "first line"),
        ("Question,Answer\nq,\n", "row 1"),
        ("", "line"),
    ):
        (tmp_path / "test.csv").write_text(text)
        with pytest.raises(DataError, match=problem):
            BENCHMARK.load(tmp_path)
    (tmp_path / "test.csv").write_bytes(b"\xff\xfe")
    with pytest.raises(DataError, match="no CSV"):
        BENCHMARK.load(tmp_path)
