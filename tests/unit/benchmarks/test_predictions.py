"""`genenv eval NAME --predictions`: each line gets a verdict, and no line stops the others.

Invariants: a line comes back with its id and key as given; what cannot be scored is null with the
reason; keys have results of their own; ids may be numbers; a fault of a scorer is a row and exit
status 1; files are refused by name, and a file of verdicts is whole or not there.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from flows.cli.app import app
from flows.cli.data.results import LISTED
from genenv_core.benchmarks import summary
from genenv_core.benchmarks.bamboogle.suite import Bamboogle
from genenv_core.benchmarks.lines import DEEPEST, read_line
from genenv_core.benchmarks.predictions import JudgedLine, Results, as_json, judge_lines
from genenv_core.benchmarks.protocol import ItemVerdict
from genenv_core.benchmarks.registry import get_benchmark
from genenv_core.errors import ConfigError, GenenvError
from tests.mutations import mutation

LINES = "genenv_core/benchmarks/lines.py"
PREDICTIONS = "genenv_core/benchmarks/predictions.py"

SUITE = Bamboogle([("Capital of Oregon?", "Salem"), ("Of Ohio?", "Columbus")], "0" * 64)


def judged(*lines: bytes | dict[str, Any]) -> list[JudgedLine]:
    raw = [line if isinstance(line, bytes) else json.dumps(line).encode() for line in lines]
    return list(judge_lines(raw, SUITE, "official"))


def test_a_line_comes_back_with_its_id_and_key() -> None:
    found = judged(
        {"id": "0", "key": "m", "prediction": "Salem"},
        {"id": 1, "prediction": "Salem"},
        {"id": "1", "key": {"k": [1]}, "prediction": None},
    )
    rows = [json.loads(one.row()) for one in found]
    assert [(row["id"], row["key"], row["valid"]) for row in rows] == [
        ("0", "m", True), (1, None, False), ("1", {"k": [1]}, False),
    ]  # fmt: skip
    assert "reason" not in rows[0] and rows[0]["parts"]["answer"] == "Salem"


@mutation(
    "a line that is no JSON stops the others", PREDICTIONS,
    'except ValueError as error:\n        return _unread(number, f"is no JSON',
    'except KeyError as error:\n        return _unread(number, f"is no JSON',
)  # fmt: skip
@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"{oops", "is no JSON"),
        (b"[" * 100_000, "is no JSON"),
        (b"\xff\xfe\xfd", "is no JSON"),
        (b'{"id": "0", "prediction": ' + b"[" * 9000 + b"]" * 8999 + b"}", "is no JSON"),
        (b'{"id": "0", "prediction": ["' + b"[" * 9000 + b"}", "is no JSON"),
        (b"[1]", r"is no object: \[1\]"),
        ({"id": "2", "prediction": "x"}, "line 1 names no item of the data: '2'"),
        ({"prediction": "x"}, "no item of the data: None"),
        ({"id": True, "prediction": "x"}, "no item of the data: True"),
        ({"id": ["0"], "prediction": "x"}, "no item of the data"),
        ({"id": "0"}, "has no field prediction"),
    ],
)
def test_what_cannot_be_scored_is_null_with_its_reason(
    line: bytes | dict[str, Any], reason: str
) -> None:
    first, second = judged(line, {"id": "0", "prediction": "Salem"})
    row = json.loads(first.row())
    assert row["valid"] is None and first.verdict.reason
    with pytest.raises(AssertionError, match=reason):
        raise AssertionError(row["reason"])
    assert second.verdict.valid and second.line == 2


DEEP = 100_000


@mutation("a line with a deep prediction loses its id", LINES, "<= DEEPEST:", "<= 10**9:")
@mutation(
    "a line with a long integer loses its id", LINES,
    "json.loads(line, parse_int=_integer)", "json.loads(line)",
)  # fmt: skip
@pytest.mark.parametrize(
    "prediction",
    [
        b"[" * DEEP + b"]" * DEEP,
        b'{"a": ' * DEEP + b"1" + b"}" * DEEP,
        b'[{"a]}": ' * DEEP + rb'"\\\"]}"' + b"}]" * DEEP,
        b"9" * 5000,
        b"-" + b"9" * 5000,
    ],
)
def test_a_line_that_python_does_not_read_has_its_id_key_and_verdict(prediction: bytes) -> None:
    (one,) = judged(b'{"prediction": ' + prediction + b', "id": "0", "key": "]\\"["}')
    row = json.loads(one.row())
    assert (row["id"], row["key"], row["valid"]) == ("0", ']"[', False)


@mutation("brackets in texts count as levels", LINES, 'r\'"[^"\\\\]*+(?:\\\\.[^"\\\\]*+)*+"|', "r'")
def test_what_is_not_too_deep_is_read_as_it_is() -> None:
    wide = [{"a": ["[", '"]', "\\", i, "\ud83d", {}]} for i in range(1000)]
    deep: Any = "end"
    for _ in range(DEEPEST - 1):
        deep = {"b": deep}
    value = {"wide": wide, "deep": deep}
    for text in (json.dumps(value), json.dumps(value, ensure_ascii=False, indent=1)):
        assert read_line(text.encode("utf-8", "surrogatepass")) == value
    cut = read_line(json.dumps([deep, [[deep]], 7]).encode())
    assert cut[0] == deep and cut[1] != [[deep]] and cut[2] == 7
    assert "end" not in repr(cut[1])


def test_numbers_that_json_has_not_come_back_as_text() -> None:
    (one,) = judged(b'{"id": "0", "key": NaN, "prediction": "Salem"}')
    assert math.isnan(one.key) and one.verdict.valid
    assert json.loads(one.row())["key"] == "nan"
    results = Results(SUITE)
    results.add(one)
    assert as_json(results.of_keys()[0])["key"] == "nan"


@mutation("keys share one result", PREDICTIONS, "name = repr(judged.key)", 'name = ""')
def test_keys_have_results_of_their_own() -> None:
    results = Results(SUITE)
    for one in judged(
        {"id": "0", "key": "b", "prediction": "Salem"},
        {"id": "1", "key": "b", "prediction": "Salem"},
        {"id": "0", "key": "a", "prediction": "Salem"},
        {"id": "1", "key": "a"},
        b"{",
    ):
        results.add(one)
    second, first = results.of_keys()
    assert (second.key, second.predictions, second.items, second.not_run) == ("b", 2, 2, {})
    assert (first.key, first.predictions, first.items) == ("a", 2, 1)
    assert first.not_run == {"questions": 1}
    assert [one.metrics[0].value for one in (second, first)] == [0.5, 1]


@mutation(
    "items of one score are drawn for each key", "genenv_core/benchmarks/summary.py",
    "if (one == one[0]).all()", "if False",
)  # fmt: skip
def test_a_key_for_each_line_costs_no_draws_and_is_not_listed_whole(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def drawn(*_: Any, **__: Any) -> None:
        raise AssertionError("the interval of one item is found once, not for each key")

    monkeypatch.setattr(summary, "_drawn", drawn)
    given = tmp_path / "p.jsonl"
    lines = [{"id": "0", "key": f"k{n}", "prediction": "Salem"} for n in range(LISTED + 3)]
    given.write_text("".join(json.dumps(line) + "\n" for line in lines))
    arguments = ("--data", str(data), "--predictions", str(given))
    shown = asked(*arguments)
    assert shown.exit_code == 0, shown.output
    assert f"k{LISTED - 1} " in shown.output and f"k{LISTED}" not in shown.output
    assert "3 more keys" in shown.output
    facts = json.loads(asked(*arguments, "--json").stdout)
    assert [one["key"] for one in facts["results"]] == [line["key"] for line in lines]


def asked(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["eval", "bamboogle", *arguments])


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "test.csv").write_text(
        "Question,Answer\nCapital of Oregon?,Salem\nOf Ohio?,Columbus\n"
    )
    return folder


def test_the_command_scores_a_file(data: Path, tmp_path: Path) -> None:
    lines = [{"id": "0", "key": "[red]m", "prediction": "Salem"}, {"id": "7", "prediction": 1}]
    given, out = tmp_path / "p.jsonl", tmp_path / "o.jsonl"
    given.write_text("".join(json.dumps(line) + "\n" for line in lines))
    arguments = ("--data", str(data), "--predictions", str(given), "--items", str(out))
    shown = asked(*arguments)
    assert shown.exit_code == 0, shown.output
    assert "[red]m" in shown.output and "not run under key [red]m: 1 of questions" in shown.output
    assert "not scored: line 2 names no item of the data: '7'" in shown.stderr
    assert "as the prediction the answer's text" in shown.stderr
    assert [json.loads(row)["valid"] for row in out.read_text().splitlines()] == [True, None]
    facts = json.loads(asked(*arguments, "--json").stdout)
    assert facts["predictions"]["lines"] == 2 and facts["predictions"]["not_scored"] == 1
    assert facts["rule"] == get_benchmark("bamboogle").modes["official"]
    assert facts["mode"] == "official" and facts["data"]["items"] == 2
    found = facts["results"][0]["metrics"][0]
    assert found.pop("low") < 0.2  # one item says little
    assert found == {"name": "exact_match", "items": 1, "value": 1.0, "high": 1.0, "missing": []}


def test_one_reason_of_many_lines_is_told_once(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    absent = ItemVerdict(None, reason="no game can be played: say make games")
    monkeypatch.setattr(Bamboogle, "judge", lambda *_: absent)
    given = tmp_path / "p.jsonl"
    given.write_text('{"id": "0", "prediction": "Salem"}\n' * 7)
    shown = asked("--data", str(data), "--predictions", str(given))
    assert shown.exit_code == 0
    assert shown.stderr == f"not scored, 7 lines: {absent.reason}\n"


@mutation(
    "a wrong mode is offered no near one", "genenv_core/benchmarks/training/modes.py",
    "{closest(mode, benchmark.modes)}", "",
)  # fmt: skip
@mutation(
    "a wrong mode is named as an option of the domain",
    "genenv_core/benchmarks/measuring/request.py",
    'asked.mode and mode_of(benchmark, asked.mode, "--mode")', "asked.mode",
)  # fmt: skip
def test_wrong_names_are_refused(data: Path, tmp_path: Path) -> None:
    given = tmp_path / "p.jsonl"
    given.write_text("{}\n")
    fine = ("--data", str(data), "--predictions", str(given))
    for arguments, problem in (
        ((*fine, "--mode", "odd"), "has no such mode; it has official"),
        (
            (*fine, "--mode", "offcial"),
            "--mode 'offcial': bamboogle has no such mode (did you mean 'official'?); it has "
            "official: ",
        ),
        (
            ("--model", str(tmp_path), "--data", str(data), "--mode", "strikt"),
            "--mode 'strikt': bamboogle has no such mode (did you mean 'strict'?)",
        ),
        ((*fine, "--items", str(given)), "the file of the predictions"),
        ((*fine, "--items", str(tmp_path / "no" / "o")), "there is no folder"),
        (("--data", str(data), "--predictions", str(tmp_path)), "it is a directory, not a file"),
    ):
        error = asked(*arguments).exception
        assert isinstance(error, ConfigError) and problem in str(error)
    with pytest.raises(ConfigError, match="known: "):
        get_benchmark("other")


def test_a_fault_of_a_scorer_is_a_row_and_exit_status_1(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> None:
        raise KeyError("x")

    monkeypatch.setattr(Bamboogle, "judge", broken)
    given, out = tmp_path / "p.jsonl", tmp_path / "o.jsonl"
    given.write_text('{"id": "0", "prediction": "Salem"}\n')
    done = asked("--data", str(data), "--predictions", str(given), "--items", str(out))
    assert isinstance(done.exception, GenenvError) and "fault of genenv" in str(done.exception)
    row = json.loads(out.read_text())
    assert row["valid"] is None and "KeyError" in row["reason"]
