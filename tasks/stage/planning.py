"""Planning: what a stage would do, a hit or a miss and why, without doing it.

Inside `planning` a stage that is submitted computes nothing and is only planned, so `genenv plan`
walks the very same flows.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, cast

from genenv_core.config.load import run_name
from genenv_core.config.schema import RunConfig
from genenv_core.storage.artifacts import Artifacts, reference
from genenv_core.storage.keys import difference, stage_key
from genenv_core.storage.manifest import ArtifactRef
from genenv_core.storage.runs import RunLog, list_runs
from tasks.stage.base import Stage
from tasks.stage.key import parts_of
from tasks.stores import artifacts_of


@dataclass
class Planned:
    """One stage in a plan: its key, and hit, miss, or unknown until what it depends on is known.

    `inputs` are there once they are known: submitted with them, the stage does what was planned.
    """

    stage: str
    epoch: int
    status: str
    key: str = ""
    parts: dict[str, Any] = field(default_factory=dict[str, Any])
    changed: tuple[str, ...] = ()
    ref: ArtifactRef | None = None
    inputs: dict[str, Any] = field(default_factory=dict[str, Any])

    def result(self) -> ArtifactRef:
        """Return the reference; raises NotPlannable when only computing would tell it."""
        if self.ref is None:
            raise NotPlannable(self.stage)
        return self.ref


class NotPlannable(Exception):
    """A plan ends here: what follows depends on an output that is not there yet."""


_plan: ContextVar[list[Planned] | None] = ContextVar("plan", default=None)


@contextlib.contextmanager
def planning() -> Iterator[list[Planned]]:
    """Make stages that are submitted plan instead of compute; yields the list that fills."""
    entries: list[Planned] = []
    token = _plan.set(entries)
    try:
        yield entries
    finally:
        _plan.reset(token)


def current_plan() -> list[Planned] | None:
    """Return the list that fills, None outside of `planning`."""
    return _plan.get()


def planned(stage: Stage, config: RunConfig, epoch: int, inputs: dict[str, Any]) -> Planned:
    """Return what a stage would do with these inputs, which may be planned themselves."""
    known = {name: _known(value) for name, value in inputs.items()}
    if any(isinstance(value, Planned) for value in known.values()):
        return Planned(stage.name, epoch, "unknown")
    parts = parts_of(stage, config, epoch, known)
    key = stage_key(parts)
    artifacts = artifacts_of(config.root)
    manifest = artifacts.find(stage.name, key)
    if manifest is None:
        run = RunLog(artifacts.store, config.run_id or run_name(config, "run"))
        changed = _changed(run, stage.name, epoch, key, parts, artifacts)
        return Planned(stage.name, epoch, "miss", key, parts, changed=changed, inputs=known)
    return Planned(stage.name, epoch, "hit", key, parts, ref=reference(manifest), inputs=known)


def _changed(
    run: RunLog, stage: str, epoch: int, key: str, parts: dict[str, Any], artifacts: Artifacts
) -> tuple[str, ...]:
    """Return how a missed key differs from the one under which this run finished the stage.

    A run that never did is compared with the run of the root that differs least.
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
    """Return how a key differs from the nearest one of any run, and which run that is."""
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


def _known(value: Any) -> Any:
    """Return what a planned input resolves to; a Planned when it is not known yet."""
    if isinstance(value, list | tuple):
        items = [_known(item) for item in cast(Sequence[Any], value)]
        return next((item for item in items if isinstance(item, Planned)), items)
    return (value.ref or value) if isinstance(value, Planned) else value
