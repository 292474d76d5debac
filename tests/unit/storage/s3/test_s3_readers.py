"""A root in a bucket that is read from beside a directory.

Invariants: nothing but GET and HEAD is sent to it, also when an object there is altered; a bucket
that does not answer is an error at the start that names the field.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from genenv_core.errors import ConfigError, IntegrityError
from genenv_core.storage import paths
from genenv_core.storage.records.artifacts import Artifacts
from genenv_core.storage.records.foreign import left_behind
from genenv_core.storage.records.manifest import Manifest
from genenv_core.storage.records.readers import Readers, check_readers
from genenv_core.storage.store.local import LocalStore
from genenv_core.storage.store.opening import open_store
from genenv_core.storage.store.s3.store import S3Store
from genenv_core.storage.upkeep.verify import verify
from tests.mutations import mutation
from tests.unit.builders_runs import key_of, write_stage
from tests.unit.storage.s3.s3_double import Faults, environment, proxy

UPDATE = ("grpo_update", key_of("grpo_update", 1))


class Heard(Faults):
    """Lets every request through, and keeps its method and path."""

    def draw(self, method: str, path: str) -> tuple[str, str] | None:
        self.counts[method] += 1
        return super().draw(method, path)


@pytest.fixture
def heard(usual: str, server: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Heard]:
    """Write a stage, then send every request through a proxy that counts them."""
    write_stage(S3Store(usual), "grpo_update", 1, weights=True)  # pyright: ignore
    faults = Heard()
    with proxy(server, faults) as url:
        for name, value in environment(url).items():
            monkeypatch.setenv(name, value)
        yield faults


def test_a_bucket_is_only_read(
    usual: str, heard: Heard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = LocalStore(tmp_path / "own")
    own, readers = Artifacts(store), Readers(Artifacts(store), [usual])
    check_readers(store.uri, [usual])
    assert readers.find(*UPDATE)
    manifest = readers.take_in(*UPDATE)
    assert manifest and own.find(*UPDATE) == manifest
    (weights,) = left_behind(manifest)
    monkeypatch.setenv("GENENV_CACHE_DIR", str(tmp_path / "another"))  # where nothing is yet
    assert store.size(weights.path) is None
    assert own.checkpoint(manifest, "agent").is_dir()
    assert verify(store).damaged == []
    assert heard.counts["GET"] and not heard.counts.keys() - {"GET", "HEAD", "requests"}


@mutation(
    "an altered object in a bucket that is only read is marked",
    "genenv_core/storage/store/s3/store.py", "if not self._writable:  # it may be another team's",
    "if False:",
)  # fmt: skip
def test_altered_weights_in_a_bucket_are_not_marked_there(
    usual: str, heard: Heard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = LocalStore(tmp_path / "own")
    own, readers = Artifacts(store), Readers(Artifacts(store), [usual])
    manifest = readers.take_in(*UPDATE)
    assert manifest
    (weights,) = left_behind(manifest)
    _spoil(usual, weights.path, weights.sha256)
    before = heard.counts.copy()
    monkeypatch.setenv("GENENV_CACHE_DIR", str(tmp_path / "another"))
    with pytest.raises(IntegrityError, match=f"damaged in {usual}: .*computed here"):
        own.checkpoint(manifest, "agent")
    assert own.find(*UPDATE) is None and readers.take_in(*UPDATE) is None
    assert (heard.counts - before).keys() <= {"GET", "HEAD", "requests"}


def test_a_bucket_that_does_not_answer_is_an_error_at_the_start(
    usual: str, heard: Heard, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=r"^roots\.read s3://no-such-bucket.*there is no bucket"):
        check_readers(str(tmp_path / "own"), ["s3://no-such-bucket/x"])
    with pytest.raises(ConfigError, match=r"there is no data of genenv"):
        check_readers(str(tmp_path / "own"), [f"{usual}-other"])


def test_a_run_in_a_bucket_reads_from_a_directory(usual: str, tmp_path: Path, heard: Heard) -> None:
    team = LocalStore(tmp_path / "team")
    write_stage(team, "rwr_update", 1, weights=True)
    output = ("rwr_update", key_of("rwr_update", 1))
    own = Artifacts(open_store(usual))
    manifest = Readers(own, [team.uri]).take_in(*output)
    assert manifest and own.find(*output) == manifest
    assert own.checkpoint(manifest, "env").is_dir()
    assert own.store.size(left_behind(manifest)[0].path)
    assert Manifest.from_bytes(own.store.read(paths.manifest(*output))) == manifest


def _spoil(root: str, path: str, sha256: str) -> None:
    """Alter an object's bytes; its metadata stay as they are."""
    from genenv_core.storage.store.s3.bucket import Bucket

    bucket, _, prefix = root.removeprefix("s3://").partition("/")
    objects = Bucket(bucket, prefix)
    head = objects.head(path)
    assert head is not None
    objects.put(path, b"x" * head.bytes, head, sha256)
