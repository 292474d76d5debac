"""Writes a stage's output, parts first and the manifest last, and reads it back.

Without a manifest, no output exists. Readers follow manifests only. A missing or altered part makes
its manifest a miss: the log names the part, and the run computes the stage again.
"""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from genenv_core.canonical import file_sha256, leaves, sha256
from genenv_core.checks import not_finite
from genenv_core.errors import AlreadyExists, IntegrityError, NotFound, NumericalError, Retired
from genenv_core.storage import paths
from genenv_core.storage.files import link_or_copy
from genenv_core.storage.records.foreign import fetch, find_foreign
from genenv_core.storage.records.manifest import ArtifactRef, Manifest, Part, files_digest
from genenv_core.storage.records.parquet import has_footer, read_parquet, to_parquet
from genenv_core.storage.records.retention import find_retired
from genenv_core.storage.store.finding import find_record
from genenv_core.storage.store.protocol import Store
from schemas.registry import TABLES, empty
from schemas.validate import validate

log = logging.getLogger("genenv.storage")

TORN = "torn"


def folder_digest(folder: Path) -> str:
    """Return the digest that a checkpoint in this folder will have in its manifest."""
    return files_digest((path.name, file_sha256(path)) for path in _files(folder))


def _files(folder: Path) -> list[Path]:
    """Return the files of a checkpoint folder, in name order."""
    return sorted(path for path in folder.iterdir() if path.is_file())


class ArtifactWriter:
    """Collects the parts of one stage; `commit` makes them visible all at once."""

    def __init__(self, store: Store, stage: str, parts: Mapping[str, Any], key: str) -> None:
        """Start an output, which only `commit` makes visible."""
        self._store = store
        self._stage = stage
        self._key = key
        self._key_parts = dict(parts)
        self._parts: list[Part] = []

    @property
    def key_parts(self) -> Mapping[str, Any]:
        """Return the parts of the output's key."""
        return self._key_parts

    def table(self, table: str, frame: pl.DataFrame) -> None:
        """Validate the rows of a table and add them to the output."""
        self._parts.append(self.written(table, frame, f"{table}.parquet"))

    def written(self, table: str, frame: pl.DataFrame, name: str) -> Part:
        """Validate rows and write them as a part that is not in the output yet; return it."""
        return write_part(self._store, table, validate(table, frame), name)

    def adopt(self, parts: Iterable[Part]) -> None:
        """Add parts that exist already, such as the shards of this stage."""
        self._parts.extend(parts)

    def checkpoint(self, name: str, folder: Path) -> None:
        """Write every file of a checkpoint folder as a part named `<name>/<file>`."""
        for source in _files(folder):
            sha = file_sha256(source)
            size = source.stat().st_size
            path = paths.part(sha, source.suffix)
            # Never remove a whole one: another process may have just written it.
            if not _is_whole(self._store, path, sha, size):
                self._store.delete(path)
            if not self._store.touch(path):  # so that gc leaves it to us
                self._store.adopt(source, path)
            self._parts.append(
                Part(name=f"{name}/{source.name}", path=path, sha256=sha, bytes=size)
            )

    def commit(self, facts: Mapping[str, Any]) -> tuple[Manifest, bool]:
        """Write the manifest; return it and whether this call won.

        When another process committed the same key first, returns that one's manifest. Raises
        NumericalError for a fact that is NaN or infinite.
        """
        found = leaves(facts, f"facts of stage {self._stage}")
        if bad := not_finite((name, one) for name, one in found if isinstance(one, float)):
            raise NumericalError(f"{bad}, expected a finite number")
        manifest = Manifest(
            stage=self._stage,
            key=self._key,
            key_parts=self._key_parts,
            parts=tuple(sorted(self._parts, key=lambda part: part.name)),
            facts=dict(facts),
        )
        path = paths.manifest(self._stage, self._key)
        data = manifest.to_bytes()
        if manifest.checkpoints:  # weights that gc had collected exist again
            self._store.delete(paths.retired(self._stage, self._key))
        try:
            self._store.create(path, data)
        except AlreadyExists:
            winner = Artifacts(self._store).find(self._stage, self._key)
            if winner is None:  # a manifest whose parts are damaged: ours takes its place
                self._store.replace(path, data)
                return manifest, True
            if winner.digest != manifest.digest:
                log.warning(
                    "stage=%s key=%s computed twice with different outputs; the first stays",
                    self._stage,
                    self._key[:12],
                )
            return winner, False
        return manifest, True


