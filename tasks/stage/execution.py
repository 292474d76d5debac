"""Carrying out a stage: key -> manifest there? -> reuse, or compute, write parts, manifest last."""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, cast

from genenv_core.config.load import run_name
from genenv_core.config.schema import RunConfig
from genenv_core.errors import GenenvError, StageError, Stopped
from genenv_core.storage import paths
from genenv_core.storage.artifacts import Artifacts, ArtifactWriter, reference
from genenv_core.storage.canonical import digest
from genenv_core.storage.keys import stage_key
from genenv_core.storage.manifest import ArtifactRef, Manifest
from genenv_core.storage.runs import RunLog
from tasks.faults import fail_on_purpose
from tasks.inputs import Inputs
from tasks.progress import Event, check, emit
from tasks.stage.base import Compute, Stage, StageContext, log
from tasks.stage.key import ConfigView, parts_of
from tasks.stage.record import AttemptRecord, failures
from tasks.stores import artifacts_of, leases_of

Elsewhere = Callable[[str, dict[str, Any], Callable[[], Manifest | None]], Manifest]
"""Has a stage computed by another process: key, its parts and the look-up of the manifest go in."""


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
    parts = parts_of(stage, config, epoch, inputs)
    call = _Call(stage, config, epoch, inputs, parts, stage_key(parts), artifacts_of(config.root))
    emit(Event("started", stage.name, epoch))
    record = AttemptRecord(call.run, stage.name, epoch, call.key)
    manifest = call.find()
    away = manifest is None and elsewhere is not None
    took: float | None = None
    if manifest is None:
        with _failing_aloud(call, record, away=away):
            if elsewhere:
                manifest = elsewhere(call.key, parts, call.find)
            else:
                manifest, took = _leased(call, compute, record)
    # A reused stage that this run already noted leaves no new row: a replay of a finished run
    # would otherwise double its history every time.
    first = call.run.note_key(epoch, stage.name, call.key)
    if record.begun or first:
        record.end(
            "computed" if record.begun else "cached",
            rows=manifest.rows,
            bytes=manifest.bytes,
            compute_seconds=took,
        )
    reused = not record.begun and not away
    state, seconds = "cached" if reused else "computed", record.seconds
    log.info(
        "stage=%s epoch=%d key=%s state=%s rows=%d seconds=%.2f",
        stage.name, epoch, call.key[:12], state, manifest.rows, seconds,
    )  # fmt: skip
    emit(Event("finished", stage.name, epoch, state, seconds, facts=manifest.facts))
    return reference(manifest), reused


@dataclass(frozen=True, slots=True)
class _Call:
    """A stage with all that one use of it goes by."""

    stage: Stage
    config: RunConfig
    epoch: int
    inputs: Inputs
    parts: dict[str, Any]
    key: str
    artifacts: Artifacts

    @property
    def run(self) -> RunLog:
        """Return the record of the run."""
        return RunLog(self.artifacts.store, self.config.run_id or run_name(self.config, "run"))

    def find(self) -> Manifest | None:
        """Return the manifest of this key, once it is there."""
        return self.artifacts.find(self.stage.name, self.key)


@contextlib.contextmanager
def _failing_aloud(call: _Call, record: AttemptRecord, *, away: bool) -> Iterator[None]:
    """Note and tell how the block fails; raises StageError for what is no error of genenv's."""
    stage, epoch = call.stage.name, call.epoch
    noted = failures(call.run, epoch, stage) if away else 0
    try:
        yield
    except BaseException as error:
        interrupted = not isinstance(error, Exception) or isinstance(error, Stopped)
        state = "interrupted" if interrupted else "failed"
        with contextlib.suppress(GenenvError):  # a full disk refuses this record as well
            if not away or failures(call.run, epoch, stage) == noted:
                record.end(state, error=_line(error))
        emit(Event("failed", stage, epoch, state, message=_line(error)))
        if interrupted or isinstance(error, GenenvError):
            raise
        raise StageError(f"stage {stage} of epoch {epoch}: {_line(error)}") from error


def _leased(call: _Call, compute: Compute, record: AttemptRecord) -> tuple[Manifest, float | None]:
    """Return the manifest and the seconds of its computation, None when another process made it."""
    stage, epoch, key = call.stage.name, call.epoch, call.key

    def waiting(holder: str) -> None:
        message = f"waiting for {holder}, which computes it"
        log.info("stage=%s epoch=%d key=%s %s", stage, epoch, key[:12], message)
        emit(Event("waiting", stage, epoch, message=message))

    leases = leases_of(call.config.root)
    with leases.hold(stage, key, call.find, waiting=waiting, check=check) as manifest:
        if manifest is not None:
            return manifest, None
        attempt = record.begin()
        log.info("stage=%s epoch=%d key=%s started", stage, epoch, key[:12])
        fail_on_purpose(call.config.execution.test_fault, stage, epoch, attempt)
        began = time.perf_counter()
        manifest = _computed(call, compute)
        return manifest, round(time.perf_counter() - began, 4)


def _computed(call: _Call, compute: Compute) -> Manifest:
    """Return the manifest of what was computed and committed just now."""
    stage, store = call.stage, call.artifacts.store
    work = store.scratch()
    made = ("code", "runtime", "format")
    try:
        context = StageContext(
            stage=stage,
            config=cast(RunConfig, ConfigView(call.config, stage)),
            execution=call.config.execution,
            epoch=call.epoch,
            seed=call.config.seed,
            scope=digest({name: value for name, value in call.parts.items() if name not in made}),
            key=call.key,
            inputs=call.inputs,
            artifacts=call.artifacts,
            out=ArtifactWriter(store, stage.name, call.parts, call.key),
            work=work,
        )
        facts = compute(context)
        manifest, _ = context.out.commit(facts)
        # What a kill leaves between the two lines is never read again: the key is finished.
        shutil.rmtree(store.home / paths.progress(stage.name, call.key), ignore_errors=True)
        return manifest
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _line(error: BaseException) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    if "No space left on device" in text:  # of a library that writes by itself
        text = f"the disk is full: free some space and run the same command again ({text})"
    return text if isinstance(error, GenenvError) else f"{type(error).__name__}: {text}"[:500]
