"""The Prefect task of a stage.

A reused stage returns Prefect's completed state under the name `Cached`; Prefect's own result cache
is off, because a result record outlives damaged data, and a killed process leaves a manifest
without a record.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

from prefect import task
from prefect.cache_policies import NO_CACHE
from prefect.states import Completed, State

from genenv_core.config.placement import INLINE
from genenv_core.config.schema import RunConfig
from genenv_core.errors import StageError
from genenv_core.storage.artifacts import Artifacts
from genenv_core.storage.keys import difference, stage_key
from genenv_core.storage.manifest import ArtifactRef
from tasks.inputs import Inputs
from tasks.placement.child import compute_on_pool
from tasks.stage.base import Compute, Stage
from tasks.stage.execution import run_stage
from tasks.stage.key import parts_of
from tasks.stage.planning import current_plan, planned
from tasks.stores import artifacts_of

After = Callable[[RunConfig, int, ArtifactRef, Artifacts], None]


class Pending(Protocol):
    """What `submit` returns: a Prefect future, or a planned result."""

    def result(self) -> Any:
        """Return the stage's reference, waiting for it; raises what the stage raised."""
        ...


class StageTask:
    """A stage bound to its computation; `submit` is the only call that flows make."""

    def __init__(self, stage: Stage, compute: Compute, after: After | None = None) -> None:
        """Make the Prefect task of a stage; `after` runs behind every use of it, also a reuse."""
        self.stage = stage

        @task(
            name=stage.name,
            task_run_name=stage.name + " · epoch {epoch} of {config.epochs}",
            cache_policy=NO_CACHE,
            persist_result=False,
        )
        def run(config: RunConfig, epoch: int, inputs: dict[str, Any]) -> State[ArtifactRef]:
            place = getattr(config.placement, stage.name)
            elsewhere = (
                None
                if place == INLINE
                else partial(compute_on_pool, stage.name, config, epoch, inputs, place)
            )
            ref, reused = run_stage(stage, compute, config, epoch, inputs, elsewhere)
            if after:
                after(config, epoch, ref, artifacts_of(config.root))
            if reused:
                message = f"reused {stage.name} {ref.key[:12]}"
                return Completed(name="Cached", message=message, data=ref)
            where = "" if place == INLINE else f" on pool {place}"
            return Completed(message=f"computed {ref.rows} rows{where}", data=ref)

        self._task = run
        self._compute = compute

    def submit(self, config: RunConfig, epoch: int, **inputs: Any) -> Pending:
        """Start the stage as soon as its inputs are there; futures among them are waited for.

        Inside `planning` it is only planned.
        """
        plan = current_plan()
        if plan is not None:
            plan.append(planned(self.stage, config, epoch, inputs))
            return plan[-1]
        return self._task.submit(config=config, epoch=epoch, inputs=inputs)

    def compute_here(
        self, config: RunConfig, epoch: int, inputs: Inputs, parts: dict[str, Any]
    ) -> ArtifactRef:
        """Return the stage's output, computed in this process for the flow that sent `parts`.

        Raises StageError when this process would give the stage another key.
        """
        own = parts_of(self.stage, config, epoch, inputs)
        if stage_key(own) != stage_key(parts):
            raise StageError(
                f"stage {self.stage.name} of epoch {epoch}: this process is another genenv than "
                f"the flow's: {'; '.join(difference(parts, own))}: install the same commit and "
                "the same requirements.lock on both"
            )
        return run_stage(self.stage, self._compute, config, epoch, inputs)[0]
