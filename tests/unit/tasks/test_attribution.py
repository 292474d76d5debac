"""What is measured beside an agent update: its rows, its answers, and what it is refused for.

Invariants: shares have absolute sum 1; the tokens read are the rows' twice and the answers' three
times, told to the groups without loss; a domain without answers is refused by name, and so is an
agent in pieces; the stage's key has what this needs only where it is asked for.
"""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest

from genenv_core.config.load import resolve
from genenv_core.domains.desk import DeskDomain
from genenv_core.epoch.rows import UpdateRows
from genenv_core.errors import ConfigError
from genenv_core.training.grpo.taught import GroupInfluence, ScoredAnswer
from schemas.validate import validate
from tasks.grpo_update import STAGE
from tasks.policies.attribution import answering, influence_rows
from tasks.stage.key import parts_of
from tests.mutations import mutation
from tests.unit.builders_stage import NO_INPUTS

ATTRIBUTION = "tasks/policies/attribution.py"
CONTEXT = "tasks/stage/context.py"
ANSWERS = [ScoredAnswer((1, 2), (3, 4, 5), (1, 0, 1)), ScoredAnswer((1,), (3,), (1,))]


def rows_of(*groups: str) -> UpdateRows:
    """Return two attempts a group, of 2 + 3 tokens."""
    names = [group for group in groups for _ in range(2)]
    training = pl.DataFrame(
        {"group_id": names, "prompt_ids": [[1, 2]] * len(names),
         "completion_ids": [[3, 4, 5]] * len(names)}
    )  # fmt: skip
    sources = ["history" if name == "b" else "new" for name in names]
    return UpdateRows(training, pl.DataFrame({"group_id": names, "source": sources}))


@mutation(
    "shares sum up with their signs", ATTRIBUTION,
    "math.fsum(abs(one.alignment) for one in found)", "math.fsum(one.alignment for one in found)",
)  # fmt: skip
@mutation(
    "what is read to measure is counted once", ATTRIBUTION,
    '2 * pl.col("rows_tokens")', 'pl.col("rows_tokens")',
)  # fmt: skip
def test_rows_of_influence_by_hand() -> None:
    found = [GroupInfluence("b", -0.5, 4), GroupInfluence("a", 1.5, 6)]
    tasks = pl.DataFrame({"group_id": ["a", "b"], "task_id": ["ta", "tb"]})
    made = influence_rows(found, rows_of("b", "a"), tasks, ANSWERS, epoch=3)
    validate("influence", made)
    # Each group has 10 tokens in its rows, read twice; the answers have 7, read three times.
    assert made.rows(named=True) == [
        {"group_id": "b", "epoch": 3, "task_id": "tb", "source": "history", "alignment": -0.5,
         "share": -0.25, "loss_tokens": 4, "tokens": 30},
        {"group_id": "a", "epoch": 3, "task_id": "ta", "source": "new", "alignment": 1.5,
         "share": 0.75, "loss_tokens": 6, "tokens": 31},
    ]  # fmt: skip
    nothing = [GroupInfluence("a", 0.0, 6)]
    flat = influence_rows(nothing, rows_of("a"), tasks, ANSWERS, epoch=3)
    assert flat["share"].to_list() == [0.0]


def test_a_domain_without_answers_is_refused() -> None:
    domain: Any = DeskDomain()
    assert answering(domain) is domain

    class Silent:
        name = "silent"

    silent: Any = Silent()
    with pytest.raises(ConfigError, match="domain silent has no answer_turns, so P"):
        answering(silent)


@mutation(
    "the gradient of one sequence stands for an answer of several", ATTRIBUTION,
    "if begins_anew(domain):", "if False:",
)  # fmt: skip
def test_a_domain_that_begins_anew_is_refused() -> None:
    class Forgetful(DeskDomain):
        begins_anew = True

    with pytest.raises(ConfigError, match="domain desk begins the conversation anew, so an answer"):
        answering(Forgetful())


def test_sharded_agents_are_refused() -> None:
    sharded = ["training.strategy=fsdp2", "training.processes=2", "training.device=cuda"]
    assert resolve("tiny", overrides=sharded).training.sharded
    with pytest.raises(ConfigError, match="gradients of the whole agent in one process"):
        resolve("tiny", overrides=[*sharded, "grpo.attribution=true"])


@mutation(
    "what attribution needs is always in the key", CONTEXT,
    "            if attrgetter(more.asked)(config):", "            if True:",
)  # fmt: skip
@mutation(
    "what attribution reads is in no key", "tasks/stage/key.py",
    "    stage = stage.as_asked(config)\n", "",
)  # fmt: skip
def test_the_key_has_what_attribution_needs_where_it_is_asked_for() -> None:
    plain, asked = (
        parts_of(STAGE, resolve("tiny", overrides=on), 1, NO_INPUTS)
        for on in ([], ["grpo.attribution=true"])
    )
    more = {name.split(".")[0] for name in asked["config"].keys() - plain["config"].keys()}
    assert more == {"domain", "models", "rollout", "tools"}
    assert plain["config"]["grpo.attribution"] is False
    assert "domain" in asked["runtime"] and "domain" not in plain["runtime"]
    assert asked["code"] != plain["code"]
    same = {name: value for name, value in asked["config"].items() if name in plain["config"]}
    assert same == plain["config"] | {"grpo.attribution": True}
