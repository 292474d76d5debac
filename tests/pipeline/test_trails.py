"""Whole epochs of the domain trails: what a tool says decides the next turn, the answer is free.

Invariants: the observations of an attempt hold what the cards say, and the next call follows them;
rewards strictly between 0 and 1 are stored and train the agent, and none of them is a success; what
pi_env says in the place of the tool is marked, held against the cards, and judged by them all the
same; the new pi_env is asked again, and behind the gate of fidelity neither policy is published.
"""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from genenv_core.config.schema import RunConfig
from genenv_core.domains.trails.trails_domain import read_look
from genenv_core.domains.trails.wording import NO_CARD, TOOL
from genenv_core.errors import DomainError
from tests.pipeline.builders import manifests, run, sql, tiny

pytestmark = pytest.mark.slow

TRAILS = (
    "domain.name=trails",
    "domain.options={max_looks: 2}",
    "bootstrap.agent_steps=400",
    "rollout.max_turns=4",
)
SIMULATED = ("tools.execution=simulated", "rollout.n=2")
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


@pytest.fixture(scope="module")
def simulated(played: RunConfig) -> RunConfig:
    config = tiny(
        Path(played.root),
        *TRAILS,
        *SIMULATED,
        epochs=1,
        run_id="trails-simulated",
    )
    run(config)
    return config


def test_pi_env_reads_the_cards_in_the_place_of_the_tool(played: RunConfig, simulated: RunConfig):
    assert manifests(simulated)[0, "bootstrap"].key == manifests(played)[0, "bootstrap"].key
    rows = list(sql(simulated, _ATTEMPTS).iter_rows(named=True))
    seen = [seen for row in rows for _, _, seen in _looks(row)]
    assert len(seen) > 5 and all(message["simulated"] for message in seen)
    assert sum("error" not in message for message in seen) > 5
    assert {message["name"] for message in seen if "error" not in message} == {TOOL}
    for row in rows:
        if row["success"]:
            last = json.loads(row["messages"])[-1]["content"]
            assert json.loads(row["spec"])["asked"]["value"] in last


def test_what_pi_env_says_is_held_against_the_cards(simulated: RunConfig):
    heard = sql(simulated, "FROM observations JOIN tasks USING (run_id, task_id)")
    rows = {(row["trace_id"], row["turn"]): row for row in heard.iter_rows(named=True)}
    attempts = sql(simulated, "SELECT trace_id, task_id, messages FROM traces JOIN trace_tokens "
                   "USING (run_id, trace_id)")  # fmt: skip
    looks = 0
    for attempt in attempts.iter_rows(named=True):
        messages = json.loads(attempt["messages"])
        turn = -1
        for said, seen in itertools.pairwise(messages):
            turn += said["role"] == "assistant"
            if said["role"] != "assistant" or seen["role"] != "tool":
                continue
            try:
                person, field = read_look(said["content"])
            except DomainError:
                assert (attempt["trace_id"], turn) not in rows  # pi_env was not asked
                continue
            row, looks = rows[attempt["trace_id"], turn], looks + 1
            true = json.loads(row["spec"])["cards"].get(person, {}).get(field, NO_CARD)
            assert (row["said"], row["true_content"]) == (seen["content"], true)
            assert row["fits_schema"] == row["same_state"] == ("error" not in seen)
            assert (row["fidelity"] == 1.0) == (seen["content"] == true)
    assert looks == len(rows) > 5
    (of_epoch,) = sql(simulated, "FROM fidelity").to_dicts()
    assert of_epoch["observations"] == looks
    assert of_epoch["fidelity"] == pytest.approx(heard["fidelity"].mean())
    assert manifests(simulated)[1, "score"].facts["fidelity"] == pytest.approx(of_epoch["fidelity"])


def test_a_lying_pi_env_is_stopped_by_the_gate(simulated: RunConfig):
    """That of the preset tiny misreads most cards; the gate is all that stops the two policies."""
    (of_epoch,) = sql(simulated, "FROM fidelity").to_dicts()
    gates = sql(simulated, "SELECT policy, gate, gate_detail, published FROM checkpoints "
                "WHERE epoch = 1 ORDER BY policy").rows()  # fmt: skip
    assert of_epoch["fidelity"] < 0.3 and of_epoch["candidate"] < 0.3
    (agent, env) = gates
    assert agent[:2] == ("agent", "fidelity") and not agent[3]
    assert f"{of_epoch['fidelity']:.4f} < gates.min_fidelity 0.3" in agent[2]
    assert env[:2] == ("env", "fidelity") and not env[3]
    assert f"{of_epoch['candidate']:.4f} < gates.min_fidelity 0.3" in env[2]
    assert of_epoch["candidate_gate"] == "fidelity"
    open_gates = tiny(
        Path(simulated.root),
        *TRAILS,
        *SIMULATED,
        "gates.min_fidelity=0",
        epochs=1,
        run_id="trails-lenient",
    )
    run(open_gates)
    assert manifests(open_gates)[1, "rwr_update"].key == manifests(simulated)[1, "rwr_update"].key
    assert manifests(open_gates)[1, "publish"].facts["published"] == {"agent": True, "env": True}


def test_executed_tools_have_no_fidelity(played: RunConfig):
    assert sql(played, "FROM observations").is_empty() and sql(played, "FROM fidelity").is_empty()
    of_run = manifests(played)
    assert "fidelity" not in of_run[1, "score"].facts
    assert "fidelity" not in of_run[1, "rwr_update"].facts["metrics"]
