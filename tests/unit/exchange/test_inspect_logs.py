"""Logs for Inspect.

Invariants: every attempt is in one log, once; a log keeps the published schema, without a field
that it does not know; metrics are means over tasks; calls are data; equal tables give equal bytes;
names from outside make no folder; what no JSON reader takes is text; chunks change nothing.
`tests/infra/test_inspect.py` reads such logs with Inspect itself.
"""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from genenv_core.errors import ConfigError, QueryError
from genenv_core.exchange.inspect_logs import reading
from genenv_core.exchange.inspect_logs.archive import LogFile, to_json
from genenv_core.exchange.inspect_logs.reading import LogSelection, sources_of
from genenv_core.exchange.inspect_logs.samples import DEEPEST, file_safe, sample_of, summary_of
from genenv_core.exchange.inspect_logs.writing import BARE, UNJUDGED, export_logs
from genenv_core.storage.sql.catalog import connect
from genenv_core.types import Message
from tests.mutations import mutation
from tests.unit.exchange.inspect_schema import check_header, check_sample, check_summary
from tests.unit.exchange.test_export import stored, tables

SAMPLES = "genenv_core/exchange/inspect_logs/samples.py"

Logs = dict[str, dict[str, Any]]


def written(
    folder: Path, given: dict[str, pl.DataFrame] | None = None, **selection: Any
) -> tuple[Path, dict[str, int]]:
    """Return the folder that the attempts of these tables were written to, and the counts."""
    out = folder / "logs"
    with connect([stored(folder, given or tables())]) as con:
        done = export_logs(con, "run-a", out, LogSelection(**selection))
    return out, done.changes


def read(folder: Path) -> Logs:
    """Return the logs of a folder by task: header, summaries, and samples by file name."""
    found: Logs = {}
    for path in sorted(folder.glob("*.eval")):
        with zipfile.ZipFile(path) as log:
            assert log.testzip() is None
            members = {name: json.loads(log.read(name)) for name in log.namelist()}
        task = members["header.json"]["eval"]["task"]
        found[task] = {
            "path": path,
            "start": members["_journal/start.json"],
            "header": members["header.json"],
            "summaries": members["summaries.json"],
            "samples": {k: v for k, v in members.items() if k.startswith("samples/")},
        }
    return found


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Logs:
    return read(written(tmp_path_factory.mktemp("logs"))[0])


def test_a_log_keeps_the_published_schema(logs: Logs) -> None:
    assert logs
    for log in logs.values():
        check_header(log["header"])
        assert log["start"] == {key: log["header"][key] for key in ("version", "eval", "plan")}
        for name, sample in log["samples"].items():
            check_sample(sample)
            assert name == f"samples/{sample['id']}_epoch_{sample['epoch']}.json"
        for summary in log["summaries"]:
            check_summary(summary)
        assert log["summaries"] == [summary_of(one) for one in log["samples"].values()]


def test_every_attempt_is_in_one_log_once(logs: Logs) -> None:
    given = tables()
    samples = [one for log in logs.values() for one in log["samples"].values()]
    ids = [one["metadata"]["trace_id"] for one in samples if "trace_id" in one["metadata"]]
    assert sorted(ids) == sorted(given["traces"]["trace_id"])
    assert len(samples) - len(ids) == given["evaluations"].height > 0
    assert len({one["uuid"] for one in samples}) == len(samples)
    for log in logs.values():
        kinds = {
            (one["metadata"]["epoch"], one["metadata"]["source"], one["metadata"].get("mode"))
            for one in log["samples"].values()
        }
        assert len(kinds) == 1
        assert log["header"]["results"]["total_samples"] == len(log["samples"])


