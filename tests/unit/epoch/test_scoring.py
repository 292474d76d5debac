"""R_agent, p_hat and R_env of an epoch.

Invariants: NaN and a reward outside of [0, 1] are errors that name the trace; a broken trace counts
as failed, whatever its messages; one that was lost to an environment or an engine counts nowhere,
and a group with too few verdicts is not rated; R_env rewards only new tasks, at the configured
level, and base tasks are in no other task's p_hat.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace

import pytest

from genenv_core.config.sections.curriculum import CurriculumConfig, Level
from genenv_core.epoch.rows import Output, frame
from genenv_core.epoch.scoring import judge, score
from genenv_core.errors import DomainError
from genenv_core.types import TaskSource, Verdict
from tests.mutations import mutation
from tests.unit.epoch.builders_epoch import WordsDomain, task, trace

SCORING = "genenv_core/epoch/scoring.py"

E1, E4 = 0.36787944117144233, 0.7788007830714049  # e^-1, e^-1/4


def judged(reward: float):
    domain = SimpleNamespace(name="own", score=lambda draft, messages: Verdict(reward, True, ""))
    row = {"trace_id": "t-7", "epoch": 1, "task_id": "a", "group_id": "g"}
    return judge({**row, "error": "", "messages": "[]"}, task("a"), domain)


@pytest.mark.parametrize("reward", [0.0, 0.25, 1.0])
def test_a_reward_within_its_bounds_is_kept(reward: float):
    assert judged(reward)["reward"] == reward


@pytest.mark.parametrize("reward", [-0.01, 1.5, float("nan")])
def test_a_reward_out_of_bounds_names_trace_value_and_domain(reward: float):
    words = rf"domain own: score gives the reward {reward} .*trace t-7 .*from 0 to 1"
    with pytest.raises(DomainError, match=words):
        judged(reward)


def scored(
    level: Level = Level.TASK, lost: Sequence[str] = (), least_n: int = 2, chance: float = 0.0
) -> Output:
    """Return the scores of three new tasks in two contexts and of a base task.

    The traces `lost` have no verdict.
    Successes of 4: a 0, b 2 (both of context x), c 4 (context y), base 4. So the contexts have
    0.25 and 1, and the batch 0.5.
    """
    tasks = [task("a", context="x"), task("b", context="x"), task("c", context="y")]
    tasks = [replace(one, draft=replace(one.draft, chance=chance)) for one in tasks]
    right = {"a": 0, "b": 2, "c": 4, "base": 4}
    traces = [trace(f"g-{name}", index, name) for name in right for index in range(4)]
    said = [
        {
            "trace_id": row["trace_id"],
            "messages": json.dumps(
                [
                    {
                        "role": "assistant",
                        "content": row["task_id"].upper()
                        if row["sample_index"] < right[row["task_id"]]
                        else "what?",
                    }
                ]
            ),
        }
        for row in traces
    ]
    # Of a's, one broke behind the right answer.
    traces[3]["error"] = "boom"
    said[3]["messages"] = json.dumps([{"role": "assistant", "content": "A"}])
    for row in traces:
        if row["trace_id"] in lost:
            row |= {"error": "503: server gone", "cause": "engine"}
    return score(
        frame("traces", traces),
        frame("trace_tokens", said),
        [*tasks, task("base", TaskSource.BASE)],
        WordsDomain(),
        epoch=2,
        curriculum=CurriculumConfig(alpha=0.5, beta=4, level=level, least_n=least_n),
        seed_of=lambda place, sample: 0,
    )


@mutation(
    "a trace that broke may succeed", SCORING,
    '        if trace["error"]\n', '        if trace["error"] == "never"\n',
)  # fmt: skip
def test_each_trace_is_judged_and_one_that_broke_has_failed() -> None:
    rows = scored().tables["scores"]
    assert rows.height == 16
    of_a = rows.head(4).select("trace_id", "reward", "success", "failure").rows()
    assert of_a[2:] == [("g-a.2", 0.25, False, "wrong"), ("g-a.3", 0.0, False, "error")]
    assert rows["success"].sum() == 10


@mutation(
    "a lost attempt is judged", SCORING, "verdicts = with_verdict(played)", "verdicts = played"
)
@mutation(
    "two of two verdicts are a group of two", SCORING,
    "if n < min(curriculum.least_n, sizes[group]):", "if False:",
)  # fmt: skip
def test_what_was_lost_counts_nowhere() -> None:
    # Of b's four attempts two succeed: the second is lost. Of c's, three are; of a's, all.
    lost = ["g-b.1", "g-c.0", "g-c.1", "g-c.3", *(f"g-a.{index}" for index in range(4))]
    output = scored(Level.BATCH, lost)
    assert output.tables["scores"].height == 8 and not set(lost) & set(
        output.tables["scores"]["trace_id"]
    )
    rows = output.tables["task_scores"]
    columns = ("group_id", "n", "lost", "successes", "p_hat", "p_hat_batch", "reward_mean")
    assert rows.select(columns).rows() == [
        ("g-b", 3, 1, 1, 1 / 3, 1 / 3, 0.5),
        ("g-base", 4, 0, 4, 1.0, None, 1.0),
    ]
    assert output.facts == {"p_hat": 1 / 3, "zero_signal": 0.0}
    one = scored(Level.BATCH, lost, least_n=1).tables["task_scores"]
    assert one.select("group_id", "n", "p_hat").rows()[1] == ("g-c", 1, 1.0)


@mutation(
    "base tasks are in the batch's p_hat", SCORING,
    "if task.source is not TaskSource.BASE:", "if task.source:",
)  # fmt: skip
def test_each_task_is_rated_at_every_level_and_base_tasks_apart() -> None:
    output = scored()
    rows = output.tables["task_scores"]
    assert rows.select("group_id", "context_id", "source", "n", "successes").rows() == [
        ("g-a", "x", "generated", 4, 0),
        ("g-b", "x", "generated", 4, 2),
        ("g-c", "y", "generated", 4, 4),
        ("g-base", None, "base", 4, 4),
    ]
    assert rows.select("p_hat", "p_hat_group", "p_hat_batch").rows() == [
        (0.0, 0.25, 0.5),
        (0.5, 0.25, 0.5),
        (1.0, 1.0, 0.5),
        (1.0, None, None),
    ]
    # Distance from alpha 1/2: 1/2 pays e^-1, 1/4 pays e^-1/4, 0 pays 1.
    assert rows.select("r_env_task", "r_env_group", "r_env_batch").rows() == [
        (E1, E4, 1.0),
        (1.0, E4, 1.0),
        (E1, E1, 1.0),
        (None, None, None),
    ]
    assert rows["zero_signal"].to_list() == [False, False, True, True]
    assert rows["reward_mean"].to_list() == [0.1875, 0.625, 1.0, 1.0]
    assert rows["reward_std"][1] == pytest.approx(0.375 * (4 / 3) ** 0.5)
    assert output.facts == {"p_hat": 0.5, "zero_signal": pytest.approx(1 / 3)}


@mutation(
    "R_env is always a task's own", SCORING,
    "rated.r_env[curriculum.level]", "rated.r_env[Level.TASK]",
)  # fmt: skip
@pytest.mark.parametrize("level", Level)
def test_r_env_is_the_one_of_the_configured_level(level: Level) -> None:
    rows = scored(level).tables["task_scores"]
    assert rows["r_env"].equals(rows[f"r_env_{level.value}"].rename("r_env"))


@mutation(
    "the tasks' chances are forgotten", SCORING,
    "successes, n, task.draft.chance)", "successes, n)",
)  # fmt: skip
def test_what_a_guess_may_solve_is_rated_above_it() -> None:
    rows = scored(chance=0.5).tables["task_scores"]
    assert rows["p_hat"].to_list() == [0.0, 0.5, 1.0, 1.0]
    assert rows["skill"].to_list() == [0.0, 0.0, 1.0, 1.0]
    assert rows["skill_batch"].to_list() == [0.0, 0.0, 0.0, None]
    assert rows["r_env_task"].to_list() == [E1, E1, E1, None]
    plain = scored().tables["task_scores"]
    for level in ("", "_group", "_batch"):
        assert plain[f"skill{level}"].equals(plain[f"p_hat{level}"].rename(f"skill{level}"))


def test_facts_without_new_tasks_are_null() -> None:
    curriculum = CurriculumConfig()
    output = score(
        frame("traces", []), frame("trace_tokens", []), [], WordsDomain(), epoch=1,
        curriculum=curriculum, seed_of=lambda place, sample: 0,
    )  # fmt: skip
    assert output.facts == {"p_hat": None, "zero_signal": None}
    assert output.tables["task_scores"].is_empty()
