"""Gets the parts of a download that a folder lacks.

It writes a file beside its place, compares it with the pinned digest, and renames it. So a folder
has only whole files, and a second call continues an interrupted one.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from genenv_core.benchmarks.downloads import tool_docs
from genenv_core.benchmarks.downloads.archives import from_folders, unpack
from genenv_core.benchmarks.downloads.digests import (
    FILE_MODE,
    git_id_of,
    git_id_of_bytes,
    git_id_of_entries,
    sha256_of,
)
from genenv_core.benchmarks.downloads.hub import hub_file
from genenv_core.benchmarks.downloads.listings import Commit, is_file
from genenv_core.benchmarks.downloads.origin import DownloadOrigin
from genenv_core.benchmarks.downloads.packages import save_wheel
from genenv_core.benchmarks.downloads.sources import (
    Archive,
    BenchmarkSource,
    ByHand,
    HubFile,
    Part,
    RepoFile,
    RepoFolder,
    ToolDocs,
    Wheel,
)
from genenv_core.benchmarks.downloads.state import FileState, looks, name_of, note, read_receipts
from genenv_core.errors import DownloadError, GenenvError, described

UNFINISHED = ".fetching-"
STALE_S = 86_400.0
"""From this age on, no call can still use a folder of unfinished files."""

BESIDE = "bring your own copy with --data DIR, or name a mirror with --from"
"""The remedy where a source fails."""


@dataclass(frozen=True, slots=True)
class FetchOutcome:
    """The outcome for a part; `ok` says that the folder has it now."""

    to: str
    ok: bool
    said: str


def fetch(source: BenchmarkSource, folder: Path, origin: DownloadOrigin) -> Iterator[FetchOutcome]:
    """Yield the outcome for each part; a failed one does not stop the others.

    Raises DownloadError where it cannot write the folder.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DownloadError(f"{folder}: {error.strerror}") from error
    for left in folder.glob(f"{UNFINISHED}*"):  # of a killed call
        if time.time() - left.stat().st_mtime > STALE_S:
            shutil.rmtree(left, ignore_errors=True)
    fetching = _Fetching(folder, origin)
    for part in source.parts:
        name = name_of(part) if isinstance(part, Archive) else part.to
        try:
            yield FetchOutcome(name, True, fetching.bring(part))
        except OSError as error:
            yield FetchOutcome(name, False, f"{folder}: {described(error)}")
        except GenenvError as error:
            yield FetchOutcome(name, False, str(error))


