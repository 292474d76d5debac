"""Finds the files of a run's tables: the parts of each epoch, or segments instead of them.

A segment merges the parts of a range of finished epochs into few files. Manifests stay the truth: a
segment counts only as long as the run's epochs still name exactly the parts that it merges. Reading
it or them then gives the same rows in the same order. If anything else is wrong with a segment (it
is damaged, a file of it is missing), readers take its epochs from their manifests.

Marks of their files show that the epochs are unchanged: the store changes a mark with every write.
A reader reads only an epoch whose mark differs, as in a copied root.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from genenv_core.canonical import digest, sha256
from genenv_core.errors import IntegrityError, NotFound
from genenv_core.record import Record
from genenv_core.storage import paths
from genenv_core.storage.records.manifest import Manifest, Part
from genenv_core.storage.records.runs import TRACKED, RunLog
from genenv_core.storage.seal import SealedRecord
from genenv_core.storage.store.finding import kept_record
from genenv_core.storage.store.protocol import Store

log = logging.getLogger("genenv.storage")


class EpochContent(Record):
    """The parts of one epoch of a run.

    `parts` are the digests of its parts by table, in row order. `attempts` is a digest of the names
    of its attempts' events; an event never changes.
    """

    epoch: int
    mark: str
    keys: dict[str, str]
    parts: dict[str, tuple[str, ...]]
    attempts: str


class Segment(SealedRecord):
    """The merged files of a range of finished epochs, and the epochs.

    `tables` are the files by table, in row order. `repeated` are parts that an earlier epoch, which
    holds their rows, names too. `history` holds the attempts at the range's stages. A segment of
    `level` 1 merges parts, one of level n + 1 merges segments of level n. Level 0 is one epoch as
    its manifests describe it, with its own parts and no history; it has no file.
    """

    level: int
    epochs: tuple[EpochContent, ...]
    tables: dict[str, tuple[Part, ...]]
    repeated: dict[str, tuple[str, ...]]
    history: tuple[Part, ...] = ()

    @property
    def first(self) -> int:
        """Return the first epoch."""
        return self.epochs[0].epoch

    @property
    def last(self) -> int:
        """Return the last epoch."""
        return self.epochs[-1].epoch

    @property
    def files(self) -> list[Part]:
        """Return every file of the segment."""
        return [part for parts in (*self.tables.values(), self.history) for part in parts]


@dataclass(frozen=True, slots=True)
class Layout:
    """The epochs of a run in order, each in a segment or by itself, at level 0.

    `stale` are the paths of segments that do not count. `renewed` are segments that count, but only
    reading their epochs showed it; they have the present marks.
    """

    spans: list[Segment]
    stale: list[str]
    renewed: list[Segment]


def layout(store: Store, run: RunLog, epochs: int) -> Layout:
    """Return the files of epochs 0 to `epochs` of a run, by segments where they count."""
    events = run.events()
    waiting, stale = _segments(store, run)
    spans: list[Segment] = []
    renewed: list[Segment] = []
    used: set[int] = set()
    listed: dict[str, set[str]] = {}
    epoch = 0
    while epoch <= epochs:
        span: Segment | None = None
        for segment in waiting:
            if segment.first == epoch and segment.last <= epochs:
                span = _current(segment, store, run, listed)
                if span is not None:
                    used.add(id(segment))
                    renewed += [span] if span is not segment else []
                    break
        if span is None:
            span = _loose(store, run, epoch, events, listed)
        spans.append(span)
        for content in span.epochs:
            for table, shas in content.parts.items():
                listed.setdefault(table, set()).update(shas)
        epoch = span.last + 1
    stale += [
        paths.segment(run.run_id, segment.first, segment.last)
        for segment in waiting
        if id(segment) not in used and segment.last <= epochs
    ]
    return Layout(spans, stale, renewed)


def attempts_digest(names: Iterable[str]) -> str:
    """Return the digest of the names of an epoch's events."""
    return sha256("\n".join(names).encode())


