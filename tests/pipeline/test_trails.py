"""Whole epochs of the domain trails: what a tool says decides the next turn, the answer is free.

Invariants: the observations of an attempt hold what the cards say, and the next call follows them;
rewards strictly between 0 and 1 are stored and train the agent, and none of them is a success; what
pi_env says in the place of the tool is marked, and judged by the cards all the same.
"""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from genenv_core.config.schema import RunConfig
from genenv_core.domains.trails.domain import read_look
from genenv_core.domains.trails.wording import NO_CARD
from genenv_core.errors import DomainError
from tests.pipeline.builders import manifests, run, sql, tiny

TRAILS = (
    "domain.name=trails",
    "domain.options={max_looks: 2}",
    "bootstrap.agent_steps=400",
    "rollout.max_turns=4",
)
_ATTEMPTS = """
SELECT turns, spec, messages, reward, success FROM traces
JOIN trace_tokens USING (run_id, trace_id)
JOIN scores USING (run_id, trace_id)
JOIN tasks ON tasks.run_id = traces.run_id AND tasks.task_id = traces.task_id
"""


@pytest.fixture(scope="module")
def played(api: None, tiny_root: Path) -> RunConfig:
    config = tiny(tiny_root, *TRAILS, epochs=1, run_id="trails")
    run(config)
    return config


def _looks(row: dict[str, Any]) -> list[tuple[str, str, dict[str, Any]]]:
    """Return (person, field, the tool's message) of each call in an attempt that could be read."""
    messages = json.loads(row["messages"])
    looks: list[tuple[str, str, dict[str, Any]]] = []
    for said, seen in itertools.pairwise(messages):
        if said["role"] == "assistant" and seen["role"] == "tool":
            try:
                looks.append((*read_look(said["content"]), seen))
            except DomainError:
                assert seen["error"]
    return looks


def test_the_cards_answer_each_turn_and_the_next_one_follows(played: RunConfig):
    rows = sql(played, _ATTEMPTS).filter(pl.col("turns") > 2)
    followed = 0
    for row in rows.iter_rows(named=True):
        cards = json.loads(row["spec"])["cards"]
        looks = _looks(row)
        for person, field, seen in looks:
            assert seen["content"] == cards.get(person, {}).get(field, NO_CARD)
            assert "simulated" not in seen
        people = [person for person, _, _ in looks]
        followed += people == list(cards) and len(people) == 2
    assert followed > 5


def test_similar_answers_earn_a_part_of_the_reward_and_train_the_agent(played: RunConfig):
    scores = sql(played, "SELECT reward, success, failure FROM scores")
    soft = scores.filter((pl.col("reward") > 0) & (pl.col("reward") < 1))
    assert len(soft) > 3 and not soft.filter(pl.col("reward") < 0.85)["success"].any()
    assert set(soft["failure"]) <= {"", "wrong_value", "wrong_words"}
    right = scores.filter(pl.col("success"))
    assert len(right) > 3 and min(right["reward"]) >= 0.85
    grpo = manifests(played)[1, "grpo_update"]
    assert grpo.facts["action"] == "updated"
    evaluation = manifests(played)[1, "evaluate"].facts["test"]
    assert 0 < evaluation["sampled"] < 1
    assert "answer_probability" not in evaluation  # no wording is the reference


def test_pi_env_reads_the_cards_in_the_place_of_the_tool(played: RunConfig):
    config = tiny(
        Path(played.root),
        *TRAILS,
        "tools.execution=simulated",
        "rollout.n=2",
        epochs=1,
        run_id="trails-simulated",
    )
    run(config)
    assert manifests(config)[0, "bootstrap"].key == manifests(played)[0, "bootstrap"].key
    rows = list(sql(config, _ATTEMPTS).iter_rows(named=True))
    seen = [seen for row in rows for _, _, seen in _looks(row)]
    assert len(seen) > 5 and all(message["simulated"] for message in seen)
    assert sum("error" not in message for message in seen) > 5
    for row in rows:
        if row["success"]:
            last = json.loads(row["messages"])[-1]["content"]
            assert json.loads(row["spec"])["asked"]["value"] in last
