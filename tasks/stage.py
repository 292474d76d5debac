"""The stage task: one cached unit of an epoch, as Prefect runs it.

Every stage does the same around its computation: key -> manifest there? -> reuse, or compute, write
parts, write the manifest last. The truth about a stage is its manifest. A reused stage returns
Prefect's completed state under the name `Cached`; Prefect's own result cache is off, because a
result record outlives damaged data, and a killed process leaves a manifest without a record.

`StageTask.submit` is the only call that flows make. Inside `planning` it computes nothing and only
says what would happen, so `genenv plan` walks the very same flows.
"""

from __future__ import annotations

import contextlib
import logging
import os
import platform
import shutil
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache, partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, Protocol, cast

import polars as pl
from prefect import task
from prefect.cache_policies import NO_CACHE
from prefect.states import Completed, State
from pydantic import BaseModel

from genenv_core.config.load import run_name
from genenv_core.config.schema import INLINE, ExecutionConfig, RunConfig
from genenv_core.domains.base import Domain
from genenv_core.domains.registry import get_domain
from genenv_core.errors import GenenvError, StageError, Stopped
from genenv_core.ids import seed_from
from genenv_core.storage import paths
from genenv_core.storage.artifacts import Artifacts, ArtifactWriter, reference
from genenv_core.storage.base import Store
from genenv_core.storage.canonical import digest
from genenv_core.storage.code import code_version
from genenv_core.storage.keys import difference, key_parts, stage_key
from genenv_core.storage.leases import Leases
from genenv_core.storage.manifest import ArtifactRef, CheckpointRef, FileRef, Manifest
from genenv_core.storage.process import identity
from genenv_core.storage.registry import open_store
from genenv_core.storage.runs import Attempt, RunLog, list_runs
from tasks.faults import fail_on_purpose
from tasks.progress import Event, check, emit

log = logging.getLogger("genenv.stage")

COMPUTE_FIELDS = ("compute.engine", "compute.threads")
"""What every stage that runs a model reads: both change floating-point results."""


Input = ArtifactRef | CheckpointRef | FileRef | str | float | None
Inputs = Mapping[str, "Input | Sequence[ArtifactRef]"]


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
After = Callable[[RunConfig, int, ArtifactRef, Artifacts], None]
Elsewhere = Callable[[str, dict[str, Any], Callable[[], Manifest | None]], Manifest]
"""Has a stage computed by another process: key, its parts and the look-up of the manifest go in."""


class Pending(Protocol):
    """What `submit` returns: a Prefect future, or a planned result."""

    def result(self) -> Any:
        """Return the stage's reference, waiting for it; raises what the stage raised."""
        ...


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
_opened: dict[str, Artifacts] = {}


@contextlib.contextmanager
def planning() -> Iterator[list[Planned]]:
    """Make `submit` plan instead of computing; yields the list that fills."""
    entries: list[Planned] = []
    token = _plan.set(entries)
    try:
        yield entries
    finally:
        _plan.reset(token)


class StageTask:
    """A stage bound to its computation; `submit` is how a flow calls it."""

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
            elsewhere = None if place == INLINE else on_pool(stage, config, epoch, inputs, place)
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
        """Start the stage as soon as its inputs are there; futures among them are waited for."""
        plan = _plan.get()
        if plan is not None:
            plan.append(self._planned(config, epoch, inputs))
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

    def _planned(self, config: RunConfig, epoch: int, inputs: dict[str, Any]) -> Planned:
        known = {name: _known(value) for name, value in inputs.items()}
        if any(isinstance(value, Planned) for value in known.values()):
            return Planned(self.stage.name, epoch, "unknown")
        parts = parts_of(self.stage, config, epoch, known)
        key = stage_key(parts)
        artifacts = artifacts_of(config.root)
        manifest = artifacts.find(self.stage.name, key)
        if manifest is None:
            changed = self._changed(config, epoch, key, parts, artifacts)
            return Planned(
                self.stage.name, epoch, "miss", key, parts, changed=changed, inputs=known
            )
        ref = reference(manifest)
        return Planned(self.stage.name, epoch, "hit", key, parts, ref=ref, inputs=known)

    def _changed(
        self, config: RunConfig, epoch: int, key: str, parts: dict[str, Any], artifacts: Artifacts
    ) -> tuple[str, ...]:
        """Return how a missed key differs from the one under which this run finished the stage.

        A run that never did is compared with the run of the root that differs least.
        """
        run = RunLog(artifacts.store, config.run_id or run_name(config, "run"))
        before = run.keys(epoch).get(self.stage.name)
        if before is None:
            return _nearest(self.stage.name, epoch, parts, artifacts)
        if before == key:
            return ("its output is missing or damaged",)
        manifest = artifacts.find(self.stage.name, before)
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


