"""Names a checkpoint that stays in its root for a model version, and lets MLflow follow the name.

`genenv-file:///ROOT/checkpoints/DIGEST` is a folder, on machines that have the root under that
path. `genenv-s3://BUCKET/PREFIX/stages/STAGE/KEY.json/NAME/DIGEST` is a checkpoint of a stage's
output in a bucket; any machine with credentials finds it through its manifest. Both end with the
digest of the file names and contents. This module refuses files with another digest.
"""

# MLflow's stores have no types.
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false

from __future__ import annotations

import shutil
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import quote, unquote

from mlflow.entities import FileInfo
from mlflow.exceptions import MlflowException
from mlflow.store.artifact.artifact_repo import ArtifactRepository
from mlflow.store.artifact.local_artifact_repo import LocalArtifactRepository

from genenv_core.canonical import digest, file_sha256
from genenv_core.errors import GenenvError, IntegrityError, NotFound, Retired
from genenv_core.storage import paths
from genenv_core.storage.records.manifest import Manifest, Part
from genenv_core.storage.records.retention import find_retired
from genenv_core.storage.store.opening import open_store
from genenv_core.storage.store.protocol import Store
from tasks.tracking.flavor import BESIDE, MLMODEL, TOKENIZER, is_loadable, mlmodel, of_tokenizer

SCHEME = "genenv-"
"""Begins the URI of a folder or a bucket; without it MLflow would look for its own files there."""


def folder_reference(folder: Path) -> str:
    """Return the URI of a laid-out checkpoint, as a server refuses paths of another machine."""
    return f"{SCHEME}{folder.resolve().as_uri()}"


def object_reference(store: Store, manifest: Manifest, name: str) -> str:
    """Return the URI of a checkpoint in a bucket; raises Retired if gc has collected it."""
    if retired := find_retired(store, manifest):
        raise Retired(f"stage {manifest.stage} key {manifest.key[:12]}: {retired.reason}")
    scheme, _, place = store.uri.partition("://")
    output = paths.manifest(manifest.stage, manifest.key)
    return f"{SCHEME}{scheme}://{quote(f'{place}/{output}/{name}')}/{manifest.checkpoints[name]}"


def repository(uri: str, **more: Any) -> ArtifactRepository:
    """Return MLflow's repository behind a reference."""
    if uri.startswith(f"{SCHEME}file:"):
        return CheckpointFolder(uri.removeprefix(SCHEME), **more)
    return CheckpointObjects(uri, **more)


class CheckpointFolder(LocalArtifactRepository):
    """A laid-out checkpoint, whose folder has its digest as a name."""

    def download_artifacts(self, artifact_path: str, dst_path: str | None = None) -> str:
        """Compare the files with the digest, then return the folder or a copy of it."""
        folder = Path(self.artifact_dir)
        if not folder.is_dir():
            raise MlflowException(
                f"{folder} is not there: the root is on another machine, or `genenv gc` has "
                "collected the checkpoint"
            )
        if artifact_path == MLMODEL:
            return str(super().download_artifacts(artifact_path, dst_path))
        listed = [path for path in folder.iterdir() if path.is_file() or path.is_symlink()]
        files = sorted(path for path in listed if path.name not in BESIDE)
        if lost := [path for path in files if not path.exists()]:
            raise MlflowException(
                f"{lost[0].resolve()} is not there: `genenv gc` has collected the checkpoint, or "
                "it was removed"
            )
        if digest([[path.name, file_sha256(path)] for path in files]) != folder.name:
            raise MlflowException(
                f"{folder} is altered: remove it, and the next stage that reads it writes it anew"
            )
        return str(super().download_artifacts(artifact_path, dst_path))


class CheckpointObjects(ArtifactRepository):
    """A checkpoint of a stage's output in a bucket; credentials come from the usual chain."""

    @cached_property
    def _store(self) -> Store:
        return open_store(self._split()[0], writable=False)

    @cached_property
    def _files(self) -> dict[str, Part]:
        """Return the parts of the checkpoint by the name of their file."""
        try:
            _, output, name, wanted = self._split()
            manifest = Manifest.from_bytes(self._store.read(output))
            if manifest.checkpoints.get(name) != wanted:
                raise IntegrityError(f"{output} has no checkpoint {name!r} {wanted[:12]} any more")
            if retired := find_retired(self._store, manifest):
                raise NotFound(retired.reason)
        except GenenvError as error:
            raise MlflowException(f"{self.artifact_uri}: {error}") from error
        return {PurePosixPath(part.name).name: part for part in manifest.of_checkpoint(name)}

    def _split(self) -> tuple[str, str, str, str]:
        """Return the root, and the manifest, name and digest of the checkpoint in it."""
        scheme, _, place = self.artifact_uri.removeprefix(SCHEME).partition("://")
        *root, _, stage, record, name, wanted = unquote(place).split("/")
        output = paths.manifest(stage, record.removesuffix(".json"))
        return f"{scheme}://{'/'.join(root)}", output, name, wanted

    def list_artifacts(self, path: str | None = None) -> list[FileInfo]:
        """Return the files of the checkpoint, and those that MLflow wants beside them."""
        files, path = self._files, (path or "").strip("/")
        found: list[FileInfo] = []
        if not path:
            found = [FileInfo(name, False, part.bytes) for name, part in files.items()]
        if not is_loadable(files):
            return found
        above, _, last = TOKENIZER.partition("/")
        if not path:
            found += [FileInfo(MLMODEL, False, len(mlmodel())), FileInfo(above, True, None)]
        elif path == above:
            found = [FileInfo(f"{above}/{last}", True, None)]
        elif path == TOKENIZER:
            names = of_tokenizer(files)
            found = [FileInfo(f"{TOKENIZER}/{name}", False, files[name].bytes) for name in names]
        return found

    def _download_file(self, remote_file_path: str, local_path: str) -> None:
        if remote_file_path == MLMODEL and is_loadable(self._files):
            Path(local_path).write_bytes(mlmodel())
            return
        part = self._files.get(remote_file_path.removeprefix(f"{TOKENIZER}/"))
        if part is None:
            raise MlflowException(f"{self.artifact_uri} has no file {remote_file_path!r}")
        # The store compares the file with the digest in the part's name.
        shutil.copyfile(self._store.local(part.path), local_path)

    def log_artifact(self, local_file: str, artifact_path: str | None = None) -> None:
        """Raise, as checkpoints are written by stages alone."""
        raise MlflowException("a checkpoint in a root is written by its stage, not through MLflow")

    def log_artifacts(self, local_dir: str, artifact_path: str | None = None) -> None:
        """Raise, as checkpoints are written by stages alone."""
        self.log_artifact(local_dir)
