"""Parts of a stage that are committed before the stage is: what they hold survives a crash."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import polars as pl

from genenv_core.errors import AlreadyExists, IntegrityError, NotFound
from genenv_core.storage import paths
from genenv_core.storage.records.manifest import Part, Shard
from tasks.stage.context import StageContext, log
from tasks.telemetry.attempts import tell_attempts


class Shards:
    """The shards of one stage key: ranges of the places of its tasks."""

    def __init__(self, context: StageContext[Any], tasks: int, size: int) -> None:
        """Find those that an earlier attempt finished and that are undamaged."""
        self._context = context
        self._all = [range(start, min(start + size, tasks)) for start in range(0, tasks, size)]
        self._done: dict[int, list[Part]] = {}
        self._began_ns = time.time_ns()
        for number in range(len(self._all)):
            if (parts := self._finished(number)) is not None:
                self._done[number] = parts

    @property
    def missing(self) -> dict[int, range]:
        """Return those that are not finished, by number."""
        return {n: shard for n, shard in enumerate(self._all) if n not in self._done}

    @property
    def tasks_done(self) -> int:
        """Return how many tasks the finished shards hold."""
        return sum(len(self._all[number]) for number in self._done)

    def finish(self, number: int, tables: Mapping[str, pl.DataFrame]) -> None:
        """Commit a shard with these rows."""
        context = self._context
        parts = [
            context.out.written(table, rows, f"{table}/{number:05d}.parquet")
            for table, rows in tables.items()
        ]
        path = self._path(number)
        data = Shard(parts=tuple(parts)).to_bytes()
        try:
            context.store.create(path, data)
        except AlreadyExists:  # the record of a damaged shard
            context.store.replace(path, data)
        self._done[number] = parts
        began, self._began_ns = self._began_ns, time.time_ns()
        times = (began, self._began_ns)
        tell_attempts(context.inputs, tables, times)

    def adopt(self) -> list[Part]:
        """Make the parts of all shards the stage's own; return them in order."""
        made = [part for number in range(len(self._all)) for part in self._done[number]]
        self._context.out.adopt(made)
        return made

    def forget(self) -> None:
        """Delete the records of all shards, so that the next attempt makes them anew."""
        for number in range(len(self._all)):
            self._context.store.delete(self._path(number))

    def _path(self, number: int) -> str:
        return paths.shard(self._context.stage.name, self._context.key, number)

    def _finished(self, number: int) -> list[Part] | None:
        context, path = self._context, self._path(number)
        try:
            parts = Shard.from_bytes(context.store.read(path)).parts
        except NotFound:
            return None
        except IntegrityError as error:
            log.warning("shard=%s unreadable, taken as a miss: %s", path, error)
            return None
        damage = context.artifacts.damage(parts)
        if damage:
            log.warning("shard=%s taken as a miss: %s", path, damage)
            return None
        return list(parts)
