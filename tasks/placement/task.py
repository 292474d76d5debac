"""The Prefect task of a stage.

A reused stage returns Prefect's completed state under the name `Cached`. Prefect's own result cache
is off, because a result record outlives damaged data, and a killed process leaves a manifest
without a record.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Generic, Protocol

from prefect import task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State
from prefect.states import Completed

from genenv_core.config.schema import RunConfig
from genenv_core.config.sections.placement import INLINE
from genenv_core.errors import StageError
from genenv_core.storage.records.artifacts import Artifacts
from genenv_core.storage.records.keys import difference, stage_key
from genenv_core.storage.records.manifest import ArtifactRef
from tasks.placement.child import compute_on_work_pool
from tasks.stage.context import Compute, Stage
from tasks.stage.drawing import draw_of
from tasks.stage.execution import run_stage
from tasks.stage.inputs import In, decode
from tasks.stage.key import parts_of
from tasks.stage.planning import current_plan, is_stored, planned
from tasks.stage.stopping import current_end, or_cancelled
from tasks.stage.stores import artifacts_of

After = Callable[[RunConfig, int, ArtifactRef, Artifacts], None]


class Pending(Protocol):
    """What `submit` returns: a Prefect future, or a planned result."""

    def result(self) -> ArtifactRef:
        """Return the stage's output, waiting for it; raises what the stage raised."""
        ...


class StageTask(Generic[In]):
    """A stage bound to its computation; flows call it, or `submit` it to run beside others."""

    def __init__(
        self, stage: Stage, takes: type[In], compute: Compute[In], after: After | None = None
    ) -> None:
        """Make the Prefect task of a stage that takes inputs of this kind.

        `after` runs after every use of the stage, reuse included.
        """
        self.stage = stage

        @task(
            name=stage.name,
            task_run_name=stage.name + " · epoch {epoch} of {config.epochs}",
            cache_policy=NO_CACHE,
            persist_result=False,
        )
        def run(config: RunConfig, epoch: int, inputs: In) -> State[ArtifactRef]:
            return or_cancelled(lambda: carried_out(config, epoch, inputs))

        def carried_out(config: RunConfig, epoch: int, inputs: In) -> State[ArtifactRef]:
            place = config.placement.of(stage.name)
            elsewhere = (
                None
                if place == INLINE
                else partial(compute_on_work_pool, stage.name, config, epoch, inputs, place)
            )
            draw = draw_of(config, stage.name, epoch)
            ref, reused, origin = run_stage(stage, compute, config, epoch, inputs, elsewhere, draw)
            self.used(config, epoch, ref)
            if reused:
                message = f"reused {stage.name} {ref.key[:12]}" + (f", {origin}" if origin else "")
                return Completed(name="Cached", message=message, data=ref)
            where = "" if place == INLINE else f" on work pool {place}"
            return Completed(message=f"computed {ref.rows} rows{where}", data=ref)

        self._task: Any = run  # Prefect's `submit` is half untyped
        self._compute, self._takes, self._after = compute, takes, after

    def __call__(self, config: RunConfig, epoch: int, inputs: In) -> ArtifactRef:
        """Wait for the stage's output and return it."""
        return self.submit(config, epoch, inputs).result()

    def submit(
        self, config: RunConfig, epoch: int, inputs: In, behind: Sequence[Pending] = ()
    ) -> Pending:
        """Start the stage; inside `planning`, only plan it.

        It begins once those of `behind` are finished, though it needs no output of them. Raises
        Ended when it comes after the end that `stopping` set.
        """
        plan = current_plan()
        if plan is not None:
            plan.append(planned(self.stage, config, epoch, inputs))
            return plan[-1]
        end = current_end()
        if end:
            end.check(self.stage.name, epoch, lambda: is_stored(self.stage, config, epoch, inputs))
        given: dict[str, Any] = {"config": config, "epoch": epoch, "inputs": inputs}
        made: Pending = self._task.submit(**given, wait_for=list(behind))
        if end:
            end.started(made)
        return made

    def used(self, config: RunConfig, epoch: int, ref: ArtifactRef) -> None:
        """Do what follows every use of the stage, for a caller that already has the output."""
        if self._after:
            self._after(config, epoch, ref, artifacts_of(config.root))

    def compute_here(
        self, config: RunConfig, epoch: int, sent: dict[str, Any], parts: dict[str, Any]
    ) -> ArtifactRef:
        """Compute the stage in this process for the flow that sent its inputs; return its output.

        Raises StageError when this process would give the stage another key.
        """
        inputs = decode(self._takes, sent)
        draw = int(parts.get("draw", 0))
        own = parts_of(self.stage, config, epoch, inputs, draw)
        if stage_key(own) != stage_key(parts):
            raise StageError(
                f"stage {self.stage.name} of epoch {epoch}: this process and the flow have "
                f"different versions of genenv, or run on different machines: "
                f"{'; '.join(difference(parts, own))}: install the same commit and the same "
                "requirements.lock on both, and for runtime.processor or runtime.environment start "
                "both on one kind of processor with the same variables"
            )
        return run_stage(self.stage, self._compute, config, epoch, inputs, draw=draw).ref
