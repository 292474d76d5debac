"""Counting groups with a signal while attempts are made.

Invariants: the count is what `score` and `filter` will keep for the agent update, of new tasks
alone: rewards that differ by more than rounding, verdicts of the agent alone, whole groups, and the
band where it guards the agent; it is the same whether attempts come in one round or in several.
"""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest

from genenv_core.config.load import resolve
from genenv_core.config.sections.curriculum import CurriculumConfig
from genenv_core.config.sections.rollout import RolloutConfig
from genenv_core.epoch.attempting.refilling import Refill, SignalCount, refill_of
from genenv_core.epoch.attempts import attempt
from genenv_core.epoch.rows import frame
from genenv_core.epoch.scoring import score
from genenv_core.epoch.selecting import select
from genenv_core.types import Cause, Task, TaskSource
from tests.mutations import mutation
from tests.unit.epoch.builders_epoch import Player, WordsDomain, rollout, seed_for, task

REFILLING = "genenv_core/epoch/attempting/refilling.py"

RIGHT = {"even": 2, "easy": 4, "hard": 0, "once": 1, "base": 2}
"""Successes in four attempts."""


class Losing(Player):
    """Loses the right answers at the word `lost`, and all but one attempt at `few`."""

    def groups(self, batches: Any, **how: Any) -> Any:
        """Yield groups in task order."""
        for index, made in super().groups(batches, **how):
            gone = {"lost": range(2), "few": range(1, 4)}.get(made[0].task_id, ())
            yield (
                index,
                [
                    rollout(one.task_id, place, "no", error="gone", cause=Cause.ENVIRONMENT)
                    if place in gone
                    else one
                    for place, one in enumerate(made)
                ],
            )


def attempted(*words: str) -> tuple[list[Task], pl.DataFrame, pl.DataFrame]:
    """Return tasks, and the rows of `traces` and `trace_tokens` of four attempts at each."""
    tasks = [
        task(word, TaskSource.BASE if word == "base" else TaskSource.GENERATED) for word in words
    ]
    ((_, tables),) = attempt(
        Losing(RIGHT | {"lost": 2, "few": 1}),
        tasks,
        {0: range(len(tasks))},
        RolloutConfig(n=4),
        epoch=2,
        scope="".join(words).ljust(8, "x"),
        policy_version=1,
        decode=lambda ids: "".join(map(chr, ids)),
        seed_for=seed_for,
    )
    return tasks, tables["traces"], tables["trace_tokens"]


def counted(*rounds: tuple[str, ...], **curriculum: Any) -> SignalCount:
    count = SignalCount(WordsDomain(), epoch=2, curriculum=CurriculumConfig(**curriculum))
    for words in rounds:
        count.add(*attempted(*words))
    return count


def kept(words: tuple[str, ...], **curriculum: Any) -> int:
    """Return how many groups of new tasks the stages `score` and `filter` keep for the agent."""
    tasks, traces, tokens = attempted(*words)
    settings = CurriculumConfig(**curriculum)
    scored = score(
        traces, tokens, tasks, WordsDomain(), epoch=2, curriculum=settings, seed_of=lambda *_: 0
    )
    made = select(
        frame("tasks", []), scored.tables["task_scores"], traces, epoch=2, curriculum=settings
    )
    rows = made.tables["selections"].filter(pl.col("kept"), update="agent")
    return rows.filter(~pl.col("task_id").is_in(["base"])).height


@mutation(
    "groups of base tasks fill the batch", REFILLING,
    "if one.source is not TaskSource.BASE}", "}",
)  # fmt: skip
@mutation(
    "attempts that an environment broke are verdicts", "genenv_core/epoch/scoring.py",
    "    verdicts = with_verdict(played)\n", "    verdicts = played\n",
)  # fmt: skip
@pytest.mark.parametrize(
    ("words", "curriculum", "groups"),
    [
        (("even", "easy", "hard", "once"), {}, 2),
        (("even", "base"), {}, 1),
        (("even", "lost"), {}, 1),  # two wrong answers are left of it: equal rewards
        (("even", "few"), {}, 1),  # one verdict is no group
        (("even", "once"), {"filter_agent": True, "k_min": 0.1}, 1),
        ((), {}, 0),
    ],
)
def test_it_counts_what_the_agent_update_may_use(
    words: tuple[str, ...], curriculum: dict[str, Any], groups: int
) -> None:
    if not words:
        assert counted().with_signal == counted().attempted == 0
        return
    count = counted(words, **curriculum)
    assert count.with_signal == groups == kept(words, **curriculum)
    assert count.attempted == len([word for word in words if word != "base"])


@mutation(
    "a round forgets the groups before it", REFILLING,
    "self._verdicts += verdicts_of(", "self._verdicts = verdicts_of(",
)  # fmt: skip
def test_rounds_add_up() -> None:
    assert counted(("even", "easy"), ("once",), ("hard", "lost")).with_signal == 2
    assert counted(("even", "easy", "once", "hard", "lost")).with_signal == 2


def test_a_configuration_says_how_far_an_epoch_is_refilled() -> None:
    """The preset tiny attempts 8 tasks."""
    three = ["generation.candidates=3", "refill.groups=5"]
    assert refill_of(resolve("tiny", overrides=three)) == Refill(5, 24)
    bound = [*three, "refill.max_tasks=12"]
    assert refill_of(resolve("tiny", overrides=bound)) == Refill(5, 12)
