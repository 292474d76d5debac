"""Defines a stage, and what its computation may use."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from pathlib import Path
from typing import Any, Generic, cast

import polars as pl

from genenv_core.config.schema import RunConfig
from genenv_core.config.sections.compute import ExecutionConfig
from genenv_core.config.sections.unions.benchmark import MeasuredCheckpoint, MeasuredEndpoint
from genenv_core.domains.protocol import Domain
from genenv_core.domains.registry import get_domain
from genenv_core.epoch.rows import Output
from genenv_core.ids import stage_seed
from genenv_core.storage import paths
from genenv_core.storage.records.artifacts import Artifacts, ArtifactWriter
from genenv_core.storage.records.manifest import ArtifactRef, CheckpointRef, Manifest
from genenv_core.storage.store.protocol import Store
from tasks.stage.inputs import In
from tasks.stage.progress import Paces, emit

log = logging.getLogger("genenv.stage")

COMPUTE_FIELDS = ("compute.engine", "compute.device", "compute.threads")
"""Fields that every stage which runs a model reads: each changes floating-point results."""


@dataclass(frozen=True, slots=True)
class FurtherWork:
    """Further work of a stage where the field `asked` is true: its modules, and fields it reads.

    The stage imports the modules by name. Without that work, its key has neither.
    """

    asked: str
    modules: tuple[str, ...]
    reads: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Stage:
    """A stage: its name, its source modules, the fields it reads, its libraries.

    `modules` are its own and those that it uses without an import, such as an update in another
    process. What they import counts too. `reads` are dotted fields or whole sections. `libraries`
    are those whose version changes results. `further` is work that only some configurations want.
    """

    name: str
    modules: tuple[str, ...]
    reads: tuple[str, ...]
    libraries: tuple[str, ...] = ()
    further: tuple[FurtherWork, ...] = ()

    def as_asked(self, config: RunConfig) -> Stage:
        """Return the stage with the further work that a configuration asks for."""
        modules, reads = self.modules, self.reads
        for more in self.further:
            if attrgetter(more.asked)(config):
                modules, reads = (*modules, *more.modules), (*reads, *more.reads)
        return replace(self, modules=modules, reads=reads, further=())


@dataclass
class StageContext(Generic[In]):
    """What a stage's computation may use: inputs, output, its config fields, a scratch folder.

    `scope` is `ids.scope_of` the key's parts; ids start with its head. `tell` publishes in words
    how far the stage is, to readers outside of this process. `execution` is apart from `config`
    because it is in no key: it may change how and when the stage works, never the result.
    """

    stage: Stage
    config: RunConfig
    execution: ExecutionConfig
    epoch: int
    seed: int
    scope: str
    key: str
    inputs: In
    artifacts: Artifacts
    out: ArtifactWriter
    work: Path
    draw: int = 0
    tell: Callable[[str], None] = lambda words: None
    _paces: Paces = field(init=False)

    def __post_init__(self) -> None:
        """Start with no progress."""
        self._paces = Paces(self.stage.name, self.epoch)

    @property
    def store(self) -> Store:
        """Return the run's store."""
        return self.artifacts.store

    @property
    def measured(self) -> MeasuredCheckpoint | MeasuredEndpoint:
        """Return the section of the model that the run measures, as far as the stage reads it.

        It is a view of the section, so no `isinstance` says which of the two it is.
        """
        return cast("MeasuredCheckpoint | MeasuredEndpoint", self.config.benchmark)

    def durable(self) -> Path:
        """Return this stage key's folder, which survives a crash; the commit removes it."""
        return self.store.folder(paths.progress(self.stage.name, self.key))

    def manifest(self, ref: ArtifactRef) -> Manifest:
        """Return an input's manifest, verified."""
        return self.artifacts.load(ref)

    def frame(self, refs: ArtifactRef | Sequence[ArtifactRef], table: str) -> pl.DataFrame:
        """Return a table of an input: one artifact or a sequence of them."""
        refs = [refs] if isinstance(refs, ArtifactRef) else refs
        return self.artifacts.frame([self.artifacts.load(ref) for ref in refs], table)

    def checkpoint(self, ref: CheckpointRef) -> Path:
        """Return the folder with an input checkpoint."""
        return self.artifacts.checkpoint(self.artifacts.load(ref.artifact), ref.name)

    def seed_for(self, *parts: str | int) -> int:
        """Return a seed of the run's seed, the stage, the epoch, the draw and `parts`."""
        drawn = ("draw", self.draw) if self.draw else ()
        return stage_seed(self.seed, self.stage.name, self.epoch, *parts, *drawn)

    def domain(self) -> Domain:
        """Return the configured domain."""
        return get_domain(self.config.domain.name, self.config.domain.options)

    def write(self, output: Output) -> dict[str, Any]:
        """Write the rows that the core made; return its facts."""
        for table, rows in output.tables.items():
            self.out.table(table, rows)
        return output.facts

    def progress(
        self, done: int, total: int, unit: str, *, part: str = "", message: str = ""
    ) -> None:
        """Report how far the stage, or the named part of it, is; `message` says more."""
        event = self._paces.event(done, total, unit, part, message)
        self.tell(self._paces.words)
        if event.due:
            log.info("stage=%s epoch=%d %s", self.stage.name, self.epoch, event.words)
        emit(event)


Compute = Callable[[StageContext[In]], dict[str, Any]]
"""The computation of a stage: writes its rows and checkpoints, returns small facts."""
