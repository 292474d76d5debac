"""Stage `bootstrap`: makes base and held-out tasks, and the two checkpoints of the game's start."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

from genenv_core.config.stages import WARM_STARTS
from genenv_core.epoch.rows import data_tasks
from genenv_core.exchange.base_data import (
    LISTED,
    BaseData,
    configured_base,
    fingerprints,
    heldout_drafts,
)
from genenv_core.exchange.external import Given
from genenv_core.exchange.given_models import take_over
from genenv_core.ids import seed_from
from genenv_core.training.warm_start.request import WarmStartRequest, warm_started
from genenv_core.types import Policy, TaskSource
from tasks.placement.task import StageTask
from tasks.policies.noted import SHOWN_S, show_steps
from tasks.policies.trainer import trainer
from tasks.stage import COMPUTE_FIELDS, Stage, StageContext

Made = dict[str, float] | None
"""Numbers of a warm start, for `WARM_STARTS`; None for a given model."""

STAGE = Stage(
    "bootstrap",
    ("tasks.bootstrap", "genenv_core.training.warm_start.models"),
    (
        "domain",
        "data.base_tasks",
        "data.base_format",
        "data.base_mapping",
        "data.skip_bad",
        "data.validation_tasks",
        "data.test_tasks",
        "bootstrap",
        "bootstrap.easy_skew",  # a constant
        *COMPUTE_FIELDS,
    ),
    ("torch", "transformers", "tokenizers"),
)


def compute(context: StageContext[Given]) -> dict[str, Any]:
    """Write the data tasks and both checkpoints."""
    config, domain = context.config, context.domain()
    heldout = heldout_drafts(domain, context.seed, config.data)
    given = context.inputs.base_file
    if given is None:
        drafts = domain.base_tasks(seed_from(context.seed, "base"), config.data.base_tasks)
        base = BaseData(drafts)
    else:
        base = configured_base(config.data, Path(given.path), domain, fingerprints(heldout))
    context.out.table("tasks", data_tasks({TaskSource.BASE: base.drafts, **heldout}, context.scope))
    with ThreadPoolExecutor(context.execution.updates_at_once) as threads:
        made = {policy: threads.submit(_checkpoint, context, policy) for policy in Policy}
        left: set[Future[Made]] = set(made.values())
        while left:
            _show(context, made)
            left = wait(left, SHOWN_S, FIRST_EXCEPTION).not_done
            if any(future.done() and future.exception() for future in made.values()):
                break
        started = {policy: future.result() for policy, future in made.items()}
        _show(context, made)
        for policy in Policy:
            context.out.checkpoint(policy, context.work / policy)
    facts: dict[str, Any] = {"base_tasks": len(base.drafts)}
    facts |= {f"{source}_tasks": len(drafts) for source, drafts in heldout.items()}
    if any(started.values()):
        facts[WARM_STARTS] = {policy.value: told for policy, told in started.items() if told}
    if base.bad:
        facts["skipped_rows"] = len(base.bad)
        facts["skipped_first"] = [row.short for row in base.bad[:LISTED]]
    return facts


def _show(context: StageContext[Given], made: Mapping[Policy, Future[Made]]) -> None:
    """Report the steps and the loss of each warm start; one that stops early is done."""
    settings = context.config.bootstrap
    planned = {Policy.AGENT: settings.agent_steps, Policy.ENV: settings.env_steps}
    given = {Policy.AGENT: context.inputs.agent_model, Policy.ENV: context.inputs.env_model}
    for policy, future in made.items():
        part = f"pi_{policy}"
        if given[policy] is not None:
            context.progress(int(future.done()), 1, "models", part=part)
            continue
        total = None if future.done() else planned[policy]
        show_steps(context, _steps(context, policy), total, part=part)


def _steps(context: StageContext[Given], policy: Policy) -> Path:
    """Return the file that grows with each step of a warm start."""
    return context.work / f"{policy}.steps"


def _checkpoint(context: StageContext[Given], policy: Policy) -> Made:
    """Copy or warm-start a policy's first checkpoint; return the numbers of the warm start."""
    config, inputs, output = context.config, context.inputs, context.work / policy
    given = inputs.agent_model if policy is Policy.AGENT else inputs.env_model
    if given is not None:
        take_over(Path(given.path), output)
        return None
    result = trainer().warm_start(
        WarmStartRequest(
            policy=policy,
            domain_name=config.domain.name,
            domain_options=config.domain.options,
            output=output,
            settings=config.bootstrap,
            seed=seed_from(context.seed, "warm_start", policy) % 2**31,
            threads=config.compute.threads,
            steps=_steps(context, policy),
        )
    )
    return warm_started(result, config.bootstrap)


bootstrap = StageTask(STAGE, Given, compute)
