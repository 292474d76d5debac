"""What a stage is, and what its computation may use."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import polars as pl

from genenv_core.config.compute import ExecutionConfig
from genenv_core.config.schema import RunConfig
from genenv_core.domains.base import Domain
from genenv_core.domains.registry import get_domain
from genenv_core.ids import seed_from
from genenv_core.storage import paths
from genenv_core.storage.artifacts import Artifacts, ArtifactWriter
from genenv_core.storage.base import Store
from genenv_core.storage.manifest import ArtifactRef, CheckpointRef, Manifest
from tasks.inputs import Inputs
from tasks.progress import Event, emit

log = logging.getLogger("genenv.stage")

COMPUTE_FIELDS = ("compute.engine", "compute.threads")
"""What every stage that runs a model reads: both change floating-point results."""


@dataclass(frozen=True, slots=True)
class Stage:
    """What a stage is: its name, its source modules, the fields it reads, its libraries.

    `reads` are dotted fields or whole sections; `libraries` those whose version changes results.
    """

    name: str
    modules: tuple[str, ...]
    reads: tuple[str, ...]
    libraries: tuple[str, ...] = ()


@dataclass
class StageContext:
    """What a stage's computation may use: inputs, output, its config fields, a scratch folder.

    `scope` is a digest of everything that makes the result but code, library versions and the
    machine; ids start with its head, so equal work after a harmless code change has equal ids.
    `execution` is beside `config` because it is in no key: it may decide how and when something is
    done, never what comes out.
    """

    stage: Stage
    config: RunConfig
    execution: ExecutionConfig
    epoch: int
    seed: int
    scope: str
    key: str
    inputs: Inputs
    artifacts: Artifacts
    out: ArtifactWriter
    work: Path

    @property
    def store(self) -> Store:
        """Return the store that the run lives in."""
        return self.artifacts.store

    def durable(self) -> Path:
        """Return the folder of this stage key that survives a crash; it goes after the commit."""
        return self.store.folder(paths.progress(self.stage.name, self.key))

    def ref(self, name: str) -> ArtifactRef:
        """Return an input artifact's reference."""
        return cast(ArtifactRef, self.inputs[name])

    def manifest(self, name: str) -> Manifest:
        """Return an input artifact's manifest, verified."""
        return self.artifacts.load(self.ref(name))

    def frame(self, name: str, table: str) -> pl.DataFrame:
        """Return a table of an input: one artifact or a sequence of them."""
        value = self.inputs[name]
        refs = [value] if isinstance(value, ArtifactRef) else cast(Sequence[ArtifactRef], value)
        return self.artifacts.frame([self.artifacts.load(ref) for ref in refs], table)

    def checkpoint(self, name: str) -> Path:
        """Return the folder with an input checkpoint."""
        ref = cast(CheckpointRef, self.inputs[name])
        return self.artifacts.checkpoint(self.artifacts.load(ref.artifact), ref.name)

    def checkpoint_ref(self, name: str) -> CheckpointRef:
        """Return the reference to an input checkpoint."""
        return cast(CheckpointRef, self.inputs[name])

    def seed_for(self, *parts: str | int) -> int:
        """Return a seed that depends on the run's seed, the stage, the epoch and `parts`."""
        return seed_from(self.seed, self.stage.name, self.epoch, *parts)

    def domain(self) -> Domain:
        """Return the configured domain."""
        return get_domain(self.config.domain.name, self.config.domain.options)

    def progress(self, done: int, total: int, unit: str) -> None:
        """Say how far the stage is."""
        emit(Event("advanced", self.stage.name, self.epoch, done=done, total=total, unit=unit))


Compute = Callable[[StageContext], dict[str, Any]]
"""The computation of a stage: writes its rows and checkpoints, returns small facts."""
