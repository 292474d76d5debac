"""Runs: the resolved configuration, which stages make up each epoch, and every attempt.

A run is a thin layer over shared stages: it only names keys. What is here is history and may hold
wall-clock times, hosts and process ids; nothing here enters a key.
"""

from __future__ import annotations

import threading
from datetime import datetime
from typing import Any, Literal

from pydantic import Field

from genenv_core.errors import NotFound
from genenv_core.storage import paths
from genenv_core.storage.canonical import readable_json
from genenv_core.storage.local import LocalStore
from genenv_core.storage.manifest import Record

StageState = Literal["running", "computed", "cached", "failed", "interrupted"]


# One process writes a run; these keep its threads apart and the listing of its past to one.
_writing = threading.Lock()
_attempts: dict[tuple[str, str], dict[str, int]] = {}


class Attempt(Record):
    """One try of a stage by a run; `seconds` is None while it runs or when it was killed."""

    run_id: str
    epoch: int
    stage: str
    attempt: int = Field(ge=1)
    stage_key: str
    state: StageState
    host: str
    pid: int
    started_at: datetime
    seconds: float | None = None
    compute_seconds: float | None = None
    rows: int = 0
    bytes: int = 0
    error: str = ""


class RunInfo(Record):
    """What a run is: its resolved configuration, and when it was first started (UTC)."""

    run_id: str
    started_at: datetime
    config: dict[str, Any]


class RunLog:
    """The record of one run. One process writes a run at a time; threads of it may share this."""

    def __init__(self, store: LocalStore, run_id: str) -> None:
        """Open the record of a run, which may not exist yet."""
        self._store = store
        self.run_id = run_id

    def open(self, config: dict[str, Any], now: datetime) -> None:
        """Note the resolved configuration; a changed one (more epochs, say) replaces the old."""
        try:
            known = self.info()
        except NotFound:
            known = None
        if known is None or known.config != config:
            info = RunInfo(
                run_id=self.run_id, started_at=known.started_at if known else now, config=config
            )
            self._store.replace(
                paths.run_config(self.run_id), readable_json(info.model_dump(mode="json"))
            )

    def info(self) -> RunInfo:
        """Return the run's configuration; raises NotFound for an unknown run."""
        return RunInfo.model_validate_json(self._store.read(paths.run_config(self.run_id)))

    def keys(self, epoch: int) -> dict[str, str]:
        """Return stage -> key of one epoch, as far as it got."""
        try:
            data = self._store.read(paths.run_epoch(self.run_id, epoch))
        except NotFound:
            return {}
        return EpochKeys.model_validate_json(data).keys

    def note_key(self, epoch: int, stage: str, key: str) -> bool:
        """Note that a stage is finished under this key; returns whether that is news."""
        with _writing:
            known = self.keys(epoch)
            if known.get(stage) == key:
                return False
            record = EpochKeys(epoch=epoch, keys={**known, stage: key})
            self._store.replace(
                paths.run_epoch(self.run_id, epoch),
                readable_json(record.model_dump(mode="json")),
            )
            return True

    def next_attempt(self, epoch: int, stage: str) -> int:
        """Return the number of the next attempt at a stage, from 1."""
        with _writing:
            counts = _attempts.get((self._store.uri, self.run_id))
            if counts is None:
                counts = dict[str, int]()
                for path in self._store.list(paths.attempts(self.run_id)):
                    name = path.rsplit("/", 1)[-1].removesuffix(".json")
                    where, serial, _ = name.rsplit("-", 2)
                    counts[where] = max(counts.get(where, 0), int(serial.split(".")[0]))
                _attempts[(self._store.uri, self.run_id)] = counts
            where = f"{epoch:05d}-{stage}"
            counts[where] = counts.get(where, 0) + 1
            return counts[where]

    def write(self, attempt: Attempt, serial: str) -> None:
        """Add one event: the start (state running) or the end of an attempt."""
        event = "start" if attempt.state == "running" else "end"
        self._store.create(
            paths.attempt(self.run_id, attempt.epoch, attempt.stage, serial, event),
            readable_json(attempt.model_dump(mode="json")),
        )

    def attempts(self) -> list[Attempt]:
        """Return every attempt, oldest first; one that never ended keeps the state running."""
        latest: dict[str, Attempt] = {}
        for path in self._store.list(paths.attempts(self.run_id)):
            name, _, event = path.removesuffix(".json").rpartition("-")
            if event == "end" or name not in latest:
                latest[name] = Attempt.model_validate_json(self._store.read(path))
        return sorted(latest.values(), key=lambda item: (item.started_at, item.epoch))


class EpochKeys(Record):
    """Which stage keys make up one epoch of a run."""

    epoch: int
    keys: dict[str, str]


def list_runs(store: LocalStore) -> list[str]:
    """Return the ids of all runs in a store, sorted."""
    # A folder without a configuration is a run that never began: it may hold a log already.
    listed = (path.split("/")[1] for path in store.list(paths.runs()) if path.count("/") == 2)
    return sorted({run for run in listed if store.size(paths.run_config(run)) is not None})