class Artifacts:
    """Reads finished stages of a store; digests every part once a process."""

    def __init__(self, store: Store, *, shared: bool = False) -> None:
        """Read from a store; messages name the root of one that others write, `shared`.

        In such a store, only copying compares the bytes of weights.
        """
        self.store = store
        self._shared = shared
        self._place = f" of {store.uri}" if shared else ""
        self._verified: set[str] = set()

    def find(self, stage: str, key: str) -> Manifest | None:
        """Return the manifest of a finished, undamaged stage, or None; log a warning for damage."""
        path = paths.manifest(stage, key)
        damaged = f"manifest={path}{self._place} unreadable, taken as a miss"
        manifest = find_record(self.store, path, Manifest.from_bytes, damaged)
        if manifest is None:
            return None
        retired = find_retired(self.store, manifest)
        damage = self.damage(p for p in manifest.parts if retired is None or p.table)
        if damage and (note := find_foreign(self.store, manifest)):
            damage = self.damage(p for p in manifest.parts if p not in note.parts)
        if damage:
            log.warning(
                "stage=%s key=%s%s taken as a miss: %s", stage, key[:12], self._place, damage
            )
            return None
        return manifest

    def load(self, ref: ArtifactRef) -> Manifest:
        """Return the manifest that a reference names; raises IntegrityError when it is missing."""
        manifest = self.find(ref.stage, ref.key)
        if manifest is None or manifest.digest != ref.digest:
            raise IntegrityError(
                f"stage {ref.stage} key {ref.key[:12]}: its output is missing or altered; "
                "run the same command again and it is computed again"
            )
        return manifest

    def frame(self, manifests: Manifest | Sequence[Manifest], table: str) -> pl.DataFrame:
        """Return the rows of a table from one or more manifests, in part order."""
        many = [manifests] if isinstance(manifests, Manifest) else manifests
        parts = [part for manifest in many for part in manifest.of_table(table)]
        frames = [read_parquet(table, self.store.local(part.path)) for part in parts]
        return pl.concat(frames) if frames else empty(table)

    def checkpoint(self, manifest: Manifest, name: str) -> Path:
        """Return a folder with the checkpoint's files; lays it out once, for all to share.

        Copies weights that lie in another root here first. Raises NotFound for an output without
        this checkpoint, Retired when gc has collected it, and as `fetch`.
        """
        files = manifest.of_checkpoint(name)
        if not files:
            raise NotFound(f"stage {manifest.stage} key {manifest.key[:12]} has no model {name!r}")
        note = find_foreign(self.store, manifest)
        if note is None and (retired := find_retired(self.store, manifest)):
            raise Retired(f"stage {manifest.stage} key {manifest.key[:12]}: {retired.reason}")
        digest = manifest.checkpoint_digest(name)
        folder = self.store.home / paths.checkpoint(digest)
        laid_out = {folder / Path(part.name).name: part for part in files}
        if folder.is_dir():
            if all(self._is_laid_out(path, part) for path, part in laid_out.items()):
                return folder
            damaged = self.store.scratch()
            os.rename(folder, damaged)
            shutil.rmtree(damaged, ignore_errors=True)
        if note is not None:
            fetch(self.store, note, files)
        scratch = self.store.scratch()
        for part in files:
            link_or_copy(self.store.local(part.path), scratch / Path(part.name).name)
        folder.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.rename(scratch, folder)
        except OSError:  # another process laid it out in between
            shutil.rmtree(scratch, ignore_errors=True)
            if not folder.is_dir():
                raise
        return folder

    def _is_laid_out(self, path: Path, part: Part) -> bool:
        """Return whether a laid-out file is its part: the same file, or the same bytes."""
        if not path.is_file():
            return False
        held = self.store.held(part.path)
        return bool(held and path.samefile(held)) or file_sha256(path) == part.sha256

    def damage(self, parts: Iterable[Part]) -> str:
        """Return in a few words what is wrong with parts, or ''."""
        parts = list(parts)
        for part, stat in zip(parts, self.store.stats([p.path for p in parts]), strict=True):
            if stat is None:
                return f"part {part.name} ({part.path}) is missing"
            if stat.bytes != part.bytes:
                return (
                    f"part {part.name} ({part.path}) has {stat.bytes} bytes, expected {part.bytes}"
                )
            # Where digests lie beside the objects, only the use of a part reads its bytes.
            unread = part.sha256 if self._shared and not part.table else ""
            digest = stat.sha256 or unread or self._read_digest(part)
            if digest == TORN:
                return f"part {part.name} ({part.path}) has a torn footer"
            if digest != part.sha256:
                return f"part {part.name} ({part.path}) has other bytes than its manifest says"
        return ""

    def _read_digest(self, part: Part) -> str:
        """Return the digest of a part's bytes, or `TORN`; read them once a process."""
        if part.table and not has_footer(self.store.local(part.path)):
            return TORN
        if part.sha256 in self._verified:
            return part.sha256
        digest = file_sha256(self.store.local(part.path))
        if digest == part.sha256:
            self._verified.add(digest)
        return digest


def reference(manifest: Manifest) -> ArtifactRef:
    """Return the reference to a manifest."""
    return ArtifactRef(
        stage=manifest.stage,
        key=manifest.key,
        digest=manifest.digest,
        rows=manifest.rows,
        facts=manifest.facts,
        checkpoints=manifest.checkpoints,
    )


def write_part(store: Store, table: str, frame: pl.DataFrame, name: str) -> Part:
    """Write validated rows as a part under the name of its content; return it."""
    data = to_parquet(table, frame)
    sha = sha256(data)
    path = paths.part(sha, ".parquet")
    # Equal content has an equal name, so an existing part is this one; the touch keeps gc from it.
    # A damaged one is written anew.
    if not _is_whole(store, path, sha, len(data)) or not store.touch(path):
        store.replace(path, data)
    ids = frame.get_column(TABLES[table].id_column)
    return Part(
        name=name,
        path=path,
        sha256=sha,
        bytes=len(data),
        table=table,
        rows=frame.height,
        first_id=str(ids.min()) if frame.height else None,
        last_id=str(ids.max()) if frame.height else None,
    )


def _is_whole(store: Store, path: str, sha: str, size: int) -> bool:
    """Return whether the object exists with this content."""
    (stat,) = store.stats([path])
    if stat is None or stat.bytes != size:
        return False
    return (stat.sha256 or store.sha256(path)) == sha
