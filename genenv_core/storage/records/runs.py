"""Runs: the resolved configuration, which stages make up each epoch, and every attempt.

A run is a thin layer over shared stages: it only names keys. Its record is history and may hold
wall-clock times, hosts and process ids; no key depends on it.
"""

from __future__ import annotations

import contextlib
import logging
import re
import threading
from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any

from pydantic import Field

from genenv_core.config.sections.benchmark import OF_RUN
from genenv_core.config.stages import LAST, STAGES
from genenv_core.errors import AlreadyExists, ConfigError, IntegrityError, NotFound
from genenv_core.storage import paths
from genenv_core.storage.seal import SealedRecord
from genenv_core.storage.store.finding import kept_record
from genenv_core.storage.store.process import has_ended
from genenv_core.storage.store.protocol import Store
from schemas.enums import StageState

log = logging.getLogger("genenv.storage")

TRACKED = "tracked"
"""Pseudo-stage under which a run notes the `publish` output that it has logged, and where."""

_EVENT = re.compile(r"(\d+-\w+)-(\d+)-(?:start|end)\.json")

# The highest attempt at each stage that this process has seen, so that it lists them once.
_seen: dict[tuple[str, str], dict[str, int]] = {}
_counting = threading.Lock()

# Warnings of `leave_out`: root, run, reason.
_said: set[tuple[str, str, str]] = set()


class StageAttempt(SealedRecord):
    """One try of a stage by a run; `seconds` is None while it runs, and for a killed one.

    `attempt` counts from 1; `RunLog.begin` gives it. `process` is the result of
    `genenv_core.storage.store.process.identity`. For a reused stage, `computed_by` is the run that
    computed it, `computed_at` the time, `computed_seconds` the cost, and `computed_root` the root
    that had it, None for this one. For a computed stage, `tokens` are those that it read and
    sampled, or drew, and `peak_memory` the most bytes that its processes held.
    """

    run_id: str
    epoch: int
    stage: str
    attempt: int = Field(default=1, ge=1)
    stage_key: str
    state: StageState
    host: str
    pid: int
    process: str = ""
    started_at: datetime
    seconds: float | None = None
    compute_seconds: float | None = None
    rows: int = 0
    bytes: int = 0
    error: str = ""
    computed_by: str | None = None
    computed_at: datetime | None = None
    computed_seconds: float | None = None
    computed_root: str | None = None
    tokens: int | None = None
    peak_memory: int | None = None


class RunInfo(SealedRecord):
    """A run's resolved configuration, and when it first started (UTC).

    `fixed_tasks` counts by domain the tasks of fixed sets, as `fixed_sets` of a domain does.
    `folder` is the folder of relative files of one's own code; '' without such files.
    """

    run_id: str
    started_at: datetime
    config: dict[str, Any]
    fixed_tasks: dict[str, int] = Field(default_factory=dict[str, int])
    folder: str = ""


