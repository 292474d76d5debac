"""Carries out a stage: reuses what its key names, or computes it and writes the manifest last.

It writes the end of each attempt into the record of the run.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any, Generic, NamedTuple, cast

from genenv_core.config.load import run_name
from genenv_core.config.schema import RunConfig
from genenv_core.errors import ConfigError, GenenvError, StageError, Stopped, described
from genenv_core.ids import scope_of
from genenv_core.machine.shortage import shortage
from genenv_core.storage import paths
from genenv_core.storage.records.artifacts import Artifacts, ArtifactWriter, reference
from genenv_core.storage.records.keys import stage_key
from genenv_core.storage.records.manifest import ArtifactRef, Manifest
from genenv_core.storage.records.origins import Origin, note_origin
from genenv_core.storage.records.runs import RunLog, StageAttempt
from genenv_core.storage.store.process import identity
from schemas.enums import StageState
from tasks.stage.context import Compute, Stage, StageContext, log
from tasks.stage.effort import Effort, effort, tokens_of
from tasks.stage.inputs import In
from tasks.stage.key import ConfigView, parts_of
from tasks.stage.origin import computed_then, found_origin, origin_of
from tasks.stage.progress import Event, check, emit
from tasks.stage.stores import artifacts_of, leases_of, readers_of
from tasks.stage.telemetry.spans import Telling, stage_span

FAULTS_VARIABLE = "GENENV_TEST_FAULTS"
"""Set to 1, this variable allows a stage that fails on purpose, so that tests can press Retry."""


class StageOutcome(NamedTuple):
    """A stage's output, whether it was reused, and who computed a reused one."""

    ref: ArtifactRef
    reused: bool
    origin: Origin | None


Elsewhere = Callable[[str, dict[str, Any], Callable[[], Manifest | None]], Manifest]
"""Lets another process compute a stage; takes the key, its parts and a look-up of the manifest."""


def run_stage(
    stage: Stage,
    compute: Compute[In],
    config: RunConfig,
    epoch: int,
    inputs: In,
    elsewhere: Elsewhere | None = None,
    draw: int = 0,
) -> StageOutcome:
    """Return the stage's output: reuse it, or compute and commit it.

    Takes an output that the run's root lacks from the roots of `roots.read`, where one has it.

    `elsewhere` replaces `compute`: the process that computes holds the lease and records the
    attempt, and this process records only what that one could not.
    """
    parts = parts_of(stage, config, epoch, inputs, draw)
    call = _Call(stage, config, epoch, inputs, parts, stage_key(parts), artifacts_of(config.root))
    with stage_span(call.run.run_id, stage.name, epoch, call.key) as span:
        return _carried_out(call, compute, elsewhere, span)


def _carried_out(
    call: _Call[In], compute: Compute[In], elsewhere: Elsewhere | None, span: Telling
) -> StageOutcome:
    """Do the work of `run_stage`, and add the outcome to the stage's span."""
    stage, config, epoch, parts = call.stage, call.config, call.epoch, call.parts
    emit(Event("started", stage.name, epoch))
    record = AttemptRecord(call.run, stage.name, epoch, call.key)
    manifest = call.find() or readers_of(config).take_in(stage.name, call.key)
    away = manifest is None and elsewhere is not None
    took = Effort()
    if manifest is None:
        with _failing_aloud(call, record, away=away):
            if elsewhere:
                manifest = elsewhere(call.key, parts, call.find)
            else:
                manifest, took = _leased(call, compute, record)
    # A reused stage that this run already noted leaves no new row: a replay of a finished run
    # would otherwise double its history every time.
    reused = not record.begun and not away
    first = call.run.note_key(epoch, stage.name, call.key)
    store = call.artifacts.store
    origin = (
        found_origin(store, call.run, epoch, stage.name, call.key, first=first) if reused else None
    )
    if record.begun or first:
        record.end(
            StageState.COMPUTED if record.begun else StageState.CACHED,
            rows=manifest.rows,
            bytes=manifest.bytes,
            **took.values,
            **computed_then(origin),
        )
    state, seconds = StageState.CACHED if reused else StageState.COMPUTED, record.seconds
    log.info(
        "stage=%s epoch=%d key=%s state=%s rows=%d seconds=%.2f",
        stage.name, epoch, call.key[:12], state, manifest.rows, seconds,
    )  # fmt: skip
    span.tell(
        {
            "genenv.state": state.value,
            "genenv.work_pool": config.placement.of(stage.name) if away else None,
            "genenv.computed_by": origin.run_id if origin else None,
            "genenv.rows": manifest.rows,
            "genenv.seconds": round(seconds, 4),
            "genenv.tokens": took.tokens,
        }
    )
    origin_line = str(origin or "")
    emit(
        Event(
            "finished", stage.name, epoch, state, seconds, message=origin_line, facts=manifest.facts
        )
    )
    return StageOutcome(reference(manifest), reused, origin)


@dataclass(frozen=True, slots=True)
class _Call(Generic[In]):
    """One use of a stage: its settings, its inputs and its key."""

    stage: Stage
    config: RunConfig
    epoch: int
    inputs: In
    parts: dict[str, Any]
    key: str
    artifacts: Artifacts

    @property
    def run(self) -> RunLog:
        """Return the record of the run."""
        return RunLog(self.artifacts.store, self.config.run_id or run_name(self.config, "run"))

    def find(self) -> Manifest | None:
        """Return the manifest of this key, None before it exists."""
        return self.artifacts.find(self.stage.name, self.key)


