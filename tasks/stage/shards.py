"""Commits parts of a stage before the stage itself, so that they survive a crash."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from genenv_core.errors import AlreadyExists
from genenv_core.ids import group_id
from genenv_core.storage import paths
from genenv_core.storage.records.manifest import Part, Shard
from genenv_core.storage.records.parquet import read_parquet
from genenv_core.storage.store.finding import find_record
from schemas.registry import empty
from tasks.stage.context import StageContext, log
from tasks.stage.telemetry.attempts import tell_attempts


class Shards:
    """The shards of one stage key: ranges of the places of its tasks.

    A stage that finds out only at work which tasks it attempts adds them with `extend`.
    """

    def __init__(self, context: StageContext[Any], tasks: int, size: int) -> None:
        """Find the undamaged shards that an earlier attempt finished."""
        self._context, self._size = context, size
        self._all: list[range] = []
        self._done: dict[int, list[Part]] = {}
        self._began_ns = time.time_ns()
        self.extend(tasks)

    def extend(self, tasks: int) -> list[int]:
        """Add shards for so many further places; return their numbers."""
        first = self.places
        end, old = first + tasks, len(self._all)
        self._all += [range(at, min(at + self._size, end)) for at in range(first, end, self._size)]
        added = list(range(old, len(self._all)))
        for number in added:
            if (parts := self._finished(number)) is not None:
                self._done[number] = parts
        return added

    @property
    def numbers(self) -> list[int]:
        """Return the numbers of all shards."""
        return list(range(len(self._all)))

    def rows(self, table: str, numbers: Sequence[int]) -> pl.DataFrame:
        """Return the rows of a table in finished shards, in their order."""
        parts = [part for number in numbers for part in self._done[number] if part.table == table]
        paths = [self._context.store.local(part.path) for part in parts]
        return pl.concat([empty(table), *(read_parquet(table, path) for path in paths)])

    @property
    def places(self) -> int:
        """Return the number of places in all shards."""
        return self._all[-1].stop if self._all else 0

    @property
    def missing(self) -> dict[int, range]:
        """Return the unfinished shards, by number."""
        return {n: shard for n, shard in enumerate(self._all) if n not in self._done}

    @property
    def tasks_done(self) -> int:
        """Return the number of tasks in finished shards."""
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
        """Make the parts of all shards the stage's output; return them in order."""
        made = [part for number in range(len(self._all)) for part in self._done[number]]
        self._context.out.adopt(made)
        return made

    def forget(self) -> None:
        """Delete the records of all shards, so that the next attempt computes them again."""
        for number in range(len(self._all)):
            self._context.store.delete(self._path(number))

    def _path(self, number: int) -> str:
        return paths.shard(self._context.stage.name, self._context.key, number)

    def _finished(self, number: int) -> list[Part] | None:
        context, path = self._context, self._path(number)
        damaged = f"shard={path} unreadable, taken as a miss"
        shard = find_record(context.store, path, Shard.from_bytes, damaged)
        if shard is None:
            return None
        parts = shard.parts
        damage = context.artifacts.damage(parts) or self._of_others(parts, self._all[number])
        if damage:
            log.warning("shard=%s taken as a miss: %s", path, damage)
            return None
        return list(parts)

    def _of_others(self, parts: Sequence[Part], places: range) -> str | None:
        """Return in words that a shard holds other places than it should, else None.

        An engine may give other answers when it repeats a round of attempts. Later shards of an
        earlier attempt at the stage then belong to other places.
        """
        epoch, scope = self._context.epoch, self._context.scope
        wanted = [group_id(epoch, scope, place) for place in (places[0], places[-1])]
        for part in parts:
            if part.table == "traces":
                held = [str(one).partition(".")[0] for one in (part.first_id, part.last_id)]
                if held != wanted:
                    return f"it holds the groups {held[0]} to {held[1]}, not {' to '.join(wanted)}"
        return None
