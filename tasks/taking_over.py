"""Takes over the epochs of another run: one Prefect task at the beginning of a branch.

It computes and copies nothing. The run notes the keys as its own, so `genenv gc` keeps what they
name, and in its history each of these stages is a reused one.
"""

from __future__ import annotations

from typing import Any

from prefect import task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State
from prefect.states import Completed

from genenv_core.config.branching import BranchPoint
from genenv_core.config.load import run_name
from genenv_core.config.schema import RunConfig
from genenv_core.config.stages import LAST
from genenv_core.errors import IntegrityError
from genenv_core.storage.records.artifacts import Artifacts, reference
from genenv_core.storage.records.branches import read_branch, taken_over
from genenv_core.storage.records.manifest import ArtifactRef, Manifest
from genenv_core.storage.records.runs import RunLog
from schemas.enums import StageState
from tasks.publish import publish
from tasks.stage.context import log
from tasks.stage.execution import AttemptRecord
from tasks.stage.origin import computed_then, found_origin
from tasks.stage.progress import Event, emit
from tasks.stage.stores import artifacts_of

Taken = list[dict[str, ArtifactRef]]
"""Stage -> output, for epoch 0 and those after it."""


def take_over(config: RunConfig, point: BranchPoint) -> Taken:
    """Note what the branch `config` takes over as its own; return it; raises as `taken_over`."""
    submit: Any = _take_over  # Prefect's `submit` is half untyped
    return submit.submit(config=config, point=point).result()


@task(
    name="take_over",
    task_run_name="epochs 0 to {point.epoch} of run {point.run_id}",
    cache_policy=NO_CACHE,
    persist_result=False,
)
def _take_over(config: RunConfig, point: BranchPoint) -> State[Taken]:
    artifacts, run_id = artifacts_of(config.root), run_name(config, "run")
    branch = read_branch(artifacts.store, run_id)
    if branch is None:
        raise IntegrityError(f"run {run_id} has lost its record of what it takes over")
    outputs = taken_over(artifacts, branch)
    for epoch, made in enumerate(outputs):
        for manifest in made.values():
            _take(artifacts, run_id, point, epoch, manifest)
        publish.used(config, epoch, reference(made[LAST]))
    log.info("run=%s epochs=0..%d taken over from run %s", run_id, point.epoch, point.run_id)
    refs = [{stage: reference(one) for stage, one in made.items()} for made in outputs]
    return Completed(name="Cached", message=point.words, data=refs)


def _take(
    artifacts: Artifacts, run_id: str, point: BranchPoint, epoch: int, manifest: Manifest
) -> None:
    """Note an output as this run's own, with who computed it, and emit its event."""
    run, stage, key = RunLog(artifacts.store, run_id), manifest.stage, manifest.key
    emit(Event("started", stage, epoch))
    record = AttemptRecord(run, stage, epoch, key)
    first = run.note_key(epoch, stage, key)
    # Without a note on who computed it, the history of the other run says it.
    theirs = RunLog(artifacts.store, point.run_id)
    origin = found_origin(artifacts.store, theirs, epoch, stage, key, first=first)
    if first:
        record.end(
            StageState.CACHED, rows=manifest.rows, bytes=manifest.bytes, **computed_then(origin)
        )
    origin_line = str(origin or "")
    cached = StageState.CACHED
    emit(
        Event(
            "finished",
            stage,
            epoch,
            cached,
            record.seconds,
            message=origin_line,
            facts=manifest.facts,
        )
    )