def on_pool(stage: Stage, config: RunConfig, epoch: int, inputs: Inputs, pool: str) -> Elsewhere:
    """Return how a stage is computed by a work pool."""
    from tasks.placement import compute_on_pool  # which stands on this module

    return partial(compute_on_pool, stage.name, config, epoch, inputs, pool)


def run_stage(
    stage: Stage,
    compute: Compute,
    config: RunConfig,
    epoch: int,
    inputs: Inputs,
    elsewhere: Elsewhere | None = None,
) -> tuple[ArtifactRef, bool]:
    """Return the stage's output and whether it was reused; has it computed and committed otherwise.

    `elsewhere` takes the place of `compute`. Then the process that computes holds the lease and
    writes the attempt, and this one only notes what that could not.
    """
    artifacts = artifacts_of(config.root)
    parts = parts_of(stage, config, epoch, inputs)
    key = stage_key(parts)
    run = RunLog(artifacts.store, config.run_id or run_name(config, "run"))
    emit(Event("started", stage.name, epoch))
    started, clock = datetime.now(UTC), time.perf_counter()
    attempt = Attempt(
        run_id=run.run_id,
        epoch=epoch,
        stage=stage.name,
        stage_key=key,
        state="running",
        host=socket.gethostname(),
        pid=os.getpid(),
        process=identity(os.getpid()),
        started_at=started,
    )
    begun = False

    def ended(state: str, **values: Any) -> None:
        seconds = round(time.perf_counter() - clock, 4)
        last = attempt.model_copy(update={"state": state, "seconds": seconds, **values})
        (run.end if begun else run.begin)(last)

    def waiting(holder: str) -> None:
        message = f"waiting for {holder}, which computes it"
        log.info("stage=%s epoch=%d key=%s %s", stage.name, epoch, key[:12], message)
        emit(Event("waiting", stage.name, epoch, message=message))

    began = computed = clock
    find = partial(artifacts.find, stage.name, key)
    manifest = find()
    away = manifest is None and elsewhere is not None
    noted = _failures(run, epoch, stage.name) if away else 0
    if manifest is None:
        try:
            if elsewhere:
                manifest = elsewhere(key, parts, find)
            else:
                leases = leases_of(config.root)
                with leases.hold(stage.name, key, find, waiting=waiting, check=check) as manifest:
                    if manifest is None:
                        attempt, begun = run.begin(attempt), True
                        log.info("stage=%s epoch=%d key=%s started", stage.name, epoch, key[:12])
                        fail_on_purpose(
                            config.execution.test_fault, stage.name, epoch, attempt.attempt
                        )
                        began = time.perf_counter()
                        manifest = _compute(
                            stage, compute, config, epoch, inputs, parts, key, artifacts
                        )
                        computed = time.perf_counter()
        except BaseException as error:
            interrupted = not isinstance(error, Exception) or isinstance(error, Stopped)
            state = "interrupted" if interrupted else "failed"
            with contextlib.suppress(GenenvError):  # a full disk refuses this record as well
                if not away or _failures(run, epoch, stage.name) == noted:
                    ended(state, error=_line(error))
            emit(Event("failed", stage.name, epoch, state, message=_line(error)))
            if interrupted or isinstance(error, GenenvError):
                raise
            raise StageError(f"stage {stage.name} of epoch {epoch}: {_line(error)}") from error
    reused = not begun and not away
    # A reused stage that this run already noted leaves no new row: a replay of a finished run
    # would otherwise double its history every time.
    first = run.note_key(epoch, stage.name, key)
    if begun or first:
        ended(
            "computed" if begun else "cached",
            rows=manifest.rows,
            bytes=manifest.bytes,
            compute_seconds=round(computed - began, 4) if begun else None,
        )
    seconds = time.perf_counter() - clock
    state = "cached" if reused else "computed"
    log.info(
        "stage=%s epoch=%d key=%s state=%s rows=%d seconds=%.2f",
        stage.name, epoch, key[:12], state, manifest.rows, seconds,
    )  # fmt: skip
    emit(Event("finished", stage.name, epoch, state, seconds, facts=manifest.facts))
    return reference(manifest), reused


def _failures(run: RunLog, epoch: int, stage: str) -> int:
    """Return how many attempts at a stage of a run have told that they did not succeed."""
    told = ("failed", "interrupted")
    attempts = [a for a in run.attempts([epoch]) if a.stage == stage and a.seconds is not None]
    return sum(attempt.state in told for attempt in attempts)


