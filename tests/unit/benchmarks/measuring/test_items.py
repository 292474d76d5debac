"""Items as tasks, verdicts on stored attempts, and what they add up to.

Invariants: items are taken in the official order, the first so many of each category or so many of
all drawn by the seed, of known categories alone; an attempt that broke off is wrong, one whose
environment broke is not judged, and a scorer that fails costs its own item alone; the metrics are
those of the same answers as predictions; two models are compared item by item; the table has a row
a model, an average only over five numbers, and says what was not run.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from flows.deploy.benchmark_request import BenchmarkRequest
from genenv_core.benchmarks.bamboogle.training import BamboogleDomain
from genenv_core.benchmarks.measuring.beside import beside
from genenv_core.benchmarks.measuring.beside import written as beside_written
from genenv_core.benchmarks.measuring.items import (
    check_categories,
    items_of,
    judged,
    metric_rows,
    result_of,
    stored_result,
)
from genenv_core.benchmarks.measuring.table import COLUMNS, Cell, written
from genenv_core.benchmarks.predictions import Result, Results, judge_lines
from genenv_core.benchmarks.protocol import ItemVerdict
from genenv_core.benchmarks.registry import known_benchmarks
from genenv_core.benchmarks.summary import Metric
from genenv_core.config.sections.unions.benchmark import MeasuredCheckpoint
from genenv_core.domains.steps import NOT_STARTED
from genenv_core.epoch.rows import frame, to_tasks
from genenv_core.errors import ConfigError, DataError
from genenv_core.plugins import BENCHMARKS, own_points
from genenv_core.types import Cause, TaskDraft
from tests.mutations import mutation

ITEMS = "genenv_core/benchmarks/measuring/items.py"
BESIDE = "genenv_core/benchmarks/measuring/beside.py"

EVERYTHING = MeasuredCheckpoint(model="m")

ANSWERS = ["Ada Lark", "the Orca", "1912", "in Oslo"]


@pytest.fixture
def domain(tmp_path: Path) -> BamboogleDomain:
    rows = [f"Question {place}?,{answer}" for place, answer in enumerate(ANSWERS)]
    (tmp_path / "test.csv").write_text("\n".join(["Question,Answer", *rows]) + "\n")
    return BamboogleDomain.from_options({"data": str(tmp_path)})


Errors = dict[int, tuple[str, Cause]]
"""By place of a task: what broke the attempt at it, and whose failure that was."""


def attempts(tasks: Any, texts: list[str], errors: Errors) -> tuple[Any, Any]:
    """Return `traces` and `trace_tokens` of one attempt at each task."""
    traces = [
        {
            "trace_id": f"x{place}",
            "epoch": 0,
            "task_id": task.task_id,
            "group_id": f"g{place}",
            "sample_index": 0,
            "policy_version": 0,
            "turns": 1,
            "prompt_tokens": 3,
            "response_tokens": 2,
            "tool_calls": 0,
            "finish_reason": "error" if place in errors else "stop",
            "error": errors[place][0] if place in errors else "",
            "cause": errors[place][1].value if place in errors else None,
        }
        for place, task in enumerate(tasks)
    ]
    opening = [{"role": "system", "content": "s"}, {"role": "user", "content": "q"}]
    tokens = [
        {
            "trace_id": f"x{place}",
            "prompt_ids": [],
            "token_ids": [],
            "logprobs": [],
            "loss_mask": [],
            "messages": json.dumps([*opening, {"role": "assistant", "content": text}]),
            "response_text": text,
        }
        for place, text in enumerate(texts)
    ]
    return frame("traces", traces), frame("trace_tokens", tokens)


def verdicts(domain: BamboogleDomain, texts: list[str], errors: Errors) -> pl.DataFrame:
    tasks = to_tasks(items_of(domain, EVERYTHING, 0, "s" * 64))
    return judged(domain, tasks, *attempts(tasks, texts, errors))


def test_the_first_so_many_of_each_category(domain: BamboogleDomain) -> None:
    some = items_of(domain, MeasuredCheckpoint(model="m", items=3), 0, "s" * 64)
    assert [json.loads(spec) for spec in some["spec"]] == [{"item": str(n)} for n in range(3)]
    assert set(some["source"]) == {"benchmark"} and set(some["ground_truth"]) == {""}
    assert items_of(domain, EVERYTHING, 0, "s" * 64).height == len(ANSWERS)


def drawn(domain: BamboogleDomain, seed: int, count: int) -> list[str]:
    rows = items_of(domain, MeasuredCheckpoint(model="m", draw=count), seed, "s" * 64)
    return [json.loads(spec)["item"] for spec in rows["spec"]]


@mutation(
    "items are drawn in any order", ITEMS,
    "(places if asked.precision else sorted(places))", "places",
)  # fmt: skip
@mutation("every seed draws the same items", ITEMS, "Random(seed).sample(", "Random(0).sample(")
def test_items_are_drawn_by_the_seed_in_the_official_order(domain: BamboogleDomain) -> None:
    found = [drawn(domain, seed, 2) for seed in range(20)]
    assert found == [drawn(domain, seed, 2) for seed in range(20)]
    assert all(len(set(items)) == 2 and items == sorted(items) for items in found)
    assert {item for items in found for item in items} == {"0", "1", "2", "3"}
    assert drawn(domain, 0, 9) == ["0", "1", "2", "3"]


@mutation(
    "a category that is not asked for is measured", ITEMS,
    "wanted = not asked.categories or draft.family in asked.categories", "wanted = True",
)  # fmt: skip
def test_only_the_categories_that_are_asked_for(domain: BamboogleDomain) -> None:
    other = MeasuredCheckpoint(model="m", categories=("others",))
    assert items_of(domain, other, 0, "s" * 64).is_empty()
    asked = MeasuredCheckpoint(model="m", categories=("questions",), items=2)
    assert items_of(domain, asked, 0, "s" * 64).height == 2
    check_categories(domain, asked.categories)
    with pytest.raises(ConfigError, match="'others': the download of bamboogle has questions"):
        check_categories(domain, other.categories)


def test_the_first_items_and_drawn_ones_are_two_choices() -> None:
    with pytest.raises(ValueError, match=r"benchmark\.items .* benchmark\.draw"):
        MeasuredCheckpoint(model="m", items=3, draw=3)
    with pytest.raises(ValueError, match=r"benchmark\.items .* benchmark\.precision"):
        MeasuredCheckpoint(model="m", items=3, precision=0.1)


@mutation(
    "with a precision the first items come first", ITEMS,
    "(places if asked.precision else sorted(places))", "sorted(places)",
)  # fmt: skip
@mutation(
    "a precision attempts more items than are to be drawn", ITEMS,
    "most = len(chosen) if asked.draw is None else min(asked.draw, len(chosen))",
    "most = len(chosen)",
)  # fmt: skip
def test_with_a_precision_items_come_in_random_order(domain: BamboogleDomain) -> None:
    def order(seed: int, draw: int | None = None) -> list[str]:
        asked = MeasuredCheckpoint(model="m", precision=0.1, draw=draw)
        return [
            json.loads(spec)["item"] for spec in items_of(domain, asked, seed, "s" * 64)["spec"]
        ]

    found = [order(seed) for seed in range(20)]
    assert all(sorted(items) == ["0", "1", "2", "3"] for items in found)
    assert {items[0] for items in found} == {"0", "1", "2", "3"}
    assert order(3, draw=2) == order(3)[:2]


@mutation(
    "an item without a verdict is compared", BESIDE,
    '        if verdict.valid is None:\n            continue\n', "",
)  # fmt: skip
@mutation(
    "the first model is better where the second is", BESIDE,
    "second[name][item] - first[name][item]", "first[name][item] - second[name][item]",
)  # fmt: skip
def test_two_models_beside_each_other(domain: BamboogleDomain) -> None:
    """Of three items with two verdicts, one is won and none lost; with one more of each, t of 4."""
    lost = {1: ("environment: broke", Cause.ENVIRONMENT)}
    before = verdicts(domain, ["wrong", "wrong", "1912", "wrong"], lost)
    after = verdicts(domain, ["Ada Lark", "wrong", "1912", "wrong"], {})
    row = next(one for one in beside(domain, before, after) if one.metric == "exact_match")
    assert (row.items, row.before.items, row.after.items) == (3, 3, 4)
    assert (row.before.value, row.after.value) == (pytest.approx(1 / 3), pytest.approx(1 / 2))
    half = 2.776445 * 0.7**0.5 / 5**0.5
    assert row.difference == pytest.approx((1 / 3, 1 / 5 - half, 1))
    lines = beside_written([row], "a", "run:b@1").splitlines()
    assert lines[0] == "| benchmark | metric | items | a | run:b@1 | difference |"
    assert lines[2].startswith("| bamboogle | exact_match | 3 | 33.3 [")
    assert lines[2].endswith("| +33.3 [-83.9, 100.0] |")


@mutation(
    "an interval is a point where no item differs", BESIDE,
    "one_each = [-1.0, 1.0] if all(gap in (-1, 0, 1) for gap in gaps) else []", "one_each = []",
)  # fmt: skip
@mutation(
    "scores between none and all are treated as right or wrong", BESIDE,
    " if all(gap in (-1, 0, 1) for gap in gaps) else []", "",
)  # fmt: skip
def test_no_item_that_differs_is_no_certainty(domain: BamboogleDomain) -> None:
    """Of three items with f1, one changes from 2/3 to 1: Student's t over (0, 0, 1/3)."""
    before = verdicts(domain, ["wrong", "wrong", "Ada", "1912"], {})
    rows = {row.metric: row for row in beside(domain, before, before)}
    assert rows["exact_match"].difference == pytest.approx((0, -0.66372, 0.66372), abs=1e-4)
    after = verdicts(domain, ["Ada", "wrong", "Ada", "1912"], {})
    f1 = next(row for row in beside(domain, before, after) if row.metric == "f1").difference
    assert f1 is not None
    centre, low, high = f1
    assert 0 < centre < 1 and high - centre == pytest.approx(centre - low)
    assert high == pytest.approx(centre * (1 + 3.182446))  # one of four differs: t of 3 degrees


