"""Stage `bootstrap`: base and held-out tasks, and the two checkpoints that the game starts from."""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from genenv_core.epoch.rows import data_tasks
from genenv_core.exchange.base_data import (
    LISTED,
    BaseData,
    configured_base,
    fingerprints,
    heldout_drafts,
)
from genenv_core.exchange.external import Given
from genenv_core.exchange.given_models import model_files
from genenv_core.ids import seed_from
from genenv_core.training.warm_start.request import WarmStartRequest
from genenv_core.types import Policy, TaskSource
from tasks.policies.trainer import trainer
from tasks.stage import COMPUTE_FIELDS, Stage, StageContext, StageTask

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
    with ThreadPoolExecutor(len(Policy)) as threads:
        waiting = [threads.submit(_checkpoint, context, policy) for policy in Policy]
        for done, (policy, made) in enumerate(zip(Policy, waiting, strict=True)):
            context.progress(done, len(Policy), "models")
            made.result()
            context.out.checkpoint(policy, context.work / policy)
    facts: dict[str, Any] = {"base_tasks": len(base.drafts)}
    facts |= {f"{source}_tasks": len(drafts) for source, drafts in heldout.items()}
    if base.bad:
        facts["skipped_rows"] = len(base.bad)
        facts["skipped_first"] = [row.short for row in base.bad[:LISTED]]
    return facts


def _checkpoint(context: StageContext[Given], policy: Policy) -> None:
    """Copy or warm-start a policy's first checkpoint into the work folder."""
    config, inputs, output = context.config, context.inputs, context.work / policy
    given = inputs.agent_model if policy is Policy.AGENT else inputs.env_model
    if given is not None:
        output.mkdir()
        for source in model_files(Path(given.path)):
            shutil.copyfile(source, output / source.name)
        return
    trainer().warm_start(
        WarmStartRequest(
            policy=policy,
            domain_name=config.domain.name,
            domain_options=config.domain.options,
            output=output,
            settings=config.bootstrap,
            seed=seed_from(context.seed, "warm_start", policy) % 2**31,
            threads=config.compute.threads,
        )
    )


bootstrap = StageTask(STAGE, Given, compute)
