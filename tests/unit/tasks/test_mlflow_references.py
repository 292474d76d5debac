"""References of model versions to checkpoints that stay in their root, as MLflow follows them.

Invariants: a reference to a bucket gives the checkpoint to a machine that has nothing of the root;
a checkpoint that was altered, collected or replaced is refused with the reason, in a bucket as in a
folder; MLflow finds what it loads a checkpoint by, and weights are on the disk once; pyproject.toml
names the repository of each scheme.
"""

from __future__ import annotations

import importlib
import os
import tomllib
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from mlflow.exceptions import MlflowException
from mlflow.models import Model
from mlflow.store.artifact.artifact_repo import ArtifactRepository
from mlflow.store.artifact.artifact_repository_registry import ArtifactRepositoryRegistry

from genenv_core.canonical import digest
from genenv_core.errors import Retired
from genenv_core.storage import paths
from genenv_core.storage.records.artifacts import Artifacts, file_sha256
from genenv_core.storage.records.manifest import Manifest
from genenv_core.storage.records.retention import RetiredWeights, weights_of
from genenv_core.storage.store.local import LocalStore
from genenv_core.storage.store.s3.store import S3Store
from genenv_core.storage.upkeep.verify import verify
from tasks.tracking.flavor import BESIDE, MLMODEL, TOKENIZER, laid_out, mlmodel
from tasks.tracking.references import folder_reference, object_reference
from tests.mutations import mutation
from tests.unit.builders_runs import write_stage
from tests.unit.storage.s3.s3_double import moto, settled

PYPROJECT = Path(__file__).parents[3] / "pyproject.toml"


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with moto() as url:
        yield url