def parts_of(stage: Stage, config: RunConfig, epoch: int, inputs: Inputs) -> dict[str, Any]:
    """Return the parts of a stage's key."""
    # Without the label of a build (+cpu, +cu130): a flow makes the keys of stages that pods compute
    # with another build of the same version.
    runtime = {library: version(library).partition("+")[0] for library in stage.libraries}
    modules = list(stage.modules)
    if stage.libraries:
        runtime["machine"] = platform.machine()
    if "domain" in stage.reads:
        domain = get_domain(config.domain.name, config.domain.options)
        runtime["domain"] = f"{domain.name} {domain.version}"
        modules.append(type(domain).__module__)
    return key_parts(
        stage=stage.name,
        code=code_version(*modules),
        config=config_fields(config, stage.reads),
        inputs={name: _identity(value) for name, value in inputs.items()},
        seed=config.seed,
        epoch=epoch,
        runtime=runtime,
    )


def config_fields(config: RunConfig, reads: Sequence[str]) -> dict[str, Any]:
    """Return dotted leaf -> value for the fields and sections in `reads`."""
    leaves: dict[str, Any] = {}
    for path in reads:
        value: Any = config
        for name in path.split("."):
            value = getattr(value, name)
        _flatten(path, value, leaves)
    return leaves


class ConfigView:
    """The configuration as one stage may see it: reading any other field is an error.

    This is what keeps a key honest: a stage cannot depend on a field that is not in its key.
    """

    def __init__(self, value: BaseModel, stage: Stage, prefix: str = "") -> None:
        """Wrap the configuration or a section of it."""
        self._value, self._stage, self._prefix = value, stage, prefix

    def __getattr__(self, name: str) -> Any:
        """Return the field when the stage declared it; raises StageError otherwise."""
        path = f"{self._prefix}{name}"
        value = getattr(self._value, name)
        if path in self._stage.reads:
            return value
        if any(read.startswith(path + ".") for read in self._stage.reads):
            return ConfigView(value, self._stage, path + ".")
        raise StageError(
            f"stage {self._stage.name} reads config.{path}, which is not in its key: add it to "
            f"`reads` in {self._stage.modules[0]}"
        )


def _compute(
    stage: Stage,
    compute: Compute,
    config: RunConfig,
    epoch: int,
    inputs: Inputs,
    parts: dict[str, Any],
    key: str,
    artifacts: Artifacts,
) -> Manifest:
    work = artifacts.store.scratch()
    made = ("code", "runtime", "format")
    try:
        context = StageContext(
            stage=stage,
            config=cast(RunConfig, ConfigView(config, stage)),
            execution=config.execution,
            epoch=epoch,
            seed=config.seed,
            scope=digest({name: value for name, value in parts.items() if name not in made}),
            key=key,
            inputs=inputs,
            artifacts=artifacts,
            out=ArtifactWriter(artifacts.store, stage.name, parts, key),
            work=work,
        )
        facts = compute(context)
        manifest, _ = context.out.commit(facts)
        # What a kill leaves between the two lines is never read again: the key is finished.
        shutil.rmtree(artifacts.store.home / paths.progress(stage.name, key), ignore_errors=True)
        return manifest
    finally:
        shutil.rmtree(work, ignore_errors=True)


def artifacts_of(root: str) -> Artifacts:
    """Return the artifacts of a root, opened once a process."""
    if root not in _opened:
        _opened[root] = Artifacts(open_store(root))
    return _opened[root]


@cache
def leases_of(root: str) -> Leases:
    """Return this process's leases in a root."""
    return Leases(artifacts_of(root).store)


def _known(value: Any) -> Any:
    """Return what a planned input resolves to; a Planned when it is not known yet."""
    if isinstance(value, list | tuple):
        items = [_known(item) for item in cast(Sequence[Any], value)]
        return next((item for item in items if isinstance(item, Planned)), items)
    return (value.ref or value) if isinstance(value, Planned) else value


def _identity(value: Any) -> Any:
    if isinstance(value, ArtifactRef):
        return value.digest
    if isinstance(value, CheckpointRef):
        return f"{value.digest}@{value.policy_version}"
    if isinstance(value, FileRef):
        return value.sha256
    if isinstance(value, list | tuple):
        return [_identity(item) for item in cast(Sequence[Any], value)]
    return value


def _flatten(path: str, value: Any, leaves: dict[str, Any]) -> None:
    if isinstance(value, BaseModel):
        for name in type(value).model_fields:
            _flatten(f"{path}.{name}", getattr(value, name), leaves)
    else:
        leaves[path] = getattr(value, "value", value)


def _line(error: BaseException) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    if "No space left on device" in text:  # of a library that writes by itself
        text = f"the disk is full: free some space and run the same command again ({text})"
    return text if isinstance(error, GenenvError) else f"{type(error).__name__}: {text}"[:500]