class RunLog:
    """The record of one run; any number of threads and processes may write it at once.

    It logs a warning for a damaged file and takes it as missing: the record is history, and a
    repeated run writes again what it still needs.
    """

    def __init__(self, store: Store, run_id: str) -> None:
        """Open the record of a run, which may not exist yet."""
        self._store = store
        self.run_id = run_id

    def open(
        self,
        config: dict[str, Any],
        now: datetime,
        fixed_tasks: Mapping[str, int] | None = None,
        folder: str = "",
    ) -> dict[str, Any]:
        """Note the resolved configuration; a changed one (more epochs, say) replaces the old one.

        Returns the configuration so far, {} for a new run.
        """
        try:
            known = self.info()
        except NotFound:
            known = None
        asked = (config, dict(fixed_tasks or {}), folder)
        if known is None or (known.config, known.fixed_tasks, known.folder) != asked:
            began = [attempt.started_at for attempt in self.attempts()]
            info = RunInfo(
                run_id=self.run_id,
                started_at=known.started_at if known else min(began, default=now),
                config=config,
                fixed_tasks=asked[1],
                folder=folder,
            )
            self._store.replace(paths.run_config(self.run_id), info.to_bytes())
        return known.config if known else {}

    def info(self) -> RunInfo:
        """Return the run's configuration; raises NotFound for a run without one."""
        path = paths.run_config(self.run_id)
        try:
            return RunInfo.from_bytes(self._store.read(path))
        except IntegrityError as error:
            leave_out(self._store, self.run_id, f"{path}: {error}: run it again to write it anew")
            raise NotFound(f"{path} is damaged: {error}") from error

    def epochs(self) -> list[int]:
        """Return the epochs with a finished stage, sorted; 0 is the start."""
        return sorted(
            int(name.partition(".")[0]) for name in self._store.names(paths.epochs(self.run_id))
        )

    def keys(self, epoch: int) -> dict[str, str]:
        """Return stage -> key of the finished stages of one epoch."""
        return self._keys(epoch)[1]

    def note_key(self, epoch: int, stage: str, key: str) -> bool:
        """Note that a stage is finished under this key; return whether that is news."""
        while True:
            before, known = self._keys(epoch)
            if known.get(stage) == key:
                return False
            after = EpochKeys(epoch=epoch, keys={**known, stage: key})
            path = paths.run_epoch(self.run_id, epoch)
            if stage in known:
                # Perhaps no run names its earlier output from now on: its age for gc begins here.
                self._store.touch(paths.manifest(stage, known[stage]))
            if self._store.swap(path, before, after.to_bytes()):
                return True

    def _keys(self, epoch: int) -> tuple[bytes | None, dict[str, str]]:
        """Return the bytes of an epoch's record and the keys in it."""
        path = paths.run_epoch(self.run_id, epoch)
        damaged = f"run={self.run_id} epoch={epoch} is unknown until it runs again: {path}"
        data, known = kept_record(self._store, path, EpochKeys.remembered, damaged)
        return data, dict(known.keys) if known else {}

    def begin(self, attempt: StageAttempt) -> StageAttempt:
        """Write the first event of an attempt, which may be its last; return the numbered attempt.

        Creating the event takes the number, so no two attempts of any processes share one.
        """
        while True:
            number = self._next_number(attempt.epoch, attempt.stage)
            numbered = attempt.model_copy(update={"attempt": number})
            with contextlib.suppress(AlreadyExists):  # another process took it
                self._store.create(self._event(numbered, "start"), numbered.to_bytes())
                return numbered

    def end(self, attempt: StageAttempt) -> None:
        """Write how a begun attempt has ended."""
        self._store.create(self._event(attempt, "end"), attempt.to_bytes())

    def events(self) -> dict[int, list[str]]:
        """Return the names of the event files of attempts by epoch, sorted."""
        found: dict[int, list[str]] = {}
        for name in self._store.names(paths.attempts(self.run_id)):
            found.setdefault(int(name.split("-")[0]), []).append(name)
        return found

    def attempts(self, epochs: Collection[int] | None = None) -> list[StageAttempt]:
        """Return every attempt, of some epochs or of all, oldest first.

        One without an end is `interrupted` when its process has certainly ended, or when the run
        has tried the stage again since. Else it is still `running`.
        """
        events: dict[str, StageAttempt | None] = {}
        for epoch, listed in self.events().items():
            for file in listed if epochs is None or epoch in epochs else ():
                name, _, event = file.removesuffix(".json").rpartition("-")
                if event == "end" or name not in events:
                    # Skip an attempt with an unreadable end: it would look like one at work.
                    events[name] = self._attempt(f"{paths.attempts(self.run_id)}/{file}")
        latest = [attempt for attempt in events.values() if attempt]
        last: dict[tuple[int, str], int] = {}
        for attempt in latest:
            where = (attempt.epoch, attempt.stage)
            last[where] = max(last.get(where, 0), attempt.attempt)
        found = [
            attempt.model_copy(update={"state": StageState.INTERRUPTED})
            if attempt.state is StageState.RUNNING
            and (
                attempt.attempt < last[attempt.epoch, attempt.stage]
                or has_ended(attempt.pid, attempt.process)
            )
            else attempt
            for attempt in latest
        ]
        return sorted(found, key=lambda item: (item.started_at, item.epoch))

    def _attempt(self, path: str) -> StageAttempt | None:
        try:
            return StageAttempt.remembered(self._store.read(path))
        except IntegrityError as error:
            log.warning("run=%s attempt skipped: %s: %s", self.run_id, path, error)
            return None

    def _next_number(self, epoch: int, stage: str) -> int:
        """Return the first number of an attempt that is free as far as this process knows."""
        with _counting:
            counts = _seen.get((self._store.uri, self.run_id))
            if counts is None:
                counts = dict[str, int]()
                for name in self._store.names(paths.attempts(self.run_id)):
                    if found := _EVENT.fullmatch(name):
                        counts[found[1]] = max(counts.get(found[1], 0), int(found[2]))
                _seen[(self._store.uri, self.run_id)] = counts
            where = f"{epoch:05d}-{stage}"
            counts[where] = counts.get(where, 0) + 1
            return counts[where]

    def _event(self, attempt: StageAttempt, event: str) -> str:
        return paths.attempt(self.run_id, attempt.epoch, attempt.stage, attempt.attempt, event)