@mutation(
    "the error of a log's metric is too small", "genenv_core/exchange/inspect_logs/writing.py",
    "error = float(means.std(ddof=1)", "error = float(means.std(ddof=0)",
)  # fmt: skip
def test_metrics_are_means_over_tasks_of_the_means_of_their_attempts(logs: Logs) -> None:
    given = tables()
    scores = given["scores"].join(given["tasks"].select("task_id", "source"), on="task_id")
    for epoch in (1, 2):
        of = scores.filter((pl.col("epoch") == epoch) & (pl.col("source") == "generated"))
        by_task = of.group_by("task_id").agg(pl.mean("success").cast(float), pl.mean("reward"))
        header = logs[f"desk-epoch-{epoch}-generated"]["header"]
        told = {
            score["name"]: {name: one["value"] for name, one in score["metrics"].items()}
            for score in header["results"]["scores"]
        }
        error = by_task["success"].std() / by_task.height**0.5  # type: ignore[operator]
        assert told["success"] == pytest.approx(
            {"accuracy": by_task["success"].mean(), "stderr": error}
        )
        assert told["reward"]["mean"] == pytest.approx(by_task["reward"].mean())
        assert header["eval"]["config"] == {"epochs": 4, "epochs_reducer": ["mean"]}


@mutation(
    "Inspect's repeats count from 0", SAMPLES,
    '"epoch": row["sample_index"] + 1,', '"epoch": row["sample_index"],',
)  # fmt: skip
def test_a_sample_tells_what_the_tables_know(logs: Logs) -> None:
    given = tables()
    samples = logs["desk-epoch-2-generated"]["samples"].values()
    assert {one["epoch"] for one in samples} == {1, 2, 3, 4}
    groups = {row["group_id"]: row for row in given["task_scores"].iter_rows(named=True)}
    used = given["update_samples"].filter(pl.col("policy") == "agent")
    advantages = dict(used.select("row_id", "advantage").iter_rows())
    for one in samples:
        facts = one["metadata"]
        assert facts["p_hat"] == groups[facts["group_id"]]["p_hat"]
        assert facts.get("advantage") == advantages.get(facts["trace_id"])
        assert one["id"] == facts["task_id"]
    assert any("advantage" in one["metadata"] for one in samples)
    version = logs["desk-epoch-2-generated"]["header"]["eval"]["metadata"]["policy_version"]
    digest = given["checkpoints"].filter(policy="agent", epoch=version)["digest"][0]
    assert logs["desk-epoch-2-generated"]["header"]["eval"]["model"] == (
        f"genenv/agent-v{version}-{digest[:12]}"
    )


def test_calls_and_their_answers_are_data(logs: Logs) -> None:
    one = next(iter(logs["desk-epoch-1-generated"]["samples"].values()))
    asked, said, answer = one["messages"]
    assert asked == {**asked, "role": "user", "source": "input", "content": one["input"]}
    assert "<tool_call>" not in said["content"] and said["tool_calls"][0]["arguments"]["item"]
    assert answer["tool_call_id"] == said["tool_calls"][0]["id"]
    assert answer["function"] == said["tool_calls"][0]["function"]
    assert one["output"]["choices"][0]["message"] == said
    assert "<tool_call>" in one["scores"]["success"]["answer"]  # as it was said


@pytest.mark.slow
def test_equal_tables_give_equal_bytes_however_many_chunks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, _ = written(tmp_path / "a")
    monkeypatch.setattr(reading, "CHUNK", 3)
    second, _ = written(tmp_path / "b")
    names = sorted(path.name for path in first.iterdir())
    assert names == sorted(path.name for path in second.iterdir())
    for name in names:
        assert (first / name).read_bytes() == (second / name).read_bytes()


def test_filters(tmp_path: Path) -> None:
    found = read(written(tmp_path / "a", epochs=(2, 2), sources=sources_of(["generated"]))[0])
    assert list(found) == ["desk-epoch-2-generated"]
    best = read(written(tmp_path / "b", sources=sources_of(["generated"]), min_reward=1.0)[0])
    samples = [one for log in best.values() for one in log["samples"].values()]
    assert samples and all(one["scores"]["reward"]["value"] == 1.0 for one in samples)
    with pytest.raises(QueryError, match=r"no attempt of run run-a fits .*epoch BETWEEN 7 AND 7"):
        written(tmp_path / "c", epochs=(7, 7))
    assert not (tmp_path / "c" / "logs").exists()
    with pytest.raises(ConfigError, match=r"--tasks 'new': expected one of base, generated"):
        sources_of(["new"])


