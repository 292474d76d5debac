"""The tasks that each update may use.

Invariants: each task has one decision for each update; pi_env learns only from its own tasks; a
rejected task is rejected in both updates, without rollouts, and so is one that nobody attempted; a
group without a rating was incomplete, and has no p_hat; the band uses p_hat of the configured
level, or a base task's own; it applies to the agent where configured.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import polars as pl
import pytest

from genenv_core.config.sections.curriculum import CurriculumConfig, Level
from genenv_core.epoch.rows import Output, frame
from genenv_core.epoch.selecting import select
from tests.mutations import mutation
from tests.unit.epoch.builders_epoch import generated, group


def decide(
    groups: list[dict[str, Any]],
    tasks: list[dict[str, Any]] | None = None,
    lost: Sequence[str] = (),
    **curriculum: Any,
) -> Output:
    """Return the decisions; the groups of the tasks `lost` have attempts and no rating."""
    attempts = [{"task_id": name, "group_id": f"g-{name}"} for name in lost for _ in range(4)]
    return select(
        frame("tasks", tasks or []),
        frame("task_scores", groups),
        frame("traces", attempts),
        epoch=2,
        curriculum=CurriculumConfig(alpha=0.5, k_min=0.25, **curriculum),
    )


def reasons(output: Output) -> dict[str, tuple[str, str]]:
    """Return the reasons of each task, for the agent and for pi_env."""
    rows = output.tables["selections"]
    agent, env = (
        dict(rows.filter(pl.col("update") == name).select("task_id", "reason").iter_rows())
        for name in ("agent", "env")
    )
    assert agent.keys() == env.keys() and rows.height == 2 * len(agent)
    return {task: (agent[task], env[task]) for task in agent}


@mutation(
    "a task that nobody attempted counts as rejected", "genenv_core/algorithm/selection.py",
    "        return SelectionReason.NOT_ATTEMPTED", "        return SelectionReason.INVALID_TASK",
)  # fmt: skip
@mutation(
    "a group without a rating was never attempted", "genenv_core/epoch/selecting.py",
    "attempted=group is not None", "attempted=False",
)  # fmt: skip
def test_a_decision_for_each_task_and_update() -> None:
    output = decide(
        [
            group("half", 2),
            group("hard", 0),
            group("easy", 4),
            group("short", 1, n=2),  # two of its attempts were lost
            group("base", 2, "base"),
            group("teacher", 2, "teacher"),
        ],
        [
            generated("bad", rejection="duplicate"),
            generated("half"),
            generated("candidate", choice="not_chosen"),
            generated("lost"),
        ],
        lost=["lost"],
    )
    assert reasons(output) == {
        "half": ("kept", "kept"),
        "hard": ("zero_signal", "below_band"),
        "easy": ("zero_signal", "above_band"),
        "short": ("kept", "kept"),
        "base": ("kept", "not_in_update"),
        "teacher": ("kept", "not_in_update"),
        "bad": ("invalid_task", "invalid_task"),
        "candidate": ("not_attempted", "not_attempted"),
        "lost": ("incomplete_group", "incomplete_group"),
    }
    assert output.facts == {"kept_agent": 4, "kept_env": 2}
    rows = output.tables["selections"].filter(task_id="lost")
    assert rows.select("group_id", "p_hat", "distance").unique().rows() == [("g-lost", None, None)]


@mutation(
    "an invalid task is kept", "genenv_core/epoch/selecting.py",
    'valid=task["valid"],', "valid=True, complete=True, p_hat=0.5,",
)  # fmt: skip
def test_a_rejected_task_has_neither_group_nor_p_hat() -> None:
    bad = [generated("bad", rejection="duplicate"), generated("x", rejection="x", source="teacher")]
    rows = decide([], bad).tables["selections"]
    assert rows["reason"].to_list() == ["invalid_task"] * 4
    assert rows["kept"].to_list() == [False] * 4
    assert rows.select("group_id", "p_hat", "distance").null_count().row(0) == (4, 4, 4)


@pytest.mark.parametrize(
    ("level", "p_hat", "env"),
    [
        (Level.TASK, 1.0, "above_band"),
        (Level.GROUP, 0.625, "kept"),
        (Level.BATCH, 0.125, "below_band"),
    ],
)
def test_the_band_looks_at_the_configured_level(level: Level, p_hat: float, env: str) -> None:
    new = group("new", 4, p_hat_group=0.625, p_hat_batch=0.125)
    output = decide([new, group("base", 3, "base")], level=level, filter_agent=True)
    rows = output.tables["selections"].filter(pl.col("update") == "env")
    assert rows.select("p_hat", "distance").rows() == [(p_hat, abs(p_hat - 0.5)), (0.75, 0.25)]
    assert reasons(output)["new"] == (env if env != "kept" else "zero_signal", env)
    assert reasons(output)["base"] == ("kept", "not_in_update")


def test_the_band_guards_the_agent_where_configured() -> None:
    wide = decide([group("a", 4, zero_signal=False)])
    narrow = decide([group("a", 4, zero_signal=False)], filter_agent=True)
    assert reasons(wide) == {"a": ("kept", "above_band")}
    assert reasons(narrow) == {"a": ("above_band", "above_band")}
