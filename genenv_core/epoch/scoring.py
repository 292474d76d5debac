"""Stage `score`: computes R_agent of each trace, p_hat and R_env of each task, context and batch.

Where pi_env played the tools, it also says how true each of its answers is.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from genenv_core.algorithm.advantages import zero_signal
from genenv_core.algorithm.chance import TaskCounts, above_chance, p_hat
from genenv_core.algorithm.reward import P_HAT_COLUMNS, SKILL_COLUMNS, rate
from genenv_core.algorithm.stats import mean, sample_std
from genenv_core.config.sections.curriculum import CurriculumConfig, Level
from genenv_core.domains.protocol import Domain
from genenv_core.epoch.observing import EpisodeSeed, observed
from genenv_core.epoch.rows import Output, frame, with_verdict
from genenv_core.play.asked import judged
from genenv_core.types import Task, TaskSource, Verdict

R_ENV_COLUMNS = {Level.TASK: "r_env_task", Level.GROUP: "r_env_group", Level.BATCH: "r_env_batch"}


def score(
    traces: pl.DataFrame,
    trace_tokens: pl.DataFrame,
    tasks: Sequence[Task],
    domain: Domain,
    *,
    epoch: int,
    curriculum: CurriculumConfig,
    seed_of: EpisodeSeed,
) -> Output:
    """Return `scores` of every verdict and `task_scores` of every group; facts are of new tasks.

    An attempt that an environment or an engine broke has no verdict. A group with fewer verdicts
    than `curriculum.least_n` has no row.
    Where pi_env played the tools there is a third table, `observations`, and the fact `fidelity`,
    their mean. All other runs have the output that they had before that table. `seed_of` gives the
    seed that an attempt's episode has in the stage `rollout`.
    """
    by_id = {task.task_id: task for task in tasks}
    played = with_messages(traces, trace_tokens)
    judged = verdicts_of(played, by_id, domain)
    heard = observed(played.iter_rows(named=True), by_id, domain, seed_of)
    sizes = dict(traces.group_by("group_id").len().iter_rows())
    rows = task_rows(judged, by_id, sizes, epoch=epoch, curriculum=curriculum)
    new = [row for row in rows if row["source"] != TaskSource.BASE.value]
    attempts = sum(row["n"] for row in new)
    return Output(
        {
            "scores": frame("scores", judged),
            "task_scores": frame("task_scores", rows),
            **({"observations": frame("observations", heard)} if heard else {}),
        },
        {
            "p_hat": sum(row["successes"] for row in new) / attempts if attempts else None,
            "zero_signal": mean([float(row["zero_signal"]) for row in new]) if new else None,
            **({"fidelity": mean([row["fidelity"] for row in heard])} if heard else {}),
        },
    )


def with_messages(traces: pl.DataFrame, trace_tokens: pl.DataFrame) -> pl.DataFrame:
    """Return rows of `traces` with the `messages` of the same attempts."""
    said = trace_tokens.select("trace_id", "messages")
    return traces.join(said, on="trace_id", maintain_order="left")


def verdicts_of(
    played: pl.DataFrame, tasks: Mapping[str, Task], domain: Domain
) -> list[dict[str, Any]]:
    """Return the rows of `scores` of the attempts that have a verdict; raises as `judge`.

    `played` are rows of `traces` with their messages, `tasks` their tasks by id.
    """
    verdicts = with_verdict(played)
    return [judge(row, tasks[row["task_id"]], domain) for row in verdicts.iter_rows(named=True)]


def judge(trace: Mapping[str, Any], task: Task, domain: Domain) -> dict[str, Any]:
    """Return the row of `scores` of a trace with its messages; one that broke off gets 0.

    Raises DomainError for an invalid verdict, such as a reward outside of [0, 1] or NaN.
    """
    verdict = (
        Verdict(0.0, False, "error")
        if trace["error"]
        else judged(domain, task.draft, json.loads(trace["messages"]), trace["trace_id"])
    )
    return {
        **{name: trace[name] for name in ("trace_id", "epoch", "task_id", "group_id")},
        "reward": verdict.reward,
        "success": verdict.success,
        "failure": verdict.failure,
    }


def task_rows(
    scores: Sequence[Mapping[str, Any]],
    tasks: Mapping[str, Task],
    sizes: Mapping[str, int],
    *,
    epoch: int,
    curriculum: CurriculumConfig,
) -> list[dict[str, Any]]:
    """Return the rows of `task_scores`, one a group, in order of their first verdict.

    `sizes` are the attempts of each group, with and without a verdict.
    R_env rewards new tasks alone: a base task has no R_env, and counts in no p_hat of a context or
    batch.
    """
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for row in scores:
        groups.setdefault(row["group_id"], []).append(row)
    rows: dict[str, dict[str, Any]] = {}
    new: list[TaskCounts] = []
    for group, members in groups.items():
        task = tasks[members[0]["task_id"]]
        rewards = [member["reward"] for member in members]
        n, successes = len(members), sum(member["success"] for member in members)
        if n < min(curriculum.least_n, sizes[group]):
            continue
        rows[group] = {
            "group_id": group,
            "epoch": epoch,
            "task_id": task.task_id,
            "context_id": task.context_id or None,
            "source": task.source.value,
            "n": n,
            "successes": successes,
            "p_hat": p_hat(successes, n),
            "skill": above_chance(p_hat(successes, n), task.draft.chance),
            "reward_mean": mean(rewards),
            "reward_std": sample_std(rewards),
            "zero_signal": zero_signal(rewards),
            "lost": sizes[group] - n,
        }
        if task.source is not TaskSource.BASE:
            new.append(TaskCounts(group, task.context_id, successes, n, task.draft.chance))
    for rated in rate(new, alpha=curriculum.alpha, beta=curriculum.beta):
        rows[rated.group_id] |= {
            **{column: rated.p_hat[level] for level, column in P_HAT_COLUMNS.items()},
            **{column: rated.skill[level] for level, column in SKILL_COLUMNS.items()},
            **{column: rated.r_env[level] for level, column in R_ENV_COLUMNS.items()},
            "r_env": rated.r_env[curriculum.level],
        }
    return list(rows.values())