def test_an_epoch_without_attempts_has_no_log(tmp_path: Path) -> None:
    given = tables()
    for name in ("traces", "scores", "evaluations"):
        given[name] = given[name].filter(pl.col("epoch") != 2)
    found = read(written(tmp_path, given)[0])
    assert found and not any("epoch-2" in task for task in found)


def test_held_out_attempts_without_text_are_counted(tmp_path: Path) -> None:
    given = tables()
    given["evaluation_texts"] = given["evaluation_texts"].clear()
    folder, changes = written(tmp_path, given, sources=sources_of(["test", "validation"]))
    assert changes == {BARE: given["evaluations"].height}
    for log in read(folder).values():
        for one in log["samples"].values():
            check_sample(one)
            assert one["output"]["choices"] == [] and one["input"]


def test_a_measurement_is_a_log_of_its_items(tmp_path: Path) -> None:
    given = tables()
    tasks = given["tasks"].with_columns(source=pl.lit("benchmark"))
    traces = given["traces"].filter(epoch=1).with_columns(epoch=pl.lit(0, dtype=pl.Int64))
    items = pl.DataFrame(
        {
            "trace_id": traces["trace_id"],
            "task_id": traces["task_id"],
            "benchmark": "bfcl",
            "item": [f"../{task}/game" for task in traces["task_id"]],
            "category": "simple",
            "sample_index": traces["sample_index"],
            "mode": "official",
            "valid": [None, *[True] * (traces.height - 1)],
            "score": [0.0, *[1.0] * (traces.height - 1)],
            "reason": "",
            "parts": '{"right": 1}',
        },
        schema=given["benchmark_items"].schema,
    )
    config = json.loads(given["runs"]["config"][0])
    config["benchmark"] = {"model": "run:mine@3"}
    config["domain"]["name"] = "desk"
    empty = ("scores", "task_scores", "update_samples", "evaluations", "evaluation_texts")
    given |= {name: given[name].clear() for name in empty} | {
        "tasks": tasks,
        "traces": traces,
        "benchmark_items": items,
        "runs": given["runs"].with_columns(config=pl.lit(json.dumps(config))),
    }
    folder, changes = written(tmp_path, given)
    assert changes == {UNJUDGED: 1}
    (log,) = read(folder).values()
    assert log["header"]["eval"]["model"] == "run:mine@3"
    assert log["header"]["eval"]["task"] == "desk"
    assert [name for name in log["samples"] if ".." in name or name.count("/") > 1] == []
    unjudged = [one for one in log["samples"].values() if "success" not in one["scores"]]
    assert len(unjudged) == 1
    judged = [one for one in log["samples"].values() if "success" in one["scores"]]
    assert judged[0]["metadata"]["item"].startswith("../")
    assert judged[0]["scores"]["success"]["metadata"] == {"parts": {"right": 1}}


@mutation(
    "an item's name is a path in a log", SAMPLES, "    if _NAME.fullmatch(text):", "    if True:"
)
@pytest.mark.parametrize("name", ["../../etc/passwd", "a/b", "a\\b", "a_b", "", ".", "é" * 300])
def test_a_name_from_outside_is_one_plain_part_of_a_file_name(name: str) -> None:
    safe = file_safe(name)
    assert 0 < len(safe) < 130 and safe.isascii() and not set(safe) & set("/\\_ \0")
    assert not safe.startswith(".")
    assert file_safe(name) == safe != file_safe(name + "x")


def row(**changes: Any) -> dict[str, Any]:
    """Return a row of the attempts."""
    names = ("trace_id", "group_id", "mode", "family", "difficulty", "n", "p_hat", "r_env")
    none = dict.fromkeys((*names, "advantage", "agent_updates", "benchmark", "item", "category"))
    given = {
        "run_id": "run-a",
        "epoch": 1,
        "source": "generated",
        "task_id": "t1",
        "sample_index": 0,
        "policy_version": 0,
        "turns": 1,
        "prompt_tokens": 3,
        "response_tokens": 2,
        "finish_reason": "length",
        "error": "",
        "ground_truth": None,
        "success": False,
        "reward": 0.5,
        "failure": "wrong",
        "parts": None,
    }
    return {**none, **given, **changes}