def test_metrics_are_those_of_the_same_answers_as_predictions(domain: BamboogleDomain) -> None:
    texts = ["Ada Lark", "orca", "1913", ""]
    rows = verdicts(domain, texts, {})
    assert rows["valid"].to_list() == [True, True, False, False]
    lines = [json.dumps({"id": str(n), "prediction": text}) for n, text in enumerate(texts)]
    results = Results(domain.suite)
    for one in judge_lines([line.encode() for line in lines], domain.suite, "official"):
        results.add(one)
    (expected,) = results.of_keys()
    found = result_of(domain, rows)
    assert found.metrics == expected.metrics and found.not_run == {}
    table = metric_rows(domain, found)
    assert table.filter("headline")["metric"].to_list() == ["exact_match"]
    facts = {"attempts": len(texts), "items": found.items, "not_run": found.not_run}
    assert stored_result(facts, table) == found
    assert table["value"].to_list() == [metric.value for metric in expected.metrics]


@mutation(
    "a broken environment is the model's fault", ITEMS,
    'valid = False if Cause(trace["cause"]).judges else None', "valid = False",
)  # fmt: skip
@mutation(
    "an attempt that broke off is judged by what it said", ITEMS, 'if trace["error"]:', "if False:"
)
def test_what_broke_off_is_wrong_and_a_broken_environment_is_not_judged(
    domain: BamboogleDomain,
) -> None:
    errors = {
        0: ("the prompt has 9 tokens", Cause.AGENT),
        1: (f"{NOT_STARTED}: gone", Cause.ENVIRONMENT),
        2: ("503: server gone", Cause.ENGINE),
    }
    rows = verdicts(domain, ANSWERS, errors)
    assert rows["valid"].to_list() == [False, None, None, True]
    assert rows["reason"].to_list() == [*(said for said, _ in errors.values()), ""]
    found = result_of(domain, rows)
    assert (found.items, found.not_run) == (2, {"questions": 2})


