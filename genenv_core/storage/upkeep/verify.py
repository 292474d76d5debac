"""Reads every file of a store; reports damaged files, the stages that name them, and a remedy.

It trusts no record that it has not unsealed, and changes no file. Others may use the store
meanwhile: a file that goes between the listing and the look counts only where a record names it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from genenv_core.canonical import digest
from genenv_core.errors import NotFound, StorageError
from genenv_core.storage import paths
from genenv_core.storage.records.branches import Branch
from genenv_core.storage.records.draws import Draws
from genenv_core.storage.records.endings import Ending
from genenv_core.storage.records.foreign import ForeignWeights
from genenv_core.storage.records.labels import Labels
from genenv_core.storage.records.manifest import Manifest, Part, Shard
from genenv_core.storage.records.origins import Origin
from genenv_core.storage.records.retention import RetiredWeights
from genenv_core.storage.records.runs import TRACKED, EpochKeys, RunInfo, StageAttempt
from genenv_core.storage.records.segments import Segment
from genenv_core.storage.seal import SealedRecord
from genenv_core.storage.store.leases import Lease
from genenv_core.storage.store.protocol import Store, each

NOTES = ("origins", "retired", "foreign")
FOLDERS = ("parts", "stages", *NOTES, "shards", "runs", "leases", "checkpoints")
"""The store's own folders, all of whose files it reads."""

OUT_OF_SCOPE = "Prefect's and MLflow's databases, logs, work in progress"

AGAIN = "run the same command again, which computes it anew"
NOTED = "run the same command again, which notes it anew"
UNUSED = "delete it: nothing reads it any more"
LAID_OUT = "delete its folder: the next stage that reads it lays it out again from its parts"
ORIGIN = "delete it: only who computed the stage is lost"
HISTORY = "delete it: only this line of the run's history is lost"
MERGED = "delete it: queries read its epochs one by one until `genenv compact` merges them anew"
COLLECTED = "run `genenv gc` again, which notes it anew"
FOREIGN = "delete it: the run looks for the stage in the other roots again"
LEASE = "delete it: leases only save work"
DRAWS = "delete it: the run goes on with the first draws of its stages"
ENDING = "delete it: it says only where the newest command ended the run"
BRANCH = "delete it, and say the command that made the branch again (`genenv run --from`)"
LABELS = "say `genenv tag RUN ...` again: its tags, note and pin are lost"

_SHA = "[0-9a-f]{64}"
_PART = re.compile(rf"parts/[0-9a-f]{{2}}/({_SHA})(\.\w+)?")
_LAYOUT = re.compile(rf"checkpoints/({_SHA})/[^/]+")
_RUN = "runs/[^/]+"
_LOG = re.compile(rf"{_RUN}/[^/]+\.log")
_RECORDS: dict[type[SealedRecord], tuple[re.Pattern[str], str]] = {
    Manifest: (re.compile(r"stages/([^/]+)/([^/]+)\.json"), AGAIN),
    Shard: (re.compile(r"shards/([^/]+)/([^/]+)/\d+\.json"), AGAIN),
    RunInfo: (re.compile(rf"{_RUN}/config\.json"), NOTED),
    Draws: (re.compile(rf"{_RUN}/draws\.json"), DRAWS),
    Ending: (re.compile(rf"{_RUN}/ending\.json"), ENDING),
    Branch: (re.compile(rf"{_RUN}/branch\.json"), BRANCH),
    Labels: (re.compile(rf"{_RUN}/labels\.json"), LABELS),
    RetiredWeights: (re.compile(r"retired/([^/]+)/([^/]+)\.json"), COLLECTED),
    ForeignWeights: (re.compile(r"foreign/([^/]+)/([^/]+)\.json"), FOREIGN),
    Origin: (re.compile(r"origins/([^/]+)/([^/]+)\.json"), ORIGIN),
    Segment: (re.compile(rf"{_RUN}/segments/\d+-\d+\.json"), MERGED),
    EpochKeys: (re.compile(rf"{_RUN}/epochs/(\d+)\.json"), NOTED),
    StageAttempt: (re.compile(rf"{_RUN}/attempts/[^/]+\.json"), HISTORY),
    Lease: (re.compile(r"leases/([^/]+)/([^/]+)\.json"), LEASE),
}

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True, order=True)
class Use:
    """A stage's output, and a run and epoch that have it, if known.

    For a merged file the stage is '', the key holds the epochs, and the run is known.
    """

    stage: str
    key: str
    run: str = ""
    epoch: int | None = None

    def __str__(self) -> str:
        """Return the output in words."""
        if not self.stage:
            return f"run {self.run} epochs {self.key}, merged"
        run = f" (run {self.run} epoch {self.epoch})" if self.run else ""
        return f"stage {self.stage} key {self.key[:12]}{run}"


