"""Manifests and references: the output of a finished stage, and how others point to it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from pydantic import Field

from genenv_core.canonical import digest
from genenv_core.config.stages import FIRST, WARM
from genenv_core.record import Record
from genenv_core.storage.seal import SealedRecord

FORMAT = 2
"""Version of the layout of parts and manifests; part of every stage key."""


class Part(Record):
    """One immutable file of a stage's output.

    `name` is its logical name: `<table>.parquet` or `<table>/<shard>.parquet` for rows,
    `<policy>/<file>` for a checkpoint. `first_id` and `last_id` bound the ids of its rows.
    """

    name: str
    path: str
    sha256: str
    bytes: int = Field(ge=0)
    table: str | None = None
    rows: int | None = Field(default=None, ge=0)
    first_id: str | None = None
    last_id: str | None = None


class Shard(SealedRecord):
    """The record of a finished shard of an unfinished stage."""

    parts: tuple[Part, ...]


class Manifest(SealedRecord):
    """The record written last: its existence means that the stage is complete.

    `key_parts` are the readable parts of `key`. `facts` are small results that other stages and
    people read (counts, metrics). Like the parts they are reproducible, so `stage_runs` has the
    wall-clock numbers.
    """

    stage: str
    key: str
    key_parts: dict[str, Any]
    parts: tuple[Part, ...]
    facts: dict[str, Any] = Field(default_factory=dict)

    @property
    def digest(self) -> str:
        """Return the digest of the output alone: names, contents, facts; not of the key.

        A stage computed again under another key with an equal output has an equal digest, so later
        stages stay cached.
        """
        return digest(
            {"parts": sorted((p.name, p.sha256) for p in self.parts), "facts": self.facts}
        )

    @property
    def rows(self) -> int:
        """Return the number of rows in all tables."""
        return sum(part.rows or 0 for part in self.parts)

    @property
    def bytes(self) -> int:
        """Return the number of bytes in all parts."""
        return sum(part.bytes for part in self.parts)

    def of_table(self, table: str) -> list[Part]:
        """Return the parts of a table, in name order."""
        return sorted((p for p in self.parts if p.table == table), key=lambda p: p.name)

    def of_checkpoint(self, name: str) -> list[Part]:
        """Return the files of the checkpoint saved under `name`, in name order."""
        return sorted(
            (p for p in self.parts if PurePosixPath(p.name).parts[0] == name and not p.table),
            key=lambda p: p.name,
        )

    @property
    def checkpoints(self) -> dict[str, str]:
        """Return the digest of each checkpoint by its name."""
        names = {PurePosixPath(p.name).parts[0] for p in self.parts if not p.table}
        return {name: self.checkpoint_digest(name) for name in sorted(names)}

    def checkpoint_digest(self, name: str) -> str:
        """Return the digest of a checkpoint: of its file names and contents."""
        return files_digest(
            (PurePosixPath(p.name).name, p.sha256) for p in self.of_checkpoint(name)
        )


def files_digest(files: Iterable[tuple[str, str]]) -> str:
    """Return the digest of a checkpoint from the (name, sha256) of its files, in name order."""
    return digest([list(file) for file in files])


class ArtifactRef(Record):
    """A reference to a finished stage: small, JSON-able, enough to find and check its output.

    `checkpoints` maps the names of checkpoints in it to their digests.
    """

    stage: str
    key: str
    digest: str
    rows: int = 0
    facts: dict[str, Any] = Field(default_factory=dict)
    checkpoints: dict[str, str] = Field(default_factory=dict)


class CheckpointRef(Record):
    """A reference to one policy's weights inside an artifact."""

    artifact: ArtifactRef
    name: str
    digest: str
    policy_version: int = Field(ge=0)


class FileRef(Record):
    """A file or folder outside of the store; its content, not its name, is in stage keys.

    `path` is absolute, because processes in other folders read it too.
    """

    path: str
    sha256: str


class ExamplesRef(Record):
    """Examples in a stored run, from its epochs 1 to `epoch`; their content alone is in stage keys.

    `root` is the URI of the root that has the run.
    """

    root: str
    run_id: str
    epoch: int = Field(ge=0)
    sha256: str


Weights = CheckpointRef | FileRef
"""A model to sample from, in the store or outside of it."""


@dataclass(frozen=True, slots=True)
class EndpointRef:
    """A model behind an endpoint: its name there, and more fields of each request."""

    url: str
    model_name: str
    request: dict[str, Any]


@dataclass(frozen=True, slots=True)
class TeacherRef:
    """The model that writes a set of tasks: a checkpoint with variables of its chat template, or an
    endpoint with the model's name and more fields of each request.
    """

    model: FileRef | None
    chat_template_kwargs: dict[str, Any]
    url: str | None
    model_name: str | None
    request: dict[str, Any]


def first_maker(published: Manifest | None) -> str:
    """Return the stage that made the checkpoints of epoch 0, by the output of its `publish`.

    A run may have begun with other settings, so a warm start in its log is not always its own.
    Without that output it returns bootstrap.
    """
    inputs: Mapping[str, Any] = published.key_parts.get("inputs", {}) if published else {}
    return WARM if WARM in inputs else FIRST
