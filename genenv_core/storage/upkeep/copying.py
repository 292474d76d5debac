"""Copies a run from one root to another, whatever kinds of stores they are.

A call copies parts first and compares each with its digest, then manifests, then the run's records.
The configuration comes last, and makes the copy a run. A call skips files that the target has
already, so the same call continues an interrupted copy.

A call leaves out files that belong to a machine: logs, laid-out checkpoints, and the trainer
checkpoints of an interrupted update, which then starts again. A copied run logs to MLflow again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from genenv_core.config.load import FREE_SECTIONS
from genenv_core.config.moved import as_now
from genenv_core.errors import AlreadyExists, ConfigError, IntegrityError, NotFound
from genenv_core.storage import paths
from genenv_core.storage.records.branches import note_branch, read_branch
from genenv_core.storage.records.draws import merge_draws, read_draws
from genenv_core.storage.records.foreign import find_foreign
from genenv_core.storage.records.labels import change_labels, change_of, merged, read_labels
from genenv_core.storage.records.manifest import Manifest, Part, Shard
from genenv_core.storage.records.origins import find_origin
from genenv_core.storage.records.parts import AT_ONCE, copy_part
from genenv_core.storage.records.retention import find_retired
from genenv_core.storage.records.runs import TRACKED, EpochKeys, RunInfo, RunLog, unknown_run
from genenv_core.storage.records.segments import Segment
from genenv_core.storage.store.opening import open_store
from genenv_core.storage.store.protocol import Stat, Store

NOT_COMPARED = ("root", "epochs", *FREE_SECTIONS)
"""Fields in which a run and its copy may differ."""

Progress = Callable[[int, int], None]


@dataclass
class Copied:
    """The result of a copy: stages and files of the run, and how many of them it copied."""

    stages: int = 0
    files: int = 0
    bytes: int = 0
    copied_files: int = 0
    copied_bytes: int = 0
    retired: int = 0


def copy_run(
    source: Store,
    target: Store,
    run_id: str,
    progress: Progress = lambda done, total: None,
) -> Copied:
    """Copy a run; calls `progress` with the files done and the files in all.

    Raises:
        ConfigError: there is no such run, or another one has its name in the target.
        IntegrityError: the run lacks a part or has a damaged one, or the target has another
            output under one of its keys.
    """
    if source.uri == target.uri:
        raise ConfigError(f"{source.uri} is where the run is: name another root to copy it to")
    if unknown := unknown_run(source, run_id):
        raise ConfigError(unknown)
    return _Copy(source, target, run_id, progress).copy()


class _Copy:
    def __init__(self, source: Store, target: Store, run_id: str, progress: Progress) -> None:
        self._source = source
        self._target = target
        self._run = RunLog(source, run_id)
        self._progress = progress
        self._done = Copied()
        self._parts: dict[str, Part] = {}
        self._records: dict[str, bytes] = {}
        self._whole: list[str] = []
        self._lying: dict[str, str] = {}  # part -> the other root that it may lie in

    def copy(self) -> Copied:
        info = self._run.info()
        known = self._known(info)
        epochs = self._epochs()
        for keys in epochs.values():
            for stage, key in keys.items():
                self._add_stage(stage, key)
        draws = read_draws(self._source, self._run.run_id)
        for output in draws.kept:
            if self._source.size(paths.manifest(*output)) is not None:
                self._add_stage(*output)
        self._add_segments()
        self._add_shards()
        history = paths.attempts(self._run.run_id)
        events = [f"{history}/{name}" for name in self._source.names(history)]
        for path, data in zip(events, self._source.read_all(events), strict=True):
            if data is not None:
                self._records[path] = data
        self._copy_parts()
        with ThreadPoolExecutor(AT_ONCE) as threads:
            list(threads.map(self._target.delete, self._whole))
            list(threads.map(self._copy_record, self._records))
        for epoch, keys in epochs.items():
            self._copy_epoch(epoch, keys)
        self._copy_labels()
        merge_draws(self._target, self._run.run_id, draws)
        if branch := read_branch(self._source, self._run.run_id):
            note_branch(self._target, self._run.run_id, branch)
        path = paths.run_config(self._run.run_id)
        config = {**info.config, "root": self._target.uri}
        began = info.started_at
        if known:  # the run may have gone on in the target
            config["epochs"] = max(config["epochs"], known.config["epochs"])
            began = known.started_at
        copied = info.model_copy(update={"config": config, "started_at": began})
        self._target.replace(path, copied.to_bytes())
        return self._done

    # What to copy.

    def _epochs(self) -> dict[int, dict[str, str]]:
        return {
            epoch: {s: key for s, key in self._run.keys(epoch).items() if s != TRACKED}
            for epoch in self._run.epochs()
        }

    def _add_stage(self, stage: str, key: str) -> None:
        path = paths.manifest(stage, key)
        if path in self._records:
            return
        try:
            data = self._source.read(path)
            manifest = Manifest.from_bytes(data)
        except (NotFound, IntegrityError) as error:
            raise IntegrityError(
                f"{path} of run {self._run.run_id}: {error}: run `genenv resume "
                f"{self._run.run_id}` first, which computes it again"
            ) from error
        retired = find_retired(self._source, manifest)
        if retired:
            self._done.retired += 1
            self._records[paths.retired(stage, key)] = retired.to_bytes()
        elif manifest.checkpoints:  # the target gets weights back that its gc has collected
            self._whole.append(paths.retired(stage, key))
        if note := find_foreign(self._source, manifest):  # these parts may lie in another root
            self._lying.update((part.path, note.root) for part in note.parts)
        if origin := find_origin(self._source, stage, key):
            self._records[paths.origin(stage, key)] = origin.to_bytes()
        self._add_parts(part for part in manifest.parts if retired is None or part.table)
        self._records[path] = data
        self._done.stages += 1

    def _add_segments(self) -> None:
        folder = paths.segments(self._run.run_id)
        for name in self._source.names(folder):
            try:
                data = self._source.read(f"{folder}/{name}")
                segment = Segment.from_bytes(data)
            except (NotFound, IntegrityError):  # the epochs do not need their segment
                continue
            self._add_parts(segment.files)
            self._records[f"{folder}/{name}"] = data

    def _add_shards(self) -> None:
        """Add the shards from which interrupted rollouts of the run continue."""
        for attempt in self._run.attempts():
            output = (attempt.stage, attempt.stage_key)
            if paths.manifest(*output) in self._records:
                continue
            for path in self._source.list(f"shards/{attempt.stage}/{attempt.stage_key}"):
                try:
                    data = self._source.read(path)
                    self._add_parts(Shard.from_bytes(data).parts)
                except (NotFound, IntegrityError):  # the run samples that shard again
                    continue
                self._records[path] = data

    def _add_parts(self, parts: Iterable[Part]) -> None:
        self._parts.update((part.path, part) for part in parts)

    def _known(self, info: RunInfo) -> RunInfo | None:
        """Return the target's record of the run, or None; raises ConfigError for another run."""
        try:
            known = RunLog(self._target, info.run_id).info()
        except NotFound:
            return None
        branches = [read_branch(store, info.run_id) for store in (self._source, self._target)]
        origins = [branch.point if branch else None for branch in branches]
        if _identity(known.config) != _identity(info.config) or origins[0] != origins[1]:
            raise ConfigError(
                f"{self._target.uri} has another run {info.run_id!r}, with another configuration "
                "or origin: choose another root"
            )
        return known

    # Copies.

    def _copy_parts(self) -> None:
        parts = list(self._parts.values())
        stats = self._target.stats([part.path for part in parts])
        self._done.files = len(parts)
        self._done.bytes = sum(part.bytes for part in parts)
        with ThreadPoolExecutor(AT_ONCE) as threads:
            for number, copied in enumerate(threads.map(self._copy_part, parts, stats), 1):
                self._done.copied_files += bool(copied)
                self._done.copied_bytes += copied
                self._progress(number, len(parts))

    def _copy_part(self, part: Part, there: Stat | None) -> int:
        """Copy a part unless the target has it; return the copied bytes."""
        try:
            return copy_part(self._source_of, self._target, part, there)
        except (NotFound, IntegrityError) as error:
            raise IntegrityError(
                f"part {part.name} of run {self._run.run_id} cannot be copied: {error}; "
                f"`genenv resume {self._run.run_id}` computes it again"
            ) from error

    def _source_of(self, part: Part) -> Store:
        lying = self._lying.get(part.path)
        if lying is None or self._source.size(part.path) is not None:
            return self._source
        return open_store(lying, writable=False)

    def _copy_record(self, path: str) -> None:
        data = self._records[path]
        try:
            self._target.create(path, data)
        except AlreadyExists:
            there = self._target.read(path)
            self._target.touch(path)
            if there == data or path.startswith("origins/"):  # the target computed it as well
                return
            if not path.startswith("stages/"):
                self._target.replace(path, data)
            elif Manifest.from_bytes(there).digest != Manifest.from_bytes(data).digest:
                raise IntegrityError(
                    f"{self._target.uri}/{path} is another output of the same stage: the run "
                    "cannot be the same there; choose another root"
                ) from None

    def _copy_epoch(self, epoch: int, keys: Mapping[str, str]) -> None:
        path = paths.run_epoch(self._run.run_id, epoch)
        while True:
            (there,) = self._target.read_all([path])
            known = EpochKeys.from_bytes(there).keys if there else {}
            other = sorted(stage for stage in keys if known.get(stage, keys[stage]) != keys[stage])
            if other:
                raise ConfigError(
                    f"run {self._run.run_id!r} has another {other[0]} of epoch {epoch} in "
                    f"{self._target.uri}: choose another root"
                )
            merged = EpochKeys(epoch=epoch, keys={**known, **keys}).to_bytes()
            if merged == there or self._target.swap(path, there, merged):
                return

    def _copy_labels(self) -> None:
        run = self._run.run_id
        both = merged(read_labels(self._target, run), read_labels(self._source, run))
        change_labels(self._target, run, change_of(both.tags, (), both.note, both.pinned))


def _identity(config: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in as_now(config).items() if name not in NOT_COMPARED}
