"""The contexts of pi_env's texts: how the agent does, a base task, and examples as turns."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import polars as pl

from genenv_core.algorithm.chance import skill_of
from genenv_core.config.sections.curriculum import GenerationConfig
from genenv_core.domains.protocol import Domain, shares_of
from genenv_core.domains.shares import Shares
from genenv_core.epoch.rows import of_source, to_tasks
from genenv_core.errors import ConfigError
from genenv_core.play.asked import example_turns
from genenv_core.types import AgentHistory, Context, Message, Task, TaskSource


def agent_history(
    task_scores: pl.DataFrame, tasks: pl.DataFrame, shares: Shares | None = None
) -> AgentHistory:
    """Return the agent's success statistics over the generated tasks of one epoch.

    With the `shares` of several domains, the history holds those of each domain too.
    """
    new = task_scores.filter(pl.col("source") == TaskSource.GENERATED.value).join(
        tasks.select("task_id", "family"), on="task_id"
    )
    if new.is_empty():
        return AgentHistory()
    groups = new.group_by("family").agg(pl.col("successes").sum(), pl.col("n").sum())
    by_domain: dict[str, AgentHistory] = {}
    for name in shares.weights if shares else ():
        own = pl.col("family").str.starts_with(f"{name}/")
        of_domain = agent_history(task_scores, tasks.filter(own))
        if of_domain.by_family:
            families = {k.removeprefix(f"{name}/"): v for k, v in of_domain.by_family.items()}
            by_domain[name] = replace(of_domain, by_family=families)
    return AgentHistory(
        success_rate=skill_of(new, tasks),
        by_family={family: (k, n) for family, k, n in sorted(groups.iter_rows())},
        by_domain=by_domain,
    )


def make_contexts(
    domain: Domain,
    base: Sequence[Task],
    history: AgentHistory,
    *,
    count: int,
    seed: int,
    epoch: int,
    shots: int,
) -> list[Context]:
    """Return `count` contexts of an epoch, each with its own base task while there are enough.

    Ids are unique within a run and sort by (epoch, index). All contexts have the same `shots`
    examples, fewer where there are not enough base tasks. Each of several domains has its share of
    every beginning of them; raises ConfigError where one has no base task.
    """
    if not base:
        raise ValueError("make_contexts needs at least one base task")
    shares = shares_of(domain)
    rng = np.random.default_rng([seed, epoch, 0x6378])
    left: dict[str, list[int]] = {name: [] for name in shares.names}
    order: list[int] = []
    for name in shares.mixed(count):
        if not left[name]:
            own = [i for i, one in enumerate(base) if shares.domain_of(one.draft.family) == name]
            if not own:
                raise ConfigError(
                    f"domains: {name} has no base task, from which pi_env could write: raise "
                    "data.base_tasks, or give some in data.base_file"
                )
            left[name] = [own[int(index)] for index in rng.permutation(len(own))][::-1]
        order.append(left[name].pop())
    examples: tuple[Message, ...] = ()
    if shots:
        drawn = np.random.default_rng([seed, epoch, 0x7368]).permutation(len(base))
        drafts = [base[int(index)].draft for index in drawn]
        examples = example_turns(domain, drafts, history, shots)
    return [
        Context(
            context_id=f"c{epoch:06d}-{index:06d}",
            base_task_id=base[choice].task_id,
            base=base[choice].draft,
            history=history,
            examples=examples,
        )
        for index, choice in enumerate(order[:count])
    ]


def asked_contexts(
    domain: Domain,
    data: pl.DataFrame,
    history: AgentHistory,
    settings: GenerationConfig,
    *,
    seed: int,
    epoch: int,
) -> list[Context]:
    """Return the context of each generation of an epoch, `max_generations` in all."""
    contexts = make_contexts(
        domain,
        to_tasks(of_source(data, TaskSource.BASE)),
        history,
        count=math.ceil(settings.max_generations / settings.tasks_per_context),
        seed=seed,
        epoch=epoch,
        shots=settings.shots,
    )
    wanted = [c for c in contexts for _ in range(settings.tasks_per_context)]
    return wanted[: settings.max_generations]