@mutation(
    "a scorer that fails ends the stage", ITEMS,
    "    except Exception as error:  # a fault of a scorer",
    "    except KeyError as error:  # a fault of a scorer",
)  # fmt: skip
def test_a_scorer_that_fails_costs_its_own_item(
    domain: BamboogleDomain, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = domain.verdict

    def failing(draft: TaskDraft, messages: Any) -> ItemVerdict:
        if draft.spec["item"] == "2":
            raise RuntimeError("no")
        found = whole(draft, messages)
        odd = {**found.parts, "odd": float("nan")} if draft.spec["item"] == "1" else found.parts
        return ItemVerdict(found.valid, found.score, found.reason, odd)

    monkeypatch.setattr(domain, "verdict", failing)
    rows = verdicts(domain, ANSWERS, {})
    assert rows["valid"].to_list() == [True, True, None, True]
    assert rows["reason"][2] == "the scorer failed: RuntimeError: no"
    assert "nan" in json.loads(rows["parts"][1])["parts"]


def test_no_attempt_is_no_result(domain: BamboogleDomain) -> None:
    with pytest.raises(DataError, match="no item that can be attempted"):
        result_of(domain, frame("benchmark_items", []))


@mutation(
    "a headline without an item is left out", ITEMS,
    "    if headline not in metrics:\n        metrics.append(headline)\n", "",
)  # fmt: skip
def test_a_headline_without_an_item_has_a_row_and_stands_in_the_table(
    domain: BamboogleDomain,
) -> None:
    other = Result(None, 1, 1, [Metric("f1", 1, 0.5, 0.5, 0.5)], {"questions": 3})
    table = metric_rows(domain, other)
    assert table.filter("headline")["metric"].to_list() == ["exact_match"]
    assert table["value"].to_list() == [0.5, None] and table["items"].to_list() == [1, 0]
    none = replace(cell(0, left_out=3), points=None, low=None, high=None, items=0)
    text = written({"part": {"bamboogle": none}})
    assert "| part |  |  |  |  |  |  |" in text
    assert "m, mode official, 0 items, * 3 items not run: no value, and `genenv resume run`" in text


def cell(points: float, left_out: int = 0) -> Cell:
    return Cell("run", "m", points, points - 5, points + 5, 10, "official", left_out)


@mutation(
    "an average is taken over fewer than five", "genenv_core/benchmarks/measuring/table.py",
    "if len(known) == len(COLUMNS) else", "if known else",
)  # fmt: skip
def test_the_table_has_an_average_only_over_all_five() -> None:
    names = ("api_bank", "alfworld", "bfcl", "bamboogle", "travelplanner")
    whole = {name: cell(10.0 * place) for place, name in enumerate(names)}
    some = {**whole, "bfcl": cell(20.0, left_out=1)}
    text = written({"a|b": whole, "some": some, "part": {"bfcl": cell(50.0, left_out=3)}})
    rows = {line.split(" | ")[0]: line for line in text.splitlines() if line.startswith("| ")}
    assert rows["| a\\|b"].endswith("| 20.0 |") and rows["| some"].endswith("| 20.0* |")
    assert rows["| part"] == "| part |  |  | 50.0* [45.0, 55.0] |  |  |  |"
    assert rows["| GenEnv 7B"] == "| GenEnv 7B | 79.1 | 54.5 | 41.8 | 76.0 | 16.6 | 53.6 |"
    assert "* 3 items not run" in text
    assert text.count("wizwand.com") == 1


@mutation(
    "a benchmark without a column has no number", "genenv_core/benchmarks/measuring/table.py",
    'f"{_cell(cell)} points, "', '""',
)  # fmt: skip
def test_a_benchmark_without_a_column_stands_below_the_table() -> None:
    none = replace(cell(0), points=None, low=None, high=None, items=0)
    text = written(
        {
            "both": {"backwards": cell(40.0, left_out=2), "bfcl": cell(50.0)},
            "only": {"backwards": none},
        }
    )
    table, below = text.split("What was measured:")
    assert "| both |  |  | 50.0 [45.0, 55.0] |  |  |  |" in table
    assert "backwards" not in table and "only" not in table
    assert "- both, backwards: 40.0* [35.0, 45.0] points, m, mode official, 10 items, * 2" in below
    assert "- both, BFCL: m, mode official" in below
    assert "- only, backwards: m, mode official, 0 items: no value" in below


def test_every_benchmark_is_in_the_form_and_the_table_has_no_other() -> None:
    field = BenchmarkRequest.model_json_schema()["properties"]["benchmark"]
    assert field["enum"] == known_benchmarks() and field["default"] in field["enum"]
    assert COLUMNS.keys() <= own_points(BENCHMARKS).keys()