@pytest.fixture
def store(server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> S3Store:
    return S3Store(f"{settled(server, tmp_path, monkeypatch)}/a b/é+100%")


def output(store: S3Store | LocalStore) -> Manifest:
    """Commit an update with a checkpoint of the agent."""
    return write_stage(store, "grpo_update", 1, weights=True)  # type: ignore[arg-type]


def repository(uri: str) -> ArtifactRepository:
    """Return the artifact repository that MLflow finds through the project's entry points."""
    registry = ArtifactRepositoryRegistry()
    named = tomllib.loads(PYPROJECT.read_text())["project"]["entry-points"]
    for scheme, at in named["mlflow.artifact_repository"].items():
        module, _, name = at.partition(":")
        registry.register(scheme, getattr(importlib.import_module(module), name))
    return registry.get_artifact_repository(uri)


def digest_of(folder: Path) -> str:
    files = sorted(p for p in folder.iterdir() if p.is_file() and p.name not in BESIDE)
    return digest([[path.name, file_sha256(path)] for path in files])


@pytest.fixture
def elsewhere(store: S3Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Simulate another machine, which has no copy of the root."""
    for name in ("CACHE", "STATE"):
        monkeypatch.setenv(f"GENENV_{name}_DIR", str(tmp_path / "elsewhere" / name))
    (tmp_path / "given").mkdir()
    return tmp_path / "given"


def test_a_checkpoint_in_a_bucket_is_found_from_elsewhere(store: S3Store, elsewhere: Path) -> None:
    manifest = output(store)
    uri = object_reference(store, manifest, "agent")
    assert uri.startswith("genenv-s3://pools/") and " " not in uri
    assert uri.endswith(
        f"/stages/grpo_update/{manifest.key}.json/agent/{manifest.checkpoints['agent']}"
    )
    assert os.environ["AWS_ACCESS_KEY_ID"] not in uri
    found = repository(uri)
    assert [entry.path for entry in found.list_artifacts()] == [
        "model.safetensors", "tokenizer.json", "MLmodel", "components",
    ]  # fmt: skip
    whole = Path(found.download_artifacts(""))
    assert (whole / TOKENIZER / "tokenizer.json").read_bytes() == b"[]" * 20
    assert not (whole / TOKENIZER / "model.safetensors").exists()
    assert (whole / MLMODEL).read_bytes() == mlmodel()
    assert digest_of(Path(found.download_artifacts(""))) == manifest.checkpoints["agent"]
    one = found.download_artifacts("tokenizer.json", str(elsewhere))
    assert Path(one).read_bytes() == b"[]" * 20
    with pytest.raises(MlflowException, match="nothing"):
        found.download_artifacts("nothing", str(elsewhere))
    for write in (found.log_artifact, found.log_artifacts):
        with pytest.raises(MlflowException, match="written by its stage"):
            write(str(elsewhere))


def test_files_that_differ_from_the_checkpoint_are_refused(store: S3Store, elsewhere: Path) -> None:
    manifest = output(store)
    uri = object_reference(store, manifest, "agent")
    part = manifest.of_checkpoint("agent")[0]
    head = store._bucket.head(part.path)
    assert head and store._bucket.put(part.path, b"x" * part.bytes, head, part.sha256)
    with pytest.raises(MlflowException, match=r"is altered: it came with the digest"):
        repository(uri).download_artifacts("")

    at = paths.manifest(manifest.stage, manifest.key)
    other = manifest.model_copy(update={"parts": manifest.of_checkpoint("agent")[1:]})
    store.replace(at, other.to_bytes())
    with pytest.raises(MlflowException, match=r"has no checkpoint 'agent' \w{12} any more"):
        repository(uri).download_artifacts("")
    store.delete(at)
    with pytest.raises(MlflowException, match=r"genenv-s3://.*does not exist"):
        repository(uri).download_artifacts("")


def test_a_collected_checkpoint_says_so(store: S3Store, elsewhere: Path) -> None:
    manifest = output(store)
    uri = object_reference(store, manifest, "agent")
    note = RetiredWeights(
        stage=manifest.stage, key=manifest.key, parts=weights_of(manifest), kept_epochs=3,
        at=datetime.now(UTC),
    )  # fmt: skip
    store.replace(paths.retired(manifest.stage, manifest.key), note.to_bytes())
    with pytest.raises(MlflowException, match="genenv gc --restore RUN"):
        repository(uri).download_artifacts("")
    with pytest.raises(Retired):
        object_reference(store, manifest, "agent")


def test_a_folder_is_given_as_long_as_it_is_the_checkpoint(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "a folder")
    manifest = output(store)
    folder = Artifacts(store).checkpoint(manifest, "agent")
    uri = folder_reference(folder)
    assert uri.startswith("genenv-file:///") and uri.endswith(manifest.checkpoints["agent"])
    found = repository(uri)
    assert {entry.path for entry in found.list_artifacts()} == {
        "model.safetensors", "tokenizer.json",
    }  # fmt: skip
    assert Path(found.download_artifacts("")) == folder
    (folder / "tokenizer.json").unlink()
    with pytest.raises(MlflowException, match="is altered"):
        found.download_artifacts("")
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()
    with pytest.raises(MlflowException, match="is not there"):
        found.download_artifacts("")


@mutation(
    "a version has no file that MLflow loads it by", "tasks/tracking/flavor.py",
    "    shutil.move(scratch, folder / MLMODEL)\n", "",
)  # fmt: skip
def test_a_checkpoint_is_laid_out_for_mlflow_without_its_weights_again(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "root")
    manifest = output(store)
    checkpoint = Artifacts(store).checkpoint(manifest, "agent")
    names = {path.name for path in checkpoint.iterdir()}
    folder = laid_out(checkpoint, store.home)
    assert laid_out(checkpoint, store.home) == folder and folder.name == checkpoint.name
    assert {path.name for path in checkpoint.iterdir()} == names  # a folder is its content
    assert (folder / "model.safetensors").is_symlink()
    assert [path.name for path in (folder / TOKENIZER).iterdir()] == ["tokenizer.json"]
    flavor = Model.load(str(folder)).flavors["transformers"]
    assert folder / flavor["model_binary"] == folder
    found = repository(folder_reference(folder))
    assert Path(found.download_artifacts("")) == folder
    assert Path(found.download_artifacts(MLMODEL)).read_bytes() == mlmodel()
    (folder / "registered_model_meta").write_text("model_name: x")  # which MLflow adds
    assert Path(found.download_artifacts("")) == folder
    assert verify(store).unknown == []
    for path in checkpoint.iterdir():
        path.unlink()
    checkpoint.rmdir()
    with pytest.raises(MlflowException, match="`genenv gc` has collected"):
        found.download_artifacts("")


def test_an_adapter_is_no_model_for_mlflow(tmp_path: Path) -> None:
    checkpoint = tmp_path / "checkpoint"
    checkpoint.mkdir()
    (checkpoint / "adapter_config.json").touch()
    assert laid_out(checkpoint, tmp_path) == checkpoint
    assert not (tmp_path / "mlflow").exists()