class EpochKeys(SealedRecord):
    """The stage keys of one epoch of a run."""

    epoch: int
    keys: dict[str, str]


def place_of(stage: str) -> int:
    """Return the place of a stage in an epoch; that of an unknown one is last."""
    return list(STAGES).index(stage) if stage in STAGES else len(STAGES)


def leave_out(store: Store, run_id: str, why: str) -> bool:
    """Return whether `why` has a reason to leave a run out; log each reason once."""
    warning = (store.uri, run_id, why)
    if why and warning not in _said:
        _said.add(warning)
        log.warning(
            "run=%s is left out: %s (genenv gc --drop-run %s removes it)", run_id, why, run_id
        )
    return bool(why)


def left_out(store: Store) -> dict[str, str]:
    """Return the reasons for which this process has left runs of a store out, by their ids."""
    return {run: why for root, run, why in sorted(_said) if root == store.uri}


def list_runs(store: Store) -> list[str]:
    """Return the ids of all runs in a store, sorted."""
    # A folder without a configuration is a run that never began; it may hold a log already.
    return [
        run for run in store.names(paths.runs()) if is_there(store, run) and _is_known(store, run)
    ]


def is_there(store: Store, run_id: str) -> bool:
    """Return whether a run began, and nobody has dropped it since."""
    return "config.json" in store.names(paths.run(run_id))


def unknown_run(store: Store, run_id: str) -> str:
    """Return in words that a run does not exist, with the known ones; '' for one that does."""
    # Only an unknown name costs a look at every run.
    if run_id in store.names(paths.runs()) and _is_known(store, run_id):
        return ""
    return no_such_run(run_id, list_runs(store))


def no_such_run(run_id: str, known: Collection[str], where: str = "here") -> str:
    """Return the message for an unknown run."""
    return f"there is no run {run_id!r} {where}; known: {', '.join(known) or 'none'}"


def pinned(store: Store, field: str, name: str) -> str:
    """Return run:RUN@EPOCH for a name that may omit the epoch, which then is the last one.

    `field` is the one that has the name. Raises ConfigError for a run or an epoch that does not
    exist.
    """
    run, _, wanted = name.removeprefix(OF_RUN).partition("@")
    try:
        log = RunLog(store, run)
        log.info()
    except NotFound:
        known = list_runs(store)
        raise ConfigError(f"{field}: {no_such_run(run, known, 'in this root')}") from None
    finished = 0
    while LAST in log.keys(finished):
        finished += 1
    if wanted and not re.fullmatch("[0-9]{1,6}", wanted):
        raise ConfigError(f"{field} {name}: after @ stands the number of an epoch")
    if int(wanted or 0) >= finished:
        last = f"the last one is {finished - 1}" if finished else "it has none"
        raise ConfigError(
            f"{field} {name}: the run has no such finished epoch, {last}: name another one "
            f"or continue it with `genenv resume {run}`"
        )
    return f"{OF_RUN}{run}@{wanted or finished - 1}"


def _is_known(store: Store, run_id: str) -> bool:
    try:
        RunLog(store, run_id).info()
    except NotFound:
        return False
    return True
