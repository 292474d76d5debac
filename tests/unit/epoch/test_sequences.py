"""Attempts of several sequences as rows: those that are stored, and those of an update.

Invariants: `trace_sequences` is written where a conversation began anew and nowhere else; counts of
tokens are of all sequences; in an update each sequence is a row behind the one before it, with what
its attempt has, and there is one sample, with one advantage, an attempt.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import polars as pl

from genenv_core.config.sections.rollout import RolloutConfig
from genenv_core.config.sections.updates import MixtureConfig
from genenv_core.epoch.agent_update import agent_rows
from genenv_core.epoch.attempts import attempt
from genenv_core.epoch.rows import UpdateRows, frame
from genenv_core.training.grpo.advantages import grpo_advantages
from genenv_core.types import FurtherSequence, Rollout
from schemas.registry import schema
from tests.mutations import mutation
from tests.unit.epoch.builders_epoch import Player, seed_for, task

ATTEMPTS = "genenv_core/epoch/attempts.py"
TYPES = "genenv_core/types.py"
UPDATE = "genenv_core/epoch/agent_update.py"

MORE = (
    FurtherSequence(1, 2, 0, 1, (7, 8), (65, 9, 66), (-0.25, 0.0, -0.75), (1, 0, 1)),
    FurtherSequence(3, 6, 1, 3, (7,), (67,), (-1.5,), (1,)),
)


class Forgetful(Player):
    """Its second attempt at each task has three sequences."""

    def groups(self, *given: Any, **how: Any) -> Iterator[tuple[int, list[Rollout]]]:
        for index, (first, second) in super().groups(*given, **how):
            yield index, [first, replace(second, more=MORE)]


def stored(player: Player) -> dict[str, pl.DataFrame]:
    ((_, tables),) = attempt(
        player,
        [task("a")],
        {0: range(1)},
        RolloutConfig(n=2, max_tokens=7),
        epoch=2,
        scope="0123456789",
        policy_version=1,
        decode=lambda ids: "".join(map(chr, ids)),
        seed_for=seed_for,
    )
    return tables


@mutation("the table is written without a row", ATTEMPTS, "if more else {}", "if True else {}")
@mutation(
    "sequences count from 0", ATTEMPTS, "enumerate(rollout.more, 1)", "enumerate(rollout.more)"
)
@mutation(
    "only the first sequence counts", TYPES,
    "return (self, *self.more)", "return (self,)",
)  # fmt: skip
def test_further_sequences_are_rows_of_a_table_of_their_own() -> None:
    tables, plain = stored(Forgetful({})), stored(Player({}))
    assert list(plain) == ["traces", "trace_tokens"]
    assert list(tables) == ["traces", "trace_tokens", "trace_sequences"]
    assert tables["trace_tokens"]["token_ids"].equals(plain["trace_tokens"]["token_ids"])
    second = tables["traces"]["trace_id"][1]
    expected = [
        {
            "trace_id": second, "sequence": 1, "turn": 1, "message": 2,
            "parent": 0, "branch_turn": 1, "prompt_ids": [7, 8],
            "token_ids": [65, 9, 66], "logprobs": [-0.25, 0.0, -0.75], "loss_mask": [1, 0, 1],
        },
        {
            "trace_id": second, "sequence": 2, "turn": 3, "message": 6,
            "parent": 1, "branch_turn": 3, "prompt_ids": [7],
            "token_ids": [67], "logprobs": [-1.5], "loss_mask": [1],
        },
    ]  # fmt: skip
    assert tables["trace_sequences"].to_dicts() == expected
    # "no" is two tokens after three; sequences add 2 + 1 sampled after 2 + 1.
    assert tables["traces"]["response_tokens"].to_list() == [2, 5]
    assert tables["traces"]["prompt_tokens"].to_list() == [3, 6]
    assert tables["trace_tokens"]["response_text"].to_list() == ["no", "noABC"]


def rows_of(sequences: pl.DataFrame | None) -> UpdateRows:
    """Return the rows of an update on two attempts, the second one of three sequences."""
    names = ["x-0", "x-1"]
    pool = frame(
        "d_train",
        [
            {
                "trace_id": name, "epoch": 5, "task_id": "t", "group_id": "x",
                "policy_version": 7, "source": "new", "reward": reward, "success": reward == 1,
            }
            for name, reward in zip(names, (0.0, 1.0), strict=True)
        ],
    )  # fmt: skip
    kept = ("trace_id", "prompt_ids", "token_ids", "logprobs", "loss_mask")
    tokens = pl.DataFrame(
        [(name, [1], [2, 3], [-0.5, -0.5], [1, 1]) for name in reversed(names)],
        schema={name: schema("trace_tokens")[name] for name in kept},
        orient="row",
    )
    ends = pl.DataFrame(
        [("x-1", "length"), ("x-0", "stop")], ["trace_id", "finish_reason"], orient="row"
    )
    return agent_rows(
        pool,
        pool.clear(),
        tokens,
        ends,
        epoch=5,
        policy_version=7,
        mixture=MixtureConfig(new=1, base=0, history=0),
        max_groups=4,
        advantages=lambda groups: grpo_advantages(groups, scale=False),
        seed=0,
        sequences=sequences,
    )


@mutation(
    "sequences of an attempt are in any order", UPDATE,
    'whole.sort("place", "sequence").drop("place")', 'whole.drop("place")',
)  # fmt: skip
def test_an_update_has_a_row_for_each_sequence_and_a_sample_for_each_attempt() -> None:
    sequences = stored(Forgetful({}))["trace_sequences"].with_columns(trace_id=pl.lit("x-0"))
    made = rows_of(sequences.reverse())
    assert made.training.drop("loss_mask").rows() == [
        ("x", [1], [2, 3], [-0.5, -0.5], 0.0, False, 0),
        ("x", [7, 8], [65, 9, 66], [-0.25, 0.0, -0.75], 0.0, False, 1),
        ("x", [7], [67], [-1.5], 0.0, False, 2),
        ("x", [1], [2, 3], [-0.5, -0.5], 1.0, True, 0),
    ]
    assert made.samples.select("row_id", "advantage").rows() == [("x-0", -0.5), ("x-1", 0.5)]


def test_an_update_on_attempts_of_one_sequence_has_the_rows_that_it_had() -> None:
    others = stored(Forgetful({}))["trace_sequences"]  # of an attempt that is not drawn
    for sequences in (None, others, others.clear()):
        made = rows_of(sequences)
        assert "sequence" not in made.training.columns
        assert made.training.equals(rows_of(None).training)
