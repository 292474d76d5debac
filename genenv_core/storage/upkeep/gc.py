"""Collects what no run needs any more, and never what somebody may still use.

gc keeps what the runs of a store name: the outputs of their epochs with all parts, the merged files
of their segments, the files from which an interrupted stage continues. It removes superseded
checkpoints, see `retention`, but not those of a pinned run. It removes everything else once that is
older than any writer works. A writer touches a part that exists already, and a run touches the
output that it replaces, so both are young for gc.

gc removes files in an order in which a reader never finds half: it notes collected weights before
they go, and removes manifests before their parts. A run that finds a manifest in the moment before
it goes misses the parts, takes that as a miss, and computes the stage again.

A damaged record could name anything, so gc collects nothing before someone heals it.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import PurePosixPath
from typing import TypeVar

from genenv_core.errors import ConfigError, IntegrityError, NotFound
from genenv_core.storage import paths
from genenv_core.storage.records.branches import Branch
from genenv_core.storage.records.draws import Draws
from genenv_core.storage.records.labels import Labels
from genenv_core.storage.records.manifest import Manifest, Shard
from genenv_core.storage.records.retention import (
    Keyed,
    RetiredWeights,
    find_retired,
    kept_weights,
    weights_of,
)
from genenv_core.storage.records.runs import TRACKED, EpochKeys, StageAttempt, no_such_run
from genenv_core.storage.records.segments import Segment
from genenv_core.storage.seal import SealedRecord
from genenv_core.storage.store.finding import find_record
from genenv_core.storage.store.leases import TTL_S, Lease
from genenv_core.storage.store.process import has_ended, identity
from genenv_core.storage.store.protocol import Store, each
from genenv_core.storage.upkeep.collected import KINDS, Collectable, Collected, CollectionRule

_START = re.compile(r"(\d+)-(\w+)-(\d+)-start\.json")

Runs = Mapping[str, Mapping[int, Mapping[str, str]]]
"""The keys of runs by epoch and stage."""

T = TypeVar("T")
R = TypeVar("R")
D = TypeVar("D", bound=SealedRecord)


def collect(store: Store, rule: CollectionRule, now: datetime, *, dry_run: bool) -> Collected:
    """Remove what no run needs, or with `dry_run` only list it.

    Raises:
        IntegrityError: a record is damaged, so nobody knows what it names.
        ConfigError: the store has no run to drop by this name, or the run is pinned or at work.
    """
    with contextlib.nullcontext() if dry_run else store.collecting():
        return _Collection(store, rule, now, dry_run).collect()


def collect_superseded(
    store: Store, run: str, keep: int, now: datetime, *, until: int
) -> Collected:
    """Remove the superseded checkpoints of a run at work; return what went.

    The call keeps what `kept_weights` names, of the run as a whole and of its epochs up to `until`,
    from which a run that plays its epochs again goes on. It also keeps what a pin, another run or
    any output that keeps its weights needs. Raises IntegrityError as `collect` does.
    """
    with store.collecting():
        return _Collection(store, CollectionRule(keep, older_than_h=0.0), now, False).superseded(
            run, until
        )


class _Collection:
    """One collection: finds first what stays, then what goes."""

    def __init__(self, store: Store, rule: CollectionRule, now: datetime, dry_run: bool) -> None:
        self._store = store
        self._rule = rule
        self._now = now
        self._dry_run = dry_run
        self._old = store.clock() - rule.older_than_h * 3600
        self._result = Collected({kind: Collectable() for kind in KINDS})
        self._dropped = ""
        self._superseded: set[str] = set()

    def collect(self) -> Collected:
        if self._rule.drop_run:
            self._drop(self._rule.drop_run)
        dead, working = self._leases()
        # Parts and temporary files do not name their stage, and a stage may work for longer than
        # the age. So gc leaves everything that is younger than the oldest stage at work.
        since = min([self._old, *self._begun(working)])
        runs = self._runs()
        unfinished = self._tried() | working
        earlier = self._earlier_draws()
        manifests = self._manifests()
        retired = self._retire(runs, manifests, working)
        self._delete_manifests(manifests, _outputs(runs) | unfinished | earlier)
        shards = self._delete_shards(manifests.keys(), unfinished)
        named = {part.path for shard in shards for part in shard.parts}
        named |= self._segment_files(runs)
        in_parts, laid_out = _needed(manifests, retired)
        named |= in_parts
        for name in self._store.names("checkpoints"):
            if name not in laid_out:
                self._delete_tree("checkpoints", paths.checkpoint(name), self._old)
        orphans = [path for path in self._store.list("parts") if path not in named]
        self._delete("weights", [path for path in orphans if path in self._superseded], since)
        self._delete("parts", [path for path in orphans if path not in self._superseded], since)
        self._delete("leases", dead, self._old)
        self._delete("temporary", self._store.list("probe"), since)
        for name in self._store.names("tmp"):
            self._delete_tree("temporary", f"tmp/{name}", since)
        return self._result

    def superseded(self, run: str, until: int) -> Collected:
        """Do what `collect_superseded` says."""
        runs, manifests = self._runs(), self._manifests()
        others = _outputs({name: keys for name, keys in runs.items() if name != run})
        so_far = {epoch: keys for epoch, keys in runs[run].items() if epoch <= until}
        kept = self._leases()[1] | others | kept_weights(so_far, manifests, self._rule.keep)
        retired = self._retire({run: runs[run]}, manifests, kept)
        named, laid_out = _needed(manifests, retired)
        for output in sorted(retired):
            for name in manifests[output].checkpoints.values():
                if name not in laid_out and self._store.list(paths.checkpoint(name)):
                    self._delete_tree("checkpoints", paths.checkpoint(name), self._old)
        self._delete("weights", sorted(self._superseded - named), self._old)
        return self._result

    # What stays.

    def _run_names(self) -> list[str]:
        return [run for run in self._store.names(paths.runs()) if run != self._dropped]

    def _runs(self) -> Runs:
        """Return the keys of every run by epoch, also of a run without its configuration."""
        names = self._run_names()
        listed = self._each(lambda run: self._store.list(paths.epochs(run)), names)
        pairs = [(run, path) for run, epochs in zip(names, listed, strict=True) for path in epochs]
        records = self._read_all([path for _, path in pairs], EpochKeys)
        found: dict[str, dict[int, dict[str, str]]] = {run: {} for run in names}
        for (run, _), record in zip(pairs, records, strict=True):
            if record:
                keys = {stage: key for stage, key in record.keys.items() if stage != TRACKED}
                found[run][record.epoch] = keys
        # The stages that a branch takes over are its own before its first stage notes them.
        branches = self._read_all(map(paths.run_branch, names), Branch)
        for run, branch in zip(names, branches, strict=True):
            for epoch, taken in enumerate(branch.epochs if branch else ()):
                found[run][epoch] = {**taken, **found[run].get(epoch, {})}
        return found

    def _earlier_draws(self) -> set[Keyed]:
        """Return the outputs that a further draw of a stage has replaced."""
        found = self._read_all(map(paths.run_draws, self._run_names()), Draws)
        return {output for draws in found if draws for output in draws.kept}

    def _pinned(self, runs: Iterable[str]) -> set[str]:
        """Return the pinned ones of some runs."""
        names = list(runs)
        records = self._read_all(map(paths.run_labels, names), Labels)
        return {name for name, found in zip(names, records, strict=True) if found and found.pinned}

    def _manifests(self) -> dict[Keyed, Manifest]:
        listed = self._read_all(self._store.list("stages"), Manifest)
        return {(found.stage, found.key): found for found in listed if found}

    def _tried(self) -> set[Keyed]:
        """Return for each run, epoch and stage the output that the run last tried to compute."""
        found: set[Keyed] = set()
        for run in self._run_names():
            last: dict[tuple[str, str], tuple[int, str]] = {}
            for path, (epoch, stage, number) in self._starts(run):
                newest = last.get((epoch, stage), (0, ""))
                last[epoch, stage] = max(newest, (int(number), path))
            listed = self._read_all([path for _, path in last.values()], StageAttempt)
            found |= {(attempt.stage, attempt.stage_key) for attempt in listed if attempt}
        return found

    def _begun(self, working: set[Keyed]) -> Iterator[float]:
        """Yield when the stages at work began, by the store's clock."""
        stages = {stage for stage, _ in working}
        for run in self._run_names() if stages else ():
            starts = [path for path, (_, stage, _) in self._starts(run) if stage in stages]
            for path, attempt in zip(starts, self._read_all(starts, StageAttempt), strict=True):
                if attempt and (attempt.stage, attempt.stage_key) in working:
                    yield self._store.modified(path) or 0.0

    def _starts(self, run: str) -> Iterator[tuple[str, tuple[str, str, str]]]:
        """Yield the path of each attempt's first event, and its epoch, stage and number."""
        for name in self._store.names(paths.attempts(run)):
            if event := _START.fullmatch(name):
                yield f"{paths.attempts(run)}/{name}", (event[1], event[2], event[3])

    def _leases(self) -> tuple[list[str], set[Keyed]]:
        """Return the leases of holders that have ended, and the outputs of the other leases."""
        leases = self._store.list("leases")
        ended = dict(zip(leases, self._each(self._is_dead, leases), strict=True))
        dead = [path for path in leases if ended[path]]
        return dead, {_keyed(path) for path in leases if not ended[path]}

    def _is_dead(self, path: str) -> bool:
        """Return whether the holder of a lease has ended, or is silent on another machine."""
        try:
            lease = Lease.from_bytes(self._store.read(path))
        except (NotFound, IntegrityError):
            return True
        if has_ended(lease.pid, lease.process):
            return True
        if lease.process and identity(lease.pid) == lease.process:
            return False
        beat = self._store.modified(path) or 0.0
        return beat < min(self._old, self._store.clock() - 2 * TTL_S)

    def _segment_files(self, runs: Iterable[str]) -> set[str]:
        listed = [path for run in runs for path in self._store.list(paths.segments(run))]
        segments = self._read_all(listed, Segment)
        return {part.path for segment in segments if segment for part in segment.files}

    # What goes.

    def _drop(self, run: str) -> None:
        """Remove a run's records; its outputs go with all others that no run names."""
        if run not in self._run_names():
            # All runs count, so that a user can drop one with a damaged configuration.
            raise ConfigError(no_such_run(run, self._run_names()))
        if self._pinned([run]):
            raise ConfigError(f"run {run!r} is pinned: `genenv tag {run} --unpin` first")
        working = self._leases()[1]
        starts = [path for path, _ in self._starts(run)] if working else []
        for attempt in self._read_all(starts, StageAttempt):
            if attempt and (attempt.stage, attempt.stage_key) in working:
                raise ConfigError(
                    f"run {run!r} is at work on {attempt.stage} of epoch {attempt.epoch} (pid "
                    f"{attempt.pid} on {attempt.host}): stop it first"
                )
        self._dropped = run
        self._tell("runs", paths.run(run), self._store.freed(paths.run(run)))
        if not self._dry_run:
            self._store.delete_folder(paths.run(run))

    def _retire(
        self, runs: Runs, manifests: Mapping[Keyed, Manifest], working: set[Keyed]
    ) -> set[Keyed]:
        """Note superseded checkpoints as collected; return all outputs without their weights."""
        kept, pinned = set(working), self._pinned(runs)
        for run, keys in runs.items():
            kept |= kept_weights(keys, manifests, self._rule.keep)
            kept |= _outputs({run: keys}) if run in pinned else set()
        named = sorted(_outputs(runs) & manifests.keys())
        notes = self._each(lambda output: find_retired(self._store, manifests[output]), named)
        noted = dict(zip(named, notes, strict=True))
        retired = {output for output, note in noted.items() if note}
        more = [o for o in named if o not in retired and o not in kept and weights_of(manifests[o])]
        old = self._each(lambda output: self._is_old(paths.manifest(*output)), more)
        more = [output for output, is_old in zip(more, old, strict=True) if is_old]
        if not self._dry_run:
            list(self._each(lambda output: self._note(manifests[output]), more))
        retired.update(more)
        self._superseded |= {part.path for o in retired for part in weights_of(manifests[o])}
        return retired

    def _note(self, manifest: Manifest) -> None:
        note = RetiredWeights(
            stage=manifest.stage,
            key=manifest.key,
            parts=weights_of(manifest),
            kept_epochs=self._rule.keep,
            at=self._now,
        )
        self._store.replace(paths.retired(manifest.stage, manifest.key), note.to_bytes())

    def _delete_manifests(self, manifests: dict[Keyed, Manifest], kept: set[Keyed]) -> None:
        """Remove manifests outside of `kept`, also from `manifests`, with the notes on them."""
        gone = manifests.keys() - kept
        if gone and not self._dry_run:
            gone -= _outputs(self._runs())  # a run may name one by now
        outputs = sorted(gone)
        for output, size in zip(outputs, self._each(self._forget, outputs), strict=True):
            if size is not None:
                self._tell("manifests", paths.manifest(*output), size)
                del manifests[output]

    def _forget(self, output: Keyed) -> int | None:
        size = self._gone(paths.manifest(*output), self._old)
        if size is not None and not self._dry_run:
            self._store.delete(paths.retired(*output))
            self._store.delete(paths.foreign(*output))
            self._store.delete(paths.origin(*output))
        return size

    def _delete_shards(self, finished: Collection[Keyed], unfinished: set[Keyed]) -> list[Shard]:
        """Remove shards and progress of finished and abandoned stages; return the other shards."""
        listed = self._store.list("shards")
        unneeded = [
            path
            for path in listed
            if (output := _keyed(str(PurePosixPath(path).parent))) not in unfinished
            or output in finished
        ]
        deleted = self._delete("shards", unneeded, self._old)
        gone = {path for path, is_gone in zip(unneeded, deleted, strict=True) if is_gone}
        records = self._read_all([path for path in listed if path not in gone], Shard)
        kept = [shard for shard in records if shard]
        for stage in self._store.names("progress"):
            for key in self._store.names(f"progress/{stage}"):
                if (stage, key) in finished or (stage, key) not in unfinished:
                    self._delete_tree("progress", paths.progress(stage, key), self._old)
        return kept

    def _delete(self, kind: str, files: Sequence[str], than: float) -> list[bool]:
        """Remove the files that are old enough; return for each whether it goes."""
        sizes = list(self._each(lambda path: self._gone(path, than), files))
        for path, size in zip(files, sizes, strict=True):
            if size is not None:
                self._tell(kind, path, size)
        return [size is not None for size in sizes]

    def _gone(self, path: str, than: float) -> int | None:
        """Remove a file that is old enough, unless in a dry run; return its size if it goes."""
        size = self._store.size(path)
        goes = size is not None and (
            self._is_old(path, than) if self._dry_run else self._store.delete_older(path, than)
        )
        return size if goes else None

    def _delete_tree(self, kind: str, path: str, than: float) -> None:
        """Remove a folder, or a file, when everything in it is old enough."""
        if all(self._is_old(item, than) for item in (path, *self._store.list(path))):
            self._tell(kind, path, self._store.freed(path))
            if not self._dry_run:
                self._store.delete_folder(path)

    def _tell(self, kind: str, path: str, size: int) -> None:
        self._result.paths.append(path)
        self._result.kinds[kind].count += 1
        self._result.kinds[kind].bytes += size

    def _is_old(self, path: str, than: float | None = None) -> bool:
        modified = self._store.modified(path)
        return modified is not None and modified < (self._old if than is None else than)

    def _each(self, call: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
        return each(self._store, call, items)

    def _read_all(self, files: Iterable[str], kind: type[D]) -> Iterator[D | None]:
        return self._each(lambda path: self._read(path, kind), files)

    def _read(self, path: str, kind: type[D]) -> D | None:
        """Return a record, None where it has gone; raises IntegrityError for a damaged one."""
        try:
            return find_record(self._store, path, kind.from_bytes)
        except IntegrityError as error:
            raise IntegrityError(
                f"gc collects nothing while {path} is damaged, since it may name anything: "
                f"{error}; `genenv verify` says what to do"
            ) from error


def _outputs(runs: Runs) -> set[Keyed]:
    """Return every output that runs name."""
    return {output for run in runs.values() for keys in run.values() for output in keys.items()}


def _needed(
    manifests: Mapping[Keyed, Manifest], retired: Collection[Keyed]
) -> tuple[set[str], set[str]]:
    """Return the paths of the parts, and the digests of the checkpoints, that outputs keep."""
    named, laid_out = set[str](), set[str]()
    for output, manifest in manifests.items():
        whole = output not in retired
        named |= {part.path for part in manifest.parts if whole or part.table}
        laid_out |= set(manifest.checkpoints.values()) if whole else set()
    return named, laid_out


def _keyed(path: str) -> Keyed:
    """Return the output of a file `<folder>/<stage>/<key>[.json]`."""
    _, stage, key = path.removesuffix(".json").split("/")[:3]
    return stage, key