class AttemptRecord:
    """One attempt at a stage by this process; only `begin` and `end` write."""

    def __init__(self, run: RunLog, stage: str, epoch: int, key: str) -> None:
        """Start the clock of an attempt."""
        started, self._clock = datetime.now(UTC), time.perf_counter()
        self._run = run
        self._attempt = StageAttempt(
            run_id=run.run_id,
            epoch=epoch,
            stage=stage,
            stage_key=key,
            state=StageState.RUNNING,
            host=socket.gethostname(),
            pid=os.getpid(),
            process=identity(os.getpid()),
            started_at=started,
        )
        self.begun = False

    @property
    def seconds(self) -> float:
        """Return how long ago the attempt started."""
        return time.perf_counter() - self._clock

    def begin(self) -> int:
        """Write that the computation begins; return the number of the attempt, from 1."""
        self._attempt, self.begun = self._run.begin(self._attempt), True
        return self._attempt.attempt

    def origin(self) -> Origin:
        """Return this attempt as the origin of its stage's output."""
        return origin_of(self._attempt, round(self.seconds, 4))

    def end(self, state: StageState, **values: Any) -> None:
        """Write how it ended, and `values`: the only event of an attempt that never began."""
        seconds = round(self.seconds, 4)
        last = self._attempt.model_copy(update={"state": state, "seconds": seconds, **values})
        (self._run.end if self.begun else self._run.begin)(last)


def _failures(run: RunLog, epoch: int, stage: str) -> int:
    """Return how many recorded attempts at a stage of a run were unsuccessful."""
    unsuccessful = (StageState.FAILED, StageState.INTERRUPTED)
    attempts = [a for a in run.attempts([epoch]) if a.stage == stage and a.seconds is not None]
    return sum(attempt.state in unsuccessful for attempt in attempts)


@contextlib.contextmanager
def _failing_aloud(call: _Call[Any], record: AttemptRecord, *, away: bool) -> Generator[None]:
    """Record and report how the block fails; turn errors that are not genenv's into StageError."""
    stage, epoch = call.stage.name, call.epoch
    noted = _failures(call.run, epoch, stage) if away else 0
    try:
        yield
    except BaseException as error:
        interrupted = not isinstance(error, Exception) or isinstance(error, Stopped)
        state = StageState.INTERRUPTED if interrupted else StageState.FAILED
        with contextlib.suppress(GenenvError):  # a full disk refuses this record as well
            if not away or _failures(call.run, epoch, stage) == noted:
                record.end(state, error=_line(error))
        emit(Event("failed", stage, epoch, state, message=_line(error)))
        if interrupted or isinstance(error, GenenvError):
            raise
        raise StageError(f"stage {stage} of epoch {epoch}: {_line(error)}") from error


def _leased(
    call: _Call[In], compute: Compute[In], record: AttemptRecord
) -> tuple[Manifest, Effort]:
    """Return the manifest and its effort, which is empty when another process made it."""
    stage, epoch, key = call.stage.name, call.epoch, call.key

    def waiting(holder: str) -> None:
        message = f"waiting for {holder}, which computes it"
        log.info("stage=%s epoch=%d key=%s %s", stage, epoch, key[:12], message)
        emit(Event("waiting", stage, epoch, message=message))

    leases = leases_of(call.config.root)
    with leases.hold(stage, key, call.find, waiting=waiting, check=check) as manifest:
        if manifest is not None:
            return manifest, Effort()
        attempt = record.begin()
        log.info("stage=%s epoch=%d key=%s started", stage, epoch, key[:12])
        _fail_on_purpose(call.config.execution.test_fault, stage, epoch, attempt)
        with effort() as took:
            manifest, won = _computed(call, compute)
        if won:
            note_origin(call.artifacts.store, record.origin())
        took.tokens = tokens_of(manifest, call.inputs, call.artifacts)
        return manifest, took


def _computed(call: _Call[In], compute: Compute[In]) -> tuple[Manifest, bool]:
    """Compute and commit a stage; return its manifest, and whether it is this process's own."""
    stage, store = call.stage.as_asked(call.config), call.artifacts.store
    work = store.scratch()
    try:
        context = StageContext(
            stage=stage,
            config=cast(RunConfig, ConfigView(call.config, stage)),
            execution=call.config.execution,
            epoch=call.epoch,
            seed=call.config.seed,
            scope=scope_of(call.parts),
            key=call.key,
            inputs=call.inputs,
            artifacts=call.artifacts,
            out=ArtifactWriter(store, stage.name, call.parts, call.key),
            work=work,
            draw=call.parts.get("draw", 0),
            tell=partial(leases_of(call.config.root).tell, stage.name, call.key),
        )
        facts = compute(context)
        manifest, won = context.out.commit(facts)
        # Nobody reads what a kill leaves between the two lines: the key is finished.
        shutil.rmtree(store.home / paths.progress(stage.name, call.key), ignore_errors=True)
        return manifest, won
    finally:
        shutil.rmtree(work, ignore_errors=True)


def refuse_outside_tests(fault: str | None) -> None:
    """Raise ConfigError for a configured fault, unless the variable allows it."""
    if fault and os.environ.get(FAULTS_VARIABLE) != "1":
        raise ConfigError(
            f"execution.test_fault {fault!r} is for genenv's own tests: remove it (they set "
            f"{FAULTS_VARIABLE}=1)"
        )


def _fail_on_purpose(fault: str | None, stage: str, epoch: int, attempt: int) -> None:
    """Raise StageError when the fault names this stage and this is its first attempt."""
    if fault == f"{stage}:{epoch}" and attempt == 1:
        refuse_outside_tests(fault)
        raise StageError(
            f"{stage} of epoch {epoch}: execution.test_fault made this first attempt fail; the "
            "next one goes on"
        )


def _line(error: BaseException) -> str:
    text = described(error, 500)
    what = None if isinstance(error, GenenvError) else shortage(error)
    return f"{what} ({text})" if what else text
