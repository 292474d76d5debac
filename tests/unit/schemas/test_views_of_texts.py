"""The views with a row an attempt and a row a text of pi_env.

Invariants: `agent_attempts` has each rollout and each held-out attempt once, with the words of both
sides, the outcome and the updates that used it; nothing of a held-out attempt is learned from;
`env_texts` has each text of pi_env once, with what was asked; runs without them show the rest;
`calls` has each call of the agent once, as many as `traces.tool_calls` says, and none of a prompt.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from genenv_core.canonical import canonical_json
from genenv_core.play.calls import calls_made, with_calls
from tests.mutations import mutation
from tests.unit.builders_tables import world
from tests.unit.schemas.test_views import ask

JUDGED = "schemas/views/judged_traces.sql"


def test_an_attempt_by_hand(tmp_path: Path) -> None:
    tables = world()
    rows = ask(tmp_path, tables, "FROM agent_attempts")
    row = rows.filter(trace_id="e0001-g000001-s0000").row(0, named=True)
    task = tables["tasks"].filter(task_id="e0001-t000001").row(0, named=True)
    assert row == {
        "run_id": "run-a",
        "arm": "genenv",
        "epoch": 1,
        "source": "generated",
        "mode": None,
        "task_id": "e0001-t000001",
        "group_id": "e0001-g000001",
        "trace_id": "e0001-g000001-s0000",
        "sample_index": 0,
        "policy_version": 0,
        "family": task["family"],
        "difficulty": task["difficulty"],
        "prompt": task["prompt"],
        "ground_truth": task["ground_truth"],
        "response_text": "<tool_call>",
        "success": True,
        "reward": 1.0,
        "failure": "",
        "error": "",
        "cause": None,
        "finish_reason": "stop",
        "turns": 1,
        "tool_calls": 1,
        "response_tokens": 3,
        "advantage": 0.5,
        "agent_updates": "1, 2",  # again in epoch 2, as history
    }


@mutation("a benchmark's verdict is none", JUDGED, "coalesce(s.success, b.valid)", "s.success")
@mutation("a benchmark's score is none", JUDGED, "coalesce(s.reward, b.score)", "s.reward")
@mutation("a benchmark's reason is none", JUDGED, "coalesce(s.failure, b.reason)", "s.failure")
@mutation(
    "an attempt that nobody judged is no trace", JUDGED,
    "LEFT JOIN benchmark_items", "JOIN benchmark_items",
)  # fmt: skip
def test_a_trace_is_judged_by_its_score_or_by_a_benchmark(tmp_path: Path) -> None:
    tables = world()
    scored, measured, lost = (f"e0001-g000001-s000{sample}" for sample in range(3))
    tables["scores"] = tables["scores"].filter(trace_id=scored)
    items = tables["benchmark_items"].filter(trace_id=measured)
    tables["benchmark_items"] = items.with_columns(score=pl.lit(0.25), parts=pl.lit('{"f1":0.25}'))
    asked = "SELECT * FROM judged_traces ORDER BY trace_id"
    rows = {row["trace_id"]: row for row in ask(tmp_path, tables, asked).to_dicts()}
    assert rows.keys() == set(tables["traces"]["trace_id"])
    names = ("reward", "success", "failure", "benchmark", "item", "parts")
    assert [rows[scored][name] for name in names] == [1.0, True, "", None, None, None]
    item = items["item"].item()
    assert [rows[measured][name] for name in names] == [
        0.25, False, "another function", "bfcl", item, '{"f1":0.25}',
    ]  # fmt: skip
    assert {rows[lost][name] for name in names} == {None}


def test_a_held_out_attempt_has_its_words_and_no_update(tmp_path: Path) -> None:
    rows = ask(tmp_path, world(), "FROM agent_attempts WHERE source = 'test' AND mode = 'greedy'")
    row = rows.filter(epoch=2, task_id="e0000-test-000001").row(0, named=True)
    assert (row["response_text"], row["success"], row["failure"]) == (
        "greedy answer 1", False, "no call",
    )  # fmt: skip
    assert row["prompt"] == "Receive bolts." and row["ground_truth"]
    for name in ("group_id", "trace_id", "advantage", "agent_updates", "turns"):
        assert rows[name].null_count() == rows.height, name


def test_every_attempt_is_there_once(tmp_path: Path) -> None:
    tables = world(8, 3)
    rows = ask(tmp_path, tables, "FROM agent_attempts", ("run-a", "run-b"))
    alone = rows.filter(run_id="run-a")
    assert alone.height == tables["traces"].height + tables["evaluations"].height
    assert sorted(alone["trace_id"].drop_nulls()) == sorted(tables["traces"]["trace_id"])
    key = ("run_id", "epoch", "task_id", "mode", "sample_index")
    assert rows.select(key).is_unique().all() and rows.height == 2 * alone.height
    assert set(alone.filter(pl.col("mode").is_not_null())["source"]) == {"test"}


def test_the_attempts_of_a_benchmark_have_its_verdict(tmp_path: Path) -> None:
    tables = {name: frame for name, frame in world().items() if name != "scores"}
    rows = ask(tmp_path, tables, "FROM agent_attempts WHERE trace_id IS NOT NULL ORDER BY trace_id")
    verdicts = tables["benchmark_items"].sort("trace_id")
    assert rows["success"].to_list() == verdicts["valid"].to_list()
    assert rows["reward"].to_list() == verdicts["score"].to_list()
    assert rows["failure"].to_list() == verdicts["reason"].to_list()


@pytest.mark.parametrize("missing", ["evaluation_texts", "contexts"])
def test_a_run_that_did_not_keep_the_texts_shows_the_rest(tmp_path: Path, missing: str) -> None:
    tables = {name: frame for name, frame in world().items() if name != missing}
    view, text = {
        "evaluation_texts": ("agent_attempts WHERE source = 'test'", "response_text"),
        "contexts": ("env_texts", "asked"),
    }[missing]
    whole, rest = ask(tmp_path, world(), f"FROM {view}"), ask(tmp_path, tables, f"FROM {view}")
    assert whole[text].null_count() == 0 and rest[text].null_count() == rest.height
    order = [name for name in ("epoch", "task_id", "mode") if name in whole.columns]
    assert whole.drop(text).sort(order).equals(rest.drop(text).sort(order))


def test_a_text_of_pi_env_by_hand(tmp_path: Path) -> None:
    tables = world()
    messages = [{"role": "system", "content": "Write."}, {"role": "user", "content": "success ½"}]
    contexts = tables["contexts"].with_columns(messages=pl.lit(json.dumps(messages)))
    rows = ask(tmp_path, tables | {"contexts": contexts}, "FROM env_texts").sort("task_id")
    assert rows["task_id"].to_list() == sorted(
        tables["tasks"].filter(source="generated")["task_id"]
    )
    kept, refused = (
        rows.filter(task_id=f"e0002-t00000{place}").row(0, named=True) for place in (1, 3)
    )
    assert kept["asked"] == refused["asked"] == "Write.\nsuccess ½"
    assert kept["generation_text"] == "* 3 nuts 1"
    assert (kept["n"], kept["successes"], kept["p_hat"]) == (4, 1, 0.25)
    assert kept["r_env"] == pytest.approx(math.exp(-0.25))
    assert (kept["env_reason"], kept["weight"], kept["env_updates"]) == ("kept", 1.0, "2")
    assert (refused["valid"], refused["rejection"]) == (False, "unparseable")
    for name in ("n", "p_hat", "r_env", "env_reason", "weight", "env_updates", "prompt"):
        assert refused[name] is None, name


def test_a_task_of_a_set_that_is_attempted_again_is_one_row(tmp_path: Path) -> None:
    tables = world()
    first = tables["task_scores"].filter(group_id="e0001-g000001")
    again = first.with_columns(
        epoch=pl.lit(2, dtype=pl.Int64), group_id=pl.lit("e0002-g000009"),
        successes=pl.lit(4, dtype=pl.Int64), p_hat=pl.lit(1.0),
    )  # fmt: skip
    twice = tables | {"task_scores": pl.concat([tables["task_scores"], again])}
    rows = ask(tmp_path, twice, "FROM env_texts").filter(task_id="e0001-t000001")
    assert rows["successes"].to_list() == [1]


MARKED = '<tool_call>{"name": "find", "arguments": {"what": "é\\"s"}}</tool_call>'
CALLING: list[Any] = [
    {"role": "user", "content": 'Say "span":[1] and "tool_calls".'},
    {"role": "assistant", "content": f"As here: {MARKED}"},
    {"role": "tool", "name": "find", "content": "shown"},
    {"role": "assistant", "content": f"😀 {MARKED} or <tool_call>{{find</tool_call>"},
    {"role": "tool", "name": "find", "content": "Error: nothing"},
    {"role": "tool", "name": "find", "content": "what?", "error": True},
    {"role": "assistant", "content": "LOOK"},
    {"role": "tool", "name": "look", "content": "fine"},
    {"role": "assistant", "content": MARKED[:-1]},
]


@mutation(
    "a call of a prompt is a row of the view calls", "schemas/views/calls.sql",
    "WHERE turn >= 0", "WHERE turn >= -9",
)  # fmt: skip
def test_each_call_by_hand(tmp_path: Path) -> None:
    tables = world()
    made = with_calls(CALLING)
    assert calls_made(made, 3) == 4
    first, last = sorted(tables["traces"]["trace_id"])[:2]
    texts = {first: canonical_json(made).decode(), last: json.dumps(CALLING)}  # one of old
    tables["traces"] = tables["traces"].with_columns(
        turns=pl.lit(3, pl.Int64),
        tool_calls=pl.when(trace_id=first).then(pl.lit(4, pl.Int64)).otherwise("tool_calls"),
    )
    tables["trace_tokens"] = tables["trace_tokens"].with_columns(
        messages=pl.col("trace_id").replace_strict(texts, default="[]")
    )
    names = "trace_id, call, turn, call_in_turn, name, arguments, well_formed, written, answer"
    rows = ask(tmp_path, tables, f"SELECT {names}, failed FROM calls ORDER BY trace_id, call")
    found, broken = '{"what": "é\\"s"}', "<tool_call>{find</tool_call>"
    assert rows.filter(trace_id=first).rows() == [
        (first, 0, 0, 0, "find", found, True, MARKED, "Error: nothing", True),
        (first, 1, 0, 1, "find", None, False, broken, "what?", True),
        (first, 2, 1, 0, "look", None, None, "LOOK", "fine", False),
        (first, 3, 2, 0, None, None, False, MARKED[:-1], None, None),
    ]
    assert rows.filter(trace_id=last).rows() == [(last, 0, *[None] * 8)]
    assert rows.height == tables["traces"]["tool_calls"].sum()