class _Fetching:
    """One call for one folder, which lists a commit of several parts once."""

    def __init__(self, folder: Path, origin: DownloadOrigin) -> None:
        self._folder, self._origin = folder, origin
        self._commits: dict[tuple[str, str], Commit] = {}

    def bring(self, part: Part) -> str:
        """Get a part and return in words how; raises DownloadError or OSError where it fails."""
        found = list(looks(part, self._folder, read_receipts(self._folder)))
        # Without a note on an archive's files, a call may have died while it moved them in.
        wanted = {FileState.MISSING, FileState.DIFFERENT}
        wanted |= {FileState.UNKNOWN} if isinstance(part, Archive) else set()
        lacking = [one.to for one in found if one.state in wanted]
        if not lacking:
            verified = all(one.state is FileState.EQUAL for one in found)
            return "there, verified" if verified else f"there, {found[0].found}, none published"
        if isinstance(part, ByHand) and not (self._folder / part.file).is_file():
            raise DownloadError(
                f"a program cannot get this file: open {part.address}, save the zip as "
                f"{self._folder / part.file}, and give this command again"
            )
        with tempfile.TemporaryDirectory(prefix=UNFINISHED, dir=self._folder) as beside:
            try:
                done = self._fetched(part, lacking, Path(beside))
            except DownloadError as error:
                said = str(error)
                where = "" if part.address in said else f" ({part.address})"
                raise DownloadError(f"{said}{where}; {BESIDE}") from error
        for one in looks(part, self._folder, read_receipts(self._folder)):
            if one.state in (FileState.MISSING, FileState.DIFFERENT):
                raise DownloadError(f"{one.why()}; take away what does not belong to it")
        return done

    def _fetched(self, part: Part, lacking: Sequence[str], beside: Path) -> str:
        match part:
            case RepoFile():
                return self._repo_file(part, beside)
            case RepoFolder():
                return self._repo_folder(part, beside)
            case HubFile():
                return self._hub_file(part, beside)
            case Archive():
                return self._archive(part, beside)
            case Wheel():
                return self._wheel(part, lacking, beside)
            case ToolDocs():
                return self._tool_docs(part, beside)
            case ByHand():
                return self._by_hand(part, beside)

    def _repo_file(self, part: RepoFile, beside: Path) -> str:
        path = beside / "file"
        self._origin.save(part.address, path, part.most)
        _refuse_other(part.to, "git id", part.git_id, git_id_of(path))
        self._move(path, part.to)
        return "fetched, verified by its git id"

    def _repo_folder(self, part: RepoFolder, beside: Path) -> str:
        commit = self._commit(part)
        entries = [one for one in commit.folder(part.path) if not one.name.startswith(".")]
        if not all(map(is_file, entries)):
            raise DownloadError(f"{part.path} has other things than files: refused")
        plain = git_id_of_entries(replace(one, mode=FILE_MODE) for one in entries)
        _refuse_other(part.to, "git id", part.git_id, plain)
        here = self._folder / part.to
        new = [
            one
            for one in entries
            if not (here / one.name).is_file() or git_id_of(here / one.name) != one.git_id
        ]
        for one, content in commit.files(part.path, new, part.most):
            _refuse_other(f"{part.to}/{one.name}", "git id", one.git_id, git_id_of_bytes(content))
            path = beside / one.name
            path.write_bytes(content)
            self._move(path, f"{part.to}/{one.name}")
        return f"fetched {len(new)} of {len(entries)} files, verified by the folder's git id"

    def _hub_file(self, part: HubFile, beside: Path) -> str:
        file = hub_file(part, self._origin)
        path = beside / "file"
        self._origin.save(file.address, path, part.most)
        if file.sha256:
            _refuse_other(part.to, "sha256", file.sha256, sha256_of(path))
        if file.git_id:
            _refuse_other(part.to, "git id", file.git_id, git_id_of(path))
        self._move(path, part.to)
        sha256 = note(self._folder, part.to)
        if file.sha256 or file.git_id:
            return f"fetched, verified by the digest that the hub gives; sha256 {sha256}"
        return f"fetched; no digest is published; sha256 {sha256}"

    def _archive(self, part: Archive, beside: Path) -> str:
        path = beside / part.address.rpartition("/")[2]
        self._origin.save(part.address, path, part.most)
        _refuse_other(path.name, "sha256", part.sha256, sha256_of(path))
        inside = beside / "inside"
        names = unpack(path, inside, from_folders(part.below, part.keep), part.unpacked)
        if not names:
            raise DownloadError(f"{path.name} has no {part.keep} below {', '.join(part.below)}")
        for name in names:
            self._move(inside / name, f"{part.to}/{name}")
        sha256 = note(self._folder, name_of(part))
        return f"fetched {len(names)} files, the archive verified by sha256; theirs {sha256}"

    def _wheel(self, part: Wheel, lacking: Sequence[str], beside: Path) -> str:
        path = save_wheel(part, self._origin, beside)
        _refuse_other(part.file, "sha256", part.sha256, sha256_of(path))
        inside = beside / "inside"
        places = {part.members[to][0]: to for to in lacking}
        for to in unpack(path, inside, places.get, 20 * part.most):
            _refuse_other(to, "git id", part.members[to][1], git_id_of(inside / to))
            self._move(inside / to, to)
        return f"fetched {len(lacking)}, the wheel verified by PyPI's sha256"

    def _tool_docs(self, part: ToolDocs, beside: Path) -> str:
        commit = self._commit(part)
        sources: dict[str, list[tuple[str, bytes]]] = {}
        for key, path in part.folders.items():
            entries = commit.folder(path)
            modules = [one for one in entries if is_file(one) and one.name.endswith(".py")]
            sources[key] = []
            for one, content in commit.files(path, modules, part.most):
                name = f"{path}/{one.name}"
                _refuse_other(name, "git id", one.git_id, git_id_of_bytes(content))
                sources[key].append((name, content))
        path = beside / "docs"
        path.write_bytes(tool_docs.written(sources))
        if (found := sha256_of(path)) != part.sha256:
            kept = f"{Path(part.to).stem}.derived.json"
            self._move(path, kept)
            raise DownloadError(
                f"{part.to}: expected sha256 {part.sha256}, found {found}: what was derived is not "
                f"what was recorded; it is kept as {kept} and not used"
            )
        self._move(path, part.to)
        return "derived from the official classes, verified by sha256"

    def _by_hand(self, part: ByHand, beside: Path) -> str:
        path = self._folder / part.file
        _refuse_other(part.file, "sha256", part.sha256, sha256_of(path))
        keep = part.to.rpartition("/")[2]
        names = unpack(path, beside / "inside", from_folders([part.below], keep), part.unpacked)
        if names != [part.to]:
            found = ", ".join(names) or "nothing"
            raise DownloadError(f"{part.file}: expected {part.to}, found {found}: refused")
        self._move(beside / "inside" / part.to, part.to)
        sha256 = note(self._folder, part.to)
        return f"unpacked, the zip verified by sha256; its own {sha256}; the zip can go"

    def _commit(self, part: RepoFolder | ToolDocs) -> Commit:
        key = (part.repo, part.commit)
        return self._commits.setdefault(key, Commit(self._origin, *key))

    def _move(self, path: Path, to: str) -> None:
        target = self._folder / to
        target.parent.mkdir(parents=True, exist_ok=True)
        os.replace(path, target)


def _refuse_other(name: str, kind: str, expected: str, found: str) -> None:
    if found != expected:
        raise DownloadError(f"{name}: expected {kind} {expected}, found {found}: refused")