@dataclass(frozen=True, slots=True)
class Damage:
    """A damaged or missing file, its problem, the outputs that name it, and a remedy."""

    path: str
    problem: str
    named_by: tuple[Use, ...]
    remedy: str


@dataclass
class VerifyReport:
    """The result of `verify`."""

    files: int = 0
    bytes: int = 0
    damaged: list[Damage] = field(default_factory=list[Damage])
    unknown: list[str] = field(default_factory=list[str])


def verify(store: Store, progress: Progress = lambda done, total: None) -> VerifyReport:
    """Return what is wrong in a store; calls `progress` with bytes read and bytes in all."""
    return _Check(store, progress).walk()


class _Check:
    """One walk: reads records, which name the rest, then parts and laid-out checkpoints."""

    def __init__(self, store: Store, progress: Progress) -> None:
        self._store = store
        self._progress = progress
        self._report = VerifyReport()
        self._total = 0
        self._problems: dict[str, tuple[str, str]] = {}  # path -> (what is wrong, remedy)
        self._records: dict[str, SealedRecord] = {}
        self._merged: set[str] = set()  # files that only segments name
        self._digests: dict[str, str] = {}  # by mark, which hard links share

    def walk(self) -> VerifyReport:
        found = [path for folder in FOLDERS for path in self._store.list(folder)]
        found = [path for path in found if not _LOG.fullmatch(path)]
        sizes = {path: size or 0 for path, size in self._sizes(found).items()}
        self._total = sum(sizes.values())
        kinds = {
            path: (kind, remedy)
            for path in found
            for kind, (pattern, remedy) in _RECORDS.items()
            if pattern.fullmatch(path)
        }
        for path, data in zip(kinds, each(self._store, self._bytes, kinds), strict=True):
            self._record(path, *kinds[path], data)
            self._count(sizes[path])
        names = self._named_parts()
        self._merged = self._merged_files().keys() - names.keys()
        names |= self._merged_files()
        layouts: dict[str, dict[str, str]] = {}
        rest = [path for path in found if path not in kinds]
        known = [path for path in rest if _PART.fullmatch(path) or _LAYOUT.fullmatch(path)]
        for path in sorted(set(rest) - set(known)):
            self._report.unknown.append(path)
            self._count(sizes[path])
        for path, sha in zip(known, each(self._store, self._digest, known), strict=True):
            if part := _PART.fullmatch(path):
                self._part(path, part[1], sha, named=path in names)
            elif layout := _LAYOUT.fullmatch(path):
                layouts.setdefault(layout[1], {})[path] = sha or ""
            self._count(sizes[path])
        self._missing(names)
        self._finished_shards()
        for name, files in layouts.items():
            self._layout(name, files)
        self._report.damaged = [
            Damage(path, problem, self._named_by(path), remedy)
            for path, (problem, remedy) in sorted(self._problems.items())
        ]
        return self._report

    def _count(self, size: int) -> None:
        self._report.files += 1
        self._report.bytes += size
        self._progress(self._report.bytes, self._total)

    def _sizes(self, files: Iterable[str]) -> dict[str, int | None]:
        files = list(files)
        return dict(zip(files, each(self._store, self._store.size, files), strict=True))

    def _bytes(self, path: str) -> bytes | StorageError | None:
        """Return the bytes of a file, the error of reading it, or None where it has gone."""
        try:
            return self._store.read(path)
        except NotFound:
            return None
        except StorageError as error:
            return error

    def _record(
        self, path: str, kind: type[SealedRecord], remedy: str, data: bytes | StorageError | None
    ) -> None:
        if data is None:
            return
        try:
            if isinstance(data, StorageError):
                raise data
            record = kind.from_bytes(data)
        except StorageError as error:
            self._problems[path] = (str(error), remedy)
            return
        if isinstance(record, Manifest) and paths.manifest(record.stage, record.key) != path:
            problem = f"it is the manifest of stage {record.stage} key {record.key[:12]}"
            self._problems[path] = (problem, remedy)
            return
        self._records[path] = record

    def _part(self, path: str, name: str, found: str | None, *, named: bool) -> None:
        if found not in (name, None):
            what = f"its sha256 is {found[:12]}..., not its name" if found else "it cannot be read"
            remedy = MERGED if path in self._merged else AGAIN if named else UNUSED
            self._problems[path] = (what, remedy)

    def _missing(self, names: dict[str, Part]) -> None:
        """Report what records name and the store lacks: parts, manifests, configurations."""
        sizes = self._sizes(names)
        for path, part in names.items():
            seen = (sizes[path], PurePosixPath(path).stem)
            if sizes[path] is None:
                self._problems[path] = ("it is missing", MERGED if path in self._merged else AGAIN)
            elif path not in self._problems and seen != (part.bytes, part.sha256):
                what = f"its manifest expects other content, {part.bytes} bytes {part.sha256[:12]}"
                self._problems[path] = (what, AGAIN)
        uses = self._uses()
        remedies = {paths.manifest(use.stage, use.key): AGAIN for use in uses}
        remedies |= {paths.run_config(use.run): NOTED for use in uses}
        for path, size in self._sizes(remedies).items():
            if size is None:
                self._problems[path] = ("it is missing", remedies[path])

    def _finished_shards(self) -> None:
        """Report damaged shards of finished stages as unused: nobody reads or heals them."""
        for path, (problem, _) in self._problems.items():
            found = _RECORDS[Shard][0].fullmatch(path)
            if found and paths.manifest(found[1], found[2]) in self._records:
                self._problems[path] = (problem, UNUSED)

    def _layout(self, name: str, files: dict[str, str]) -> None:
        """Compare a laid-out checkpoint with the digest in its name, or with each known part."""
        content = sorted([PurePosixPath(path).name, sha] for path, sha in files.items())
        if digest(content) == name:
            return
        parts = [
            part
            for record in self._records.values()
            if isinstance(record, Manifest)
            for checkpoint, known in record.checkpoints.items()
            if known == name
            for part in record.of_checkpoint(checkpoint)
        ]
        wanted = {f"{paths.checkpoint(name)}/{PurePosixPath(p.name).name}": p for p in parts}
        if not wanted:
            problem = "the digest of its files is not its name"
            self._problems[paths.checkpoint(name)] = (problem, LAID_OUT)
        for path, part in wanted.items():
            if path not in files:
                self._problems[path] = ("it is missing", LAID_OUT)
            elif files[path] != part.sha256:
                self._problems[path] = (f"it differs from {part.path}", LAID_OUT)
        self._report.unknown += [path for path in files if wanted and path not in wanted]

    def _digest(self, path: str) -> str | None:
        """Return the sha256 of a file, None where it has gone, '' where nobody can read it."""
        try:
            mark = self._store.mark(path)  # equal for all hard links of a file
            if mark not in self._digests:
                self._digests[mark] = self._store.sha256(path)
            return self._digests[mark]
        except NotFound:
            return None
        except StorageError:
            return ""

    def _named_parts(self) -> dict[str, Part]:
        """Return every part that a whole manifest or shard record names, by its path.

        It leaves out weights that gc has collected or that lie in another root: notes name them.
        """
        collected = {
            paths.manifest(record.stage, record.key): record.parts
            for record in self._records.values()
            if isinstance(record, RetiredWeights)
        }
        for record in self._records.values():
            if isinstance(record, ForeignWeights) and not record.fault:
                output = paths.manifest(record.stage, record.key)
                collected[output] = (*collected.get(output, ()), *record.parts)
        return {
            part.path: part
            for path, record in self._records.items()
            if isinstance(record, Manifest | Shard)
            for part in record.parts
            if part.table or part not in collected.get(path, ())
        }

    def _merged_files(self) -> dict[str, Part]:
        """Return every file of segments, by its path."""
        return {
            part.path: part
            for record in self._records.values()
            if isinstance(record, Segment)
            for part in record.files
        }

    def _uses(self) -> list[Use]:
        """Return the stage outputs of the runs."""
        return [
            Use(stage, key, path.split("/")[1], record.epoch)
            for path, record in self._records.items()
            if isinstance(record, EpochKeys)
            for stage, key in record.keys.items()
            if stage != TRACKED
        ]

    def _named_by(self, path: str) -> tuple[Use, ...]:
        """Return the outputs and merged epochs that name a damaged file, with their runs."""
        outputs: set[tuple[str, str]] = set()
        merged: set[Use] = set()
        for kind in (Manifest, Shard, Lease, RetiredWeights, ForeignWeights, Origin):
            if found := _RECORDS[kind][0].fullmatch(path):
                outputs.add((found[1], found[2]))
        layout = path.split("/")[1] if path.startswith("checkpoints/") else ""
        for where, record in self._records.items():
            if isinstance(record, Manifest):
                named = any(part.path == path for part in record.parts)
                if named or layout in record.checkpoints.values():
                    outputs.add((record.stage, record.key))
            elif isinstance(record, Shard) and any(part.path == path for part in record.parts):
                found = _RECORDS[Shard][0].fullmatch(where)
                assert found is not None
                outputs.add((found[1], found[2]))
            elif isinstance(record, Segment) and any(part.path == path for part in record.files):
                merged.add(Use("", f"{record.first} to {record.last}", where.split("/")[1]))
        uses = {use for use in self._uses() if (use.stage, use.key) in outputs}
        known = {(use.stage, use.key) for use in uses}
        return tuple(sorted(uses | merged | {Use(*output) for output in outputs - known}))
