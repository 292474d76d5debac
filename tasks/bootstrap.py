"""Stage `bootstrap`: base and held-out tasks, and the two checkpoints that the game starts from."""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from genenv_core.domains.base import Domain
from genenv_core.exchange.base_data import LISTED, BaseData, heldout_drafts, read_base
from genenv_core.ids import seed_from, task_id
from genenv_core.models import model_files
from genenv_core.storage.manifest import FileRef
from genenv_core.types import Policy, TaskSource
from tasks.rows import data_task_row, frame
from tasks.services import trainer
from tasks.stage import COMPUTE_FIELDS, Stage, StageContext, StageTask

STAGE = Stage(
    "bootstrap",
    ("tasks.bootstrap", "genenv_core.training.warmstart"),
    (
        "domain",
        "data.base_tasks",
        "data.base_format",
        "data.base_mapping",
        "data.skip_bad",
        "data.heldout_tasks",
        "bootstrap",
        *COMPUTE_FIELDS,
    ),
    ("torch", "transformers", "tokenizers"),
)


def compute(context: StageContext) -> dict[str, Any]:
    """Write the data tasks and both checkpoints."""
    config, domain = context.config, context.domain()
    heldout = heldout_drafts(domain, context.seed, config.data.heldout_tasks)
    base = _base_data(context, domain, {draft.fingerprint for draft in heldout})
    drafts = [(TaskSource.BASE, d) for d in base.drafts] + [
        (TaskSource.HELDOUT, d) for d in heldout
    ]
    rows = [
        data_task_row(task_id(0, context.scope, index), source, index, draft)
        for index, (source, draft) in enumerate(drafts)
    ]
    context.out.table("tasks", frame("tasks", rows))
    policies: tuple[Policy, Policy] = ("agent", "env")
    with ThreadPoolExecutor(len(policies)) as pool:
        waiting = [pool.submit(_checkpoint, context, policy) for policy in policies]
        for done, (policy, made) in enumerate(zip(policies, waiting, strict=True)):
            context.progress(done, len(policies), "models")
            made.result()
            context.out.checkpoint(policy, context.work / policy)
    facts: dict[str, Any] = {"base_tasks": len(base.drafts), "heldout_tasks": len(heldout)}
    if base.bad:
        facts["skipped_rows"] = len(base.bad)
        facts["skipped_first"] = [row.short for row in base.bad[:LISTED]]
    return facts


def _checkpoint(context: StageContext, policy: Policy) -> None:
    """Lay a policy's first checkpoint out in the work folder: copied, or warm-started."""
    config, output = context.config, context.work / policy
    given = context.inputs[f"{policy}_model"]
    if isinstance(given, FileRef):
        output.mkdir()
        for source in model_files(Path(given.path)):
            shutil.copyfile(source, output / source.name)
        return
    from genenv_core.training.warmstart import WarmStartRequest

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


def _base_data(context: StageContext, domain: Domain, heldout: set[str]) -> BaseData:
    given, data = context.inputs["base_file"], context.config.data
    if not isinstance(given, FileRef):
        return BaseData(domain.base_tasks(seed_from(context.seed, "base"), data.base_tasks))
    return read_base(
        Path(given.path),
        domain,
        format_=data.base_format,
        mapping=data.base_mapping,
        count=data.base_tasks,
        skip_bad=data.skip_bad,
        heldout=heldout,
    )


bootstrap = StageTask(STAGE, compute)