def _segments(store: Store, run: RunLog) -> tuple[list[Segment], list[str]]:
    """Return the segments of a run, larger ones first, and the paths of damaged ones."""
    found: list[Segment] = []
    damaged: list[str] = []
    for name in store.names(paths.segments(run.run_id)):
        path = f"{paths.segments(run.run_id)}/{name}"
        warning = f"segment={path} unreadable, its epochs are read one by one"
        data, segment = kept_record(store, path, Segment.remembered, warning)
        if segment:
            found.append(segment)
        elif data is not None:  # else it was merged into a larger one meanwhile
            damaged.append(path)
    return sorted(found, key=lambda segment: -segment.last), damaged


def _current(
    segment: Segment, store: Store, run: RunLog, listed: Mapping[str, set[str]]
) -> Segment | None:
    """Return the segment if it gives the rows that its epochs' manifests would, after `listed`."""
    epochs: list[EpochContent] = []
    for epoch in segment.epochs:
        if _mark(store, run, epoch.epoch, epoch.keys) == epoch.mark:
            epochs.append(epoch)
            continue
        (now,) = _loose(store, run, epoch.epoch, {}, {}).epochs
        if (now.keys, now.parts) != (epoch.keys, epoch.parts):
            return None
        epochs.append(epoch.model_copy(update={"mark": now.mark}))
    nothing: set[str] = set()
    for table, repeated in segment.repeated.items():
        if not nothing.union(repeated) <= listed.get(table, nothing):
            return None
    for epoch in segment.epochs:
        for table, parts in epoch.parts.items():
            own = nothing.union(parts).difference(segment.repeated.get(table, ()))
            if own & listed.get(table, nothing):
                return None
    for part in segment.files:
        if store.size(part.path) != part.bytes:
            log.warning(
                "run=%s merged file %s is missing or altered, epochs %d to %d are read one by one",
                run.run_id, part.path, segment.first, segment.last,
            )  # fmt: skip
            return None
    same = tuple(epochs) == segment.epochs
    return segment if same else segment.model_copy(update={"epochs": tuple(epochs)})


def _loose(
    store: Store,
    run: RunLog,
    epoch: int,
    events: Mapping[int, list[str]],
    listed: Mapping[str, Collection[str]],
) -> Segment:
    """Return an epoch as its manifests describe it now."""
    keys = _keys(run, epoch)
    # Taken before the manifests are read, so that a change meanwhile gives another mark than this.
    mark = _mark(store, run, epoch, keys)
    if keys != _keys(run, epoch):
        mark = ""
    parts: dict[str, list[Part]] = {}
    for stage, key in keys.items():
        for part in parts_of(store, stage, key):
            if part.table and part.rows:
                parts.setdefault(part.table, []).append(part)
    tables: dict[str, tuple[Part, ...]] = {}
    repeated: dict[str, tuple[str, ...]] = {}
    for table, found in parts.items():
        once = {part.sha256: part for part in found}
        # Arm static reads one set of tasks in every epoch.
        before = listed.get(table, ())
        tables[table] = tuple(part for sha, part in once.items() if sha not in before)
        repeated[table] = tuple(sha for sha in once if sha in before)
    content = EpochContent(
        epoch=epoch,
        mark=mark,
        keys=keys,
        parts={table: tuple(part.sha256 for part in found) for table, found in parts.items()},
        attempts=attempts_digest(events.get(epoch, ())),
    )
    return Segment(level=0, epochs=(content,), tables=tables, repeated=repeated)


def _keys(run: RunLog, epoch: int) -> dict[str, str]:
    return {stage: key for stage, key in run.keys(epoch).items() if stage != TRACKED}


def _mark(store: Store, run: RunLog, epoch: int, keys: Mapping[str, str]) -> str:
    """Return a text that changes with every write of the epoch's keys or of its manifests."""
    files = [paths.run_epoch(run.run_id, epoch)]
    files += [paths.manifest(stage, key) for stage, key in sorted(keys.items())]
    return digest([store.mark(path) for path in files])


def parts_of(store: Store, stage: str, key: str) -> Iterator[Part]:
    """Yield the parts of a finished stage; log a warning for a damaged one, and yield nothing."""
    path = paths.manifest(stage, key)
    with contextlib.suppress(NotFound):
        try:
            yield from Manifest.remembered(store.read(path)).parts
        except IntegrityError as error:
            log.warning("manifest=%s unreadable, its rows are left out: %s", path, error)
