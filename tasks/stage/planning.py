"""Plans what a stage would do, a hit or a miss and why, without doing it.

Inside `planning`, submitting a stage only plans it, so `genenv plan` walks the very same flows.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from genenv_core.config.load import run_name
from genenv_core.config.schema import RunConfig
from genenv_core.storage.records.artifacts import Artifacts, reference
from genenv_core.storage.records.keys import difference, stage_key
from genenv_core.storage.records.manifest import ArtifactRef
from genenv_core.storage.records.runs import RunLog, list_runs
from tasks.stage.context import Stage
from tasks.stage.drawing import draw_of
from tasks.stage.inputs import Inputs
from tasks.stage.key import parts_of
from tasks.stage.stores import artifacts_of, readers_of


@dataclass
class Planned:
    """One stage in a plan: its key, and hit, miss, or unknown while its inputs are unknown.

    `inputs` are None until they are known. With them, the stage does what the plan says. `root` is
    another root that holds a hit, '' for the run's own. `stands` says whether an earlier evaluation
    stands for this one, None where only the arm decides.
    """

    stage: str
    epoch: int
    status: str
    key: str = ""
    parts: dict[str, Any] = field(default_factory=dict[str, Any])
    changed: tuple[str, ...] = ()
    ref: ArtifactRef | None = None
    inputs: Any = None
    root: str = ""
    stands: bool | None = None

    def result(self) -> ArtifactRef:
        """Return the reference; raises NotPlannable where it takes the computation."""
        if self.ref is None:
            raise NotPlannable(self.stage)
        return self.ref


class NotPlannable(Exception):
    """A plan ends here: later stages depend on an output that does not exist yet."""


_plan: ContextVar[list[Planned] | None] = ContextVar("plan", default=None)


@contextlib.contextmanager
def planning() -> Generator[list[Planned]]:
    """Plan submitted stages instead of computing them; yields the growing list."""
    entries: list[Planned] = []
    token = _plan.set(entries)
    try:
        yield entries
    finally:
        _plan.reset(token)


def current_plan() -> list[Planned] | None:
    """Return the list that `planning` yielded, None outside of it."""
    return _plan.get()


def planned(stage: Stage, config: RunConfig, epoch: int, inputs: Inputs) -> Planned:
    """Return what a stage would do with these inputs."""
    parts = parts_of(stage, config, epoch, inputs, draw_of(config, stage.name, epoch))
    key = stage_key(parts)
    artifacts = artifacts_of(config.root)
    manifest, root = artifacts.find(stage.name, key), ""
    if manifest is None and (shared := readers_of(config).find(stage.name, key)):
        manifest, root = shared.manifest, shared.reader.store.uri
    if manifest is None:
        run = RunLog(artifacts.store, config.run_id or run_name(config, "run"))
        changed = _changed(run, stage.name, epoch, key, parts, artifacts)
        return Planned(stage.name, epoch, "miss", key, parts, changed=changed, inputs=inputs)
    ref = reference(manifest)
    return Planned(stage.name, epoch, "hit", key, parts, ref=ref, inputs=inputs, root=root)


def is_stored(stage: Stage, config: RunConfig, epoch: int, inputs: Inputs) -> bool:
    """Return whether a run would reuse a stage with these inputs."""
    parts = parts_of(stage, config, epoch, inputs, draw_of(config, stage.name, epoch))
    output = (stage.name, stage_key(parts))
    own = artifacts_of(config.root).find(*output)
    return own is not None or readers_of(config).find(*output) is not None


def _changed(
    run: RunLog, stage: str, epoch: int, key: str, parts: dict[str, Any], artifacts: Artifacts
) -> tuple[str, ...]:
    """Return how a missed key differs from the one under which this run finished the stage.

    Where this run never did, compares with the run of the root that differs least.
    """
    before = run.keys(epoch).get(stage)
    if before is None:
        return _nearest(stage, epoch, parts, artifacts)
    if before == key:
        return ("its output is missing or damaged",)
    manifest = artifacts.find(stage, before)
    if manifest is None:
        return ("its earlier output is missing or damaged",)
    return tuple(difference(manifest.key_parts, parts))


def _nearest(
    stage: str, epoch: int, parts: dict[str, Any], artifacts: Artifacts
) -> tuple[str, ...]:
    """Return how a key differs from the nearest one of any run, and name that run."""
    found: list[tuple[int, str, list[str]]] = []
    for name in list_runs(artifacts.store):
        key = RunLog(artifacts.store, name).keys(epoch).get(stage)
        manifest = artifacts.find(stage, key) if key else None
        if manifest is not None:
            changed = difference(manifest.key_parts, parts)
            found.append((len(changed), name, changed))
    if not found:
        return ("never computed",)
    _, name, changed = min(found)
    return (*changed, f"(compared with run {name})")
