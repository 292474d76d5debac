"""Commands that read a run: report, trace, export; and runs that start from other base data.

Invariants: each command works on a real run and on its ids; a trace shows the same tokens, its
verdict and the updates that used it; the error on an unknown id says how to find one; exported
prompts are those that pi_env got; a run on imported base tasks uses only these.
"""

from __future__ import annotations

import json
import math
from pathlib import Path

import polars as pl
import pytest

from genenv_core.config.schema import RunConfig
from genenv_core.errors import QueryError
from genenv_core.storage.sql.lookup import look_up
from genenv_core.storage.store.local import LocalStore
from tests.pipeline.builders import manifests, run, sql, tiny
from tests.pipeline.commands import refused, said


@pytest.fixture(scope="module")
def played(api, tiny_root: Path) -> RunConfig:
    config = tiny(tiny_root, run_id="read")
    run(config)
    return config


@pytest.mark.slow
def test_a_trace_is_shown_with_all_that_became_of_it(played: RunConfig, tmp_path: Path) -> None:
    row = sql(
        played,
        "SELECT u.row_id, u.advantage, c.digest FROM update_samples AS u JOIN checkpoints AS c "
        "ON c.policy = u.policy AND c.epoch = u.epoch WHERE u.policy = 'agent' ORDER BY 1 LIMIT 1",
    ).to_dicts()[0]
    # Other tests' runs in this root share the rollouts, and not all of them trained on them.
    command = ("trace", row["row_id"], "--run", "read", "--root", played.root)
    shown = said(*command, cwd=tmp_path)
    assert shown.returncode == 0, shown.stderr
    for words in ("task t0", "pi_env was shown", "and wrote", "expected answer", "logprobs:"):
        assert words in shown.stdout
    assert (
        f"advantage {row['advantage']:+.3f}, made checkpoint {row['digest'][:12]}" in shown.stdout
    )
    found = json.loads(said(*command, "--json", cwd=tmp_path).stdout)
    (trace,) = found["groups"][0]["traces"]
    assert trace["facts"]["trace_id"] == row["row_id"]
    assert "pi_agent was shown" in shown.stdout
    asked = trace["messages"][0]["content"]
    assert asked in trace["shown"] and trace["shown"] != asked  # with what the template adds
    sampled = "".join(token["text"] for token in trace["tokens"] if token["sampled"])
    assert sampled.startswith(trace["messages"][1]["content"])  # then the token that ends the turn


@pytest.mark.slow
def test_ids_of_groups_tasks_and_generations_name_their_attempts(played: RunConfig) -> None:
    store = LocalStore(Path(played.root))
    row = sql(
        played,
        "SELECT g.*, t.generation_id FROM task_scores AS g JOIN tasks AS t USING (task_id) "
        "WHERE g.source = 'generated' AND g.epoch = 1 ORDER BY g.group_id LIMIT 1",
    ).to_dicts()[0]
    for ident in (row["group_id"], row["task_id"], row["generation_id"]):
        record = look_up(store, ident, "read")
        assert record.facts["task_id"] == row["task_id"]
        (group,) = record.groups
        assert len(group.traces) == row["n"]
        assert sum(t.facts["success"] for t in group.traces) == row["successes"]
        assert {s["update"] for s in group.selections} == {"agent", "env"}
        assert all(math.isfinite(token.logprob) for token in record.written)
        assert "success none; base:" in record.shown
    heldout = sql(played, "SELECT task_id FROM evaluations LIMIT 1").item()
    assert look_up(store, heldout).groups == []


@pytest.mark.slow
def test_an_unknown_id_says_what_ids_look_like(played: RunConfig, tmp_path: Path) -> None:
    done = said("trace", "x'y", "--root", played.root, cwd=tmp_path)
    refused(done, 2, '"x\'y"', "g000001-", "t000001-", "genenv sql")
    with pytest.raises(QueryError, match="no run 'nope'"):
        look_up(LocalStore(Path(played.root)), "x", "nope")


@pytest.mark.slow
def test_report_and_export_of_a_real_run(played: RunConfig, tmp_path: Path) -> None:
    done = said("report", "read", "-o", "r.html", "--root", played.root, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "2/2 epochs" in done.stdout and (tmp_path / "r.html").stat().st_size > 50_000
    refused(said("report", "nope", "--root", played.root, cwd=tmp_path), 2, "'nope'", "read")
    command = ("export", "read", "--pool", "d_env", "--root", played.root)
    done = said(*command, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    rows = pl.read_parquet(tmp_path / "read-d_env-hf" / "data" / "*.parquet")
    store = LocalStore(Path(played.root))
    for row in (rows.row(0, named=True), rows.row(-1, named=True)):
        shown = look_up(store, row["generation_id"], "read").shown
        assert row["prompt"][0]["content"] in shown
    refused(said(*command, cwd=tmp_path), 2, "is there already")
    refused(said(*command, "--epochs", "5:3", cwd=tmp_path), 2, "'5:3'")


@pytest.mark.slow
def test_a_run_plays_with_imported_base_tasks(
    played: RunConfig, tiny_root: Path, tmp_path: Path
) -> None:
    programs = sql(played, "SELECT program FROM tasks WHERE source = 'base'")["program"].to_list()
    (tmp_path / "mine.csv").write_text("\n".join(["text", *programs[:5], "no task"]) + "\n")
    done = said("import", "mine.csv", "--map", "program=text", "-o", "b.jsonl", cwd=tmp_path)
    refused(done, 2, "mine.csv:7", '"text"', "no task", "skip")
    done = said(
        *("import", "mine.csv", "--map", "program=text", "-o", "b.jsonl", "--skip-bad"),
        cwd=tmp_path,
    )
    assert "5 tasks" in done.stdout and "skipped rows: 1" in done.stdout, done.stderr
    assert "mine.csv:7" in (tmp_path / "b.jsonl.skipped.txt").read_text()
    config = tiny(
        tiny_root,
        f"data.base_file={tmp_path / 'mine.csv'}",
        "data.base_mapping.program=text",
        "data.skip_bad=true",
        epochs=1,
        run_id="mine",
    )
    run(config)
    played_with = sql(config, "SELECT program FROM tasks WHERE source = 'base' ORDER BY task_id")
    assert played_with["program"].to_list() == programs[:5]
    facts = manifests(config)[(0, "bootstrap")].facts
    assert facts["skipped_rows"] == 1 and facts["skipped_first"][0].startswith("mine.csv:7: ")