def call(arguments: str, well_formed: bool = True) -> list[Message]:
    """Return a transcript with a call and its answer."""
    entry = {
        "id": "call_1_0",
        "type": "function",
        "function": {"name": "f", "arguments": arguments},
        "span": [0, 1],
        "well_formed": well_formed,
    }
    return [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Go."},
        {"role": "assistant", "content": "x", "tool_calls": [entry]},
        {"role": "tool", "content": "no", "tool_call_id": "call_1_0", "error": True},
    ]


@mutation(
    "a log has numbers that no reader of JSON takes", SAMPLES,
    "return math.isfinite(value)", "return True",
)  # fmt: skip
@pytest.mark.parametrize(
    "arguments",
    ['{"x": NaN}', '{"x": [1e999]}', "[" * 9000, '{"x":' * 300 + "1" + "}" * 300, '"text"'],
    ids=["nan", "infinite", "broken", "deep", "no object"],
)
def test_arguments_that_no_reader_takes_are_text(arguments: str) -> None:
    sample = json.loads(to_json(sample_of(row(), call(arguments), "m")))
    check_sample(sample)
    assert sample["messages"][2]["tool_calls"][0]["arguments"] == {"text": arguments}


def test_arguments_of_some_depth_are_data() -> None:
    deep: Any = 1
    for _ in range(DEEPEST - 1):
        deep = {"x": deep}
    sample = sample_of(row(), call(json.dumps(deep)), "m")
    assert sample["messages"][2]["tool_calls"][0]["arguments"] == deep


def test_a_call_that_cannot_be_read_says_so_and_a_failed_tool_is_an_error() -> None:
    sample = sample_of(row(error="its tools failed"), call("{", well_formed=False), "m")
    check_sample(sample)
    (made,) = sample["messages"][2]["tool_calls"]
    assert made["arguments"] == {"text": "{"} and made["parse_error"]
    assert sample["messages"][3]["error"] == {"type": "unknown", "message": "no"}
    assert [m["role"] for m in sample["input"]] == ["system", "user"]
    assert sample["output"]["choices"][0]["stop_reason"] == "max_tokens"
    assert summary_of(sample)["error"] == "its tools failed"
    assert summary_of(sample)["input"] == "Go."


@mutation(
    "half a character stops a log", "genenv_core/exchange/inspect_logs/archive.py",
    'text.encode("utf-8", "replace")', "text.encode()",
)  # fmt: skip
def test_halves_of_characters_and_long_texts_are_written(tmp_path: Path) -> None:
    messages: list[Message] = [
        {"role": "user", "content": "\ud800 \x00 é"},
        {"role": "assistant", "content": "w" * 3_000_000},
    ]
    sample = sample_of(row(), messages, "m")
    with LogFile(tmp_path / "a.eval", {}) as log:
        log.add(sample, summary_of(sample))
        log.finish({})
    with zipfile.ZipFile(tmp_path / "a.eval") as log:
        stored = json.loads(log.read("samples/t1_epoch_1.json"))
        (summary,) = json.loads(log.read("summaries.json"))
    assert stored["input"] == "? \x00 é"
    assert len(stored["messages"][1]["content"]) == 3_000_000
    assert len(summary["scores"]["success"]["answer"]) == 1000


def test_an_empty_log_is_whole(tmp_path: Path) -> None:
    with LogFile(tmp_path / "a.eval", {}) as log:
        log.finish({"version": 2})
    with zipfile.ZipFile(tmp_path / "a.eval") as log:
        assert json.loads(log.read("summaries.json")) == []


@mutation(
    "a log hides that the conversation began anew", SAMPLES,
    'if messages[place].get("anew"):', "if False:",
)  # fmt: skip
def test_a_message_that_begins_the_conversation_anew_says_so() -> None:
    again: Message = {"role": "user", "content": "Go on.", "anew": True}
    sample = sample_of(row(), [*call("{}"), again, {"role": "assistant", "content": "y"}], "m")
    check_sample(sample)
    assert [m.get("metadata") for m in sample["messages"]] == [None] * 4 + [{"anew": True}, None]
