"""The sources of a benchmark's official data: pinned addresses and digests, as plain data.

Each benchmark's package has a module `source` with its `SOURCE`. The modules beside this one read
and write. `to` is a path below the benchmark's folder. `most` is a limit in bytes. A git id is the
SHA-1 by which git names a file or a folder, so that a commit fixes it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from urllib.parse import quote

from genenv_core.machine.plugin_failures import failures_named
from genenv_core.plugins import BENCHMARKS, point_of


def raw_file(repo: str, commit: str, path: str) -> str:
    """Return the address of a file of a commit on GitHub."""
    return f"https://raw.githubusercontent.com/{repo}/{commit}/{quote(path)}"


def tree_listing(repo: str, name: str) -> str:
    """Return the address of the listing of a commit's folder, or of one by its git id."""
    return f"https://api.github.com/repos/{repo}/git/trees/{name}"


@dataclass(frozen=True, slots=True)
class RepoFile:
    """A file of a commit on GitHub, with its git id."""

    to: str
    repo: str
    commit: str
    path: str
    git_id: str
    most: int

    @property
    def address(self) -> str:
        """Return the file's address."""
        return raw_file(self.repo, self.commit, self.path)


@dataclass(frozen=True, slots=True)
class RepoFolder:
    """All files of a folder of a commit on GitHub; the folder has no folders in it.

    `git_id` is git's name for a folder of these files, as plain files and without hidden ones.
    """

    to: str
    repo: str
    commit: str
    path: str
    git_id: str
    most: int

    @property
    def address(self) -> str:
        """Return where the listing of the whole commit is."""
        return tree_listing(self.repo, self.commit)


@dataclass(frozen=True, slots=True)
class HubFile:
    """A file of a data set on the Hugging Face hub, which gives a digest with the file."""

    to: str
    repo: str
    revision: str
    name: str
    most: int

    @property
    def address(self) -> str:
        """Return the file's address, unless HF_ENDPOINT names another hub."""
        return f"https://huggingface.co/datasets/{self.repo}/resolve/{self.revision}/{self.name}"


@dataclass(frozen=True, slots=True)
class Archive:
    """The files called `keep` in a zip, by their paths from one of the folders `below` on."""

    to: str
    address: str
    sha256: str
    below: Sequence[str]
    keep: str
    most: int
    unpacked: int
    """Limit of all kept files together, in bytes."""


@dataclass(frozen=True, slots=True)
class Wheel:
    """Files of a Python package: for each path here, its name in the wheel and its git id."""

    project: str
    version: str
    file: str
    sha256: str
    members: Mapping[str, tuple[str, str]]
    most: int

    @property
    def to(self) -> str:
        """Return a name for all the files."""
        return f"{len(self.members)} files of {self.project} {self.version}"

    @property
    def address(self) -> str:
        """Return the wheel's name in the index, where a mirror has it; pip asks the user's own."""
        return f"https://pypi.org/simple/{self.project}/{self.file}"


@dataclass(frozen=True, slots=True)
class ToolDocs:
    """One JSON file with the declarations of the classes in folders of a commit."""

    to: str
    repo: str
    commit: str
    folders: Mapping[str, str]
    sha256: str
    most: int

    @property
    def address(self) -> str:
        """Return where the listing of the whole commit is."""
        return tree_listing(self.repo, self.commit)


@dataclass(frozen=True, slots=True)
class ByHand:
    """A file of a zip behind a page that wants a click, so a person saves the zip as `file`.

    The member's path from the folder `below` on is `to`.
    """

    to: str
    address: str
    file: str
    sha256: str
    below: str
    unpacked: int


Part = RepoFile | RepoFolder | HubFile | Archive | Wheel | ToolDocs | ByHand


@dataclass(frozen=True, slots=True)
class BenchmarkSource:
    """The parts of a download, and the number of items of each group in the whole download."""

    parts: Sequence[Part]
    items: Mapping[str, int] = field(default_factory=dict[str, int])


def source_of(name: str) -> BenchmarkSource:
    """Return the source of a benchmark's data, without parts where its package has no `source`.

    Raises ConfigError for an unknown name.
    """
    point = point_of(BENCHMARKS, name, "benchmark")
    place = f"{point.module}.source"
    with failures_named("benchmark", name, point):
        try:
            source: BenchmarkSource = import_module(place).SOURCE
        except ModuleNotFoundError as error:
            if error.name != place:
                raise
            return BenchmarkSource(parts=())
    return source
