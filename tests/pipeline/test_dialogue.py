"""Whole epochs with several turns: tools executed by workers, and played by pi_env.

Invariants: traces of several turns reach training with observations masked; shards finish in any
order, and an interrupted run continues with the missing ones, to the same rows; settings of tool
execution change no key; simulated observations are marked in the pools, and the evaluation executes
tools.
"""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest

from genenv_core.config.schema import RunConfig
from genenv_core.storage.store.local import LocalStore
from tests.pipeline.builders import manifests, run, sql, tiny

DIALOGUE = (
    "domain.options={max_calls: 2, max_operand: 3, dialogue: true}",
    "bootstrap.agent_steps=400",
    "rollout.max_turns=4",
    "rollout.shard_groups=2",
)


@pytest.fixture(scope="module")
def played(api: None, tiny_root: Path) -> RunConfig:
    config = tiny(tiny_root, *DIALOGUE, "tools.execution=workers", epochs=1, run_id="dialogue")
    run(config)
    return config


@pytest.mark.slow  # tests/pipeline/test_trails.py plays several turns in the default run
def test_attempts_of_several_turns_train_the_agent(played: RunConfig):
    turns = sql(played, "SELECT turns, count(*) AS n FROM traces GROUP BY turns")
    assert turns.filter(pl.col("turns") > 1)["n"].sum() > 10
    rows = sql(
        played,
        "SELECT turns, token_ids, logprobs, loss_mask, messages FROM traces "
        "JOIN trace_tokens USING (run_id, trace_id) WHERE turns > 1",
    )
    for row in rows.iter_rows(named=True):
        mask, messages = row["loss_mask"], json.loads(row["messages"])
        assert 0 < sum(mask) < len(mask)
        seen = [p for p, m in zip(row["logprobs"], mask, strict=True) if not m]
        assert set(seen) == {0.0}
        runs = sum(m and not before for before, m in zip([0, *mask], mask, strict=False))
        assert runs == row["turns"] == sum(m["role"] == "assistant" for m in messages)
    assert sql(played, "SELECT count(*) AS n FROM scores WHERE success")["n"][0] > 0
    grpo = manifests(played)[1, "grpo_update"]
    assert grpo.facts["action"] == "updated"
    assert abs(grpo.facts["metrics"]["ratio_mean"] - 1) < 1e-3  # logprobs belong to their tokens


@pytest.mark.slow
def test_a_run_that_lost_some_shards_ends_with_the_same_rows(
    played: RunConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    from tasks.stage.shards import Shards

    rollout = manifests(played)[1, "rollout"]
    config = tiny(
        tmp_path,
        *DIALOGUE,
        "tools.execution=workers",
        "execution.tool_workers=2",
        "execution.open_attempts=9",
        epochs=1,
        run_id="again",
    )
    whole = Shards.finish
    finished: list[int] = []

    def interrupted(context, number, tables):
        if len(finished) == 2:
            raise RuntimeError("the machine is gone")
        finished.append(number)
        return whole(context, number, tables)

    monkeypatch.setattr(Shards, "finish", interrupted)
    with pytest.raises(Exception, match="the machine is gone"):
        run(config)
    monkeypatch.setattr(
        Shards, "finish", lambda *given: (finished.append(given[1]), whole(*given))[1]
    )
    run(config)
    assert len(finished) == len(set(finished)) == len(rollout.parts) // 2  # none was made twice
    again = manifests(config)[1, "rollout"]
    assert (again.key, again.parts) == (rollout.key, rollout.parts)
    assert LocalStore(tmp_path).root != LocalStore(Path(played.root)).root


@pytest.mark.slow
def test_pi_env_plays_the_tools(api: None, tiny_root: Path):
    config = tiny(
        tiny_root,
        *DIALOGUE,
        "tools.execution=simulated",
        "rollout.n=2",
        epochs=1,
        run_id="simulated",
    )
    run(config)
    rows = sql(config, "SELECT messages FROM trace_tokens")
    tools = [
        message
        for text in rows["messages"]
        for message in json.loads(text)
        if message["role"] == "tool"
    ]
    assert len(tools) > 5
    assert all(message["simulated"] for message in tools)
    answered = [message for message in tools if not message.get("error")]
    assert {message["content"] for message in answered} >= {"recorded"}
    evaluation = manifests(config)[1, "evaluate"]
    for split in ("validation", "test"):
        assert 0 <= evaluation.facts[split]["sampled"] <= 1
        assert 0 < evaluation.facts[split]["answer_probability"] < 1
