"""Compacts a long run for queries: writes few merged files beside its many small parts.

Log-structured: compaction makes a segment of level 1 of the parts of `FAN` finished epochs, and one
of the next level of `FAN` segments. So it writes a row about log_FAN(epochs) times, and a run of
1,000 epochs has some hundred live files. When a run ends, compaction merges the rest into one
segment of level 1 too: a query reads many short runs as quickly as few long ones. Manifests and
parts stay as they are; `segments` says when a segment counts. Compaction compares every part with
its digest, so it never copies a damaged one.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from genenv_core.canonical import sha256
from genenv_core.config.stages import LAST
from genenv_core.errors import GenenvError, IntegrityError, NotFound
from genenv_core.storage import paths
from genenv_core.storage.records.artifacts import write_part
from genenv_core.storage.records.manifest import Part
from genenv_core.storage.records.parquet import read_parquet
from genenv_core.storage.records.runs import RunLog, StageAttempt
from genenv_core.storage.records.segments import Segment, layout
from genenv_core.storage.store.protocol import Store
from schemas.registry import schema, spec
from schemas.validate import validate

log = logging.getLogger("genenv.storage")

FAN = 16
"""How many epochs, and then segments, make one segment."""

MAX_WAITING = 256
"""This many small files make a segment, however few their epochs."""

FULL_BYTES = {"scalar": 64 * 2**20, "record": 64 * 2**20, "payload": 8 * 2**20}
"""Size of files that stay as they are, by kind of table; so compaction rarely rewrites payload."""


@dataclass
class Compacted:
    """Counts of a compaction: segments, files that it merged, files and bytes that it wrote."""

    segments: int = 0
    merged: int = 0
    written: int = 0
    bytes: int = 0


def compact(store: Store, run_id: str) -> Compacted:
    """Merge the waiting files of a run; damage or a full disk costs a warning in the log alone."""
    done = Compacted()
    try:
        _compact(store, RunLog(store, run_id), done)
    except GenenvError as error:
        log.warning("run=%s is not compacted: %s", run_id, error)
    return done


def _compact(store: Store, run: RunLog, done: Compacted) -> None:
    # A snapshot will do, since nobody reads a segment of outdated epochs.
    seen = store.snapshot()
    found = layout(seen, RunLog(seen, run.run_id), int(run.info().config["epochs"]))
    for path in found.stale:  # before a new segment takes the name
        _retire(store, path, kept=set())
    for segment in found.renewed:  # so that the next look need not read its epochs
        path = paths.segment(run.run_id, segment.first, segment.last)
        store.replace(path, segment.to_bytes())
    pieces = _level_one(store, run, found.spans, done)
    while (at := _alike(pieces)) is not None:
        pieces[at : at + FAN] = [_merge(store, run, pieces[at : at + FAN], done)]


def _level_one(
    store: Store, run: RunLog, spans: Sequence[Segment], done: Compacted
) -> list[Segment]:
    """Return the segments of a run, with new ones of level 1 where enough epochs wait."""
    pieces: list[Segment] = []
    waiting: list[Segment] = []
    for span in spans:
        if span.level:
            # No further epochs can join those that wait before this segment.
            if waiting:
                pieces.append(_merge(store, run, waiting, done))
            waiting = []
            pieces.append(span)
            continue
        if LAST not in span.epochs[0].keys:  # the epoch has not ended
            break
        waiting.append(span)
        if len(waiting) >= FAN or sum(len(item.files) for item in waiting) >= MAX_WAITING:
            pieces.append(_merge(store, run, waiting, done))
            waiting = []
    else:
        # The run has come to its end, so no further epochs can join those that wait.
        if len(waiting) > 1:
            pieces.append(_merge(store, run, waiting, done))
    return pieces


def _alike(pieces: Sequence[Segment]) -> int | None:
    """Return the place of the first `FAN` adjacent segments of one level, None without them."""
    for at in range(len(pieces) - FAN + 1):
        if len({piece.level for piece in pieces[at : at + FAN]}) == 1:
            return at
    return None


def _merge(store: Store, run: RunLog, pieces: Sequence[Segment], done: Compacted) -> Segment:
    """Write the segment of adjacent epochs or segments, and return it."""
    epochs = tuple(epoch for piece in pieces for epoch in piece.epochs)
    names = sorted({table for piece in pieces for table in piece.tables})
    tables = {
        table: _merge_files(
            store, table, [p for piece in pieces for p in piece.tables.get(table, ())], done
        )
        for table in names
    }
    level = pieces[0].level + 1
    if level == 1:
        # An attempt still running in a finished epoch died on another machine, or is a second
        # process at the same work; both write another event when they go on.
        attempts = run.attempts([epoch.epoch for epoch in epochs])
        frame = validate("stage_runs", attempts_frame(attempts))
        history = (write_part(store, "stage_runs", frame, "stage_runs.parquet"),)
    else:
        history = _merge_files(
            store, "stage_runs", [part for piece in pieces for part in piece.history], done
        )
    segment = Segment(
        level=level,
        epochs=epochs,
        tables={table: parts for table, parts in tables.items() if parts},
        repeated=_repeated(pieces),
        history=history,
    )
    path = paths.segment(run.run_id, segment.first, segment.last)
    store.replace(path, segment.to_bytes())
    kept = {part.path for part in segment.files}
    for piece in pieces if level > 1 else ():
        inner = paths.segment(run.run_id, piece.first, piece.last)
        if inner != path:
            _retire(store, inner, kept)
    done.segments += 1
    return segment


def _repeated(pieces: Sequence[Segment]) -> dict[str, tuple[str, ...]]:
    """Return the parts by table whose rows only an epoch before the pieces gives."""
    found: dict[str, dict[str, None]] = {}
    own: dict[str, set[str]] = {}
    for piece in pieces:
        for table, shas in piece.repeated.items():
            inside = own.get(table, set[str]())
            found.setdefault(table, {}).update(dict.fromkeys(s for s in shas if s not in inside))
        for epoch in piece.epochs:
            for table, shas in epoch.parts.items():
                own.setdefault(table, set()).update(set(shas) - set(piece.repeated.get(table, ())))
    return {table: tuple(shas) for table, shas in found.items() if shas}


def _merge_files(
    store: Store, table: str, parts: Sequence[Part], done: Compacted
) -> tuple[Part, ...]:
    """Return files with the rows of `parts`, in order; a full file stays as it is."""
    full = FULL_BYTES[spec(table).kind]
    merged: list[Part] = []
    waiting: list[Part] = []
    for part in parts:
        waiting.append(part)
        if sum(item.bytes for item in waiting) >= full:
            merged += _merge_waiting(store, table, waiting, done)
            waiting = []
    return (*merged, *_merge_waiting(store, table, waiting, done))


def _merge_waiting(store: Store, table: str, parts: list[Part], done: Compacted) -> list[Part]:
    if len(parts) < 2:
        return parts
    frame = pl.concat([_rows(store, table, part) for part in parts])
    made = write_part(store, table, frame, f"{table}.parquet")
    done.merged += len(parts)
    done.written += 1
    done.bytes += made.bytes
    return [made]


def _rows(store: Store, table: str, part: Part) -> pl.DataFrame:
    data = store.read(part.path)
    if sha256(data) != part.sha256:
        raise IntegrityError(f"part {part.path} is altered: run `genenv verify`")
    return read_parquet(table, data)


def _retire(store: Store, path: str, kept: set[str]) -> None:
    """Remove a segment's record, and make its files as young for gc as new ones."""
    try:
        files = Segment.from_bytes(store.read(path)).files
    except (NotFound, IntegrityError):
        files = []
    for part in files:
        if part.path not in kept:
            store.touch(part.path)
    store.delete(path)


def attempts_frame(attempts: Sequence[StageAttempt]) -> pl.DataFrame:
    """Return the rows of `stage_runs`."""
    rows = [attempt.model_dump(exclude={"process"}) for attempt in attempts]
    return pl.DataFrame(rows, schema=schema("stage_runs"), orient="row")
