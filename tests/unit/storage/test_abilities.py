"""What a root's file system must be able to do, tried when the root is opened for writing.

Invariants: each ability that is missing is named with the folder and what to do, by `doctor` and
before a run begins; nothing is left in `tmp`; a folder of the root on another file system, or under
another mount of the same one, is refused, by a link or a mount; those of Prefect and MLflow may be
elsewhere. Without links a folder can still hold what a machine keeps of a root on S3.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from flows.cli.machines.doctor import checks
from flows.preparing import prepare
from genenv_core.errors import StorageError
from genenv_core.storage import paths
from genenv_core.storage.store import abilities
from genenv_core.storage.store.abilities import check_abilities, is_apart
from genenv_core.storage.store.local import LocalStore
from tasks.tracking.database import create_database
from tests.mutations import mutation
from tests.pipeline.builders import tiny
from tests.unit.storage.test_local_store import mounted
from tests.waiting import BOUND_S

ABILITIES = "genenv_core/storage/store/abilities.py"
LOCAL = "genenv_core/storage/store/local.py"


def refused(*_: Any, **__: Any) -> None:
    raise OSError(errno.EOPNOTSUPP, "Operation not supported")


def replaces(source: Path, target: Path) -> None:
    Path(target).unlink(missing_ok=True)
    real_link(source, target)


def only_first_lock(file: Any, how: int) -> None:
    """Take a lock that others have, as on a mount without locks."""


def again(path: Path, flags: int, mode: int = 0o777, **more: Any) -> int:
    return real_open(path, flags & ~os.O_EXCL, mode, **more)


def copied(source: Path, target: Path) -> None:
    shutil.copyfile(source, target)


real_link, real_open = os.link, os.open
Broken = Callable[..., Any]

LACKS: dict[str, tuple[Any, str, Broken, str]] = {
    "no links": (os, "link", refused, r"lacks hard links \(Operation not supported\)"),
    "links are copies": (os, "link", copied, r"lacks hard links \(a link is a copy\)"),
    "links replace": (os, "link", replaces, "lacks exclusive hard links"),
    "no locks": (fcntl, "flock", refused, r"lacks file locks \(Operation not supported\)"),
    "no locks for SQLite": (fcntl, "lockf", refused, "lacks file locks"),
    "locks lock nothing": (fcntl, "flock", only_first_lock, "lacks locks that lock"),
    "no replacing": (os, "replace", refused, r"lacks renames that replace a file \(Operation"),
    "replaces nothing": (os, "replace", copied, "the old one is still there"),
    "creates twice": (os, "open", again, "lacks exclusive creation"),
}


@mutation("a link that is a copy is a hard link", ABILITIES,
          "if not os.path.samefile(one, two):", "if False:", by="[links are copies]")  # fmt: skip
@mutation("a second lock of one file is a lock", ABILITIES,
          'raise _Missing("locks that lock (two took the same one)")', "return",
          by="[locks lock nothing]")  # fmt: skip
@mutation("a rename that replaces nothing is one", ABILITIES,
          'if two.exists() or one.read_bytes() != b"2":', "if False:",
          by="[replaces nothing]")  # fmt: skip
@mutation("a root is opened untried", LOCAL,
          "            check_abilities(self.root, folders, links=links)\n", "",
          by="[no links]")  # fmt: skip
@pytest.mark.parametrize("lack", LACKS)
def test_an_ability_that_is_missing_is_named_before_work(
    lack: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, name, broken, words = LACKS[lack]
    with monkeypatch.context() as patched:
        patched.setattr(module, name, broken)
        with pytest.raises(StorageError, match=words) as said:
            prepare(tiny(tmp_path / "root", run_id="x"))
        assert str(tmp_path / "root") in str(said.value)
        assert "choose a --root on another file system" in str(said.value)
        doctor = {check.name: check for check in checks(str(tmp_path / "root"))}["root"]
        assert (doctor.ok, doctor.detail) == (False, str(said.value))
    assert sorted(os.listdir(tmp_path / "root")) == ["tmp"]
    assert os.listdir(tmp_path / "root" / "tmp") == []
    LocalStore(tmp_path / "root")  # able again: a failed trial is not remembered as a good one


def test_what_a_machine_keeps_of_a_root_on_s3_needs_no_links(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "link", refused)
    LocalStore(tmp_path / "home", links=False)


@mutation("a root is tried each time it is opened", ABILITIES,
          "    _tried.add((root, links))\n", "")  # fmt: skip
def test_a_root_is_tried_once_a_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    LocalStore(tmp_path)
    monkeypatch.setattr(abilities, "_links", refused)
    LocalStore(tmp_path)


@mutation("a folder on another disk is not noticed", ABILITIES,
          "if here.stat().st_dev != there.stat().st_dev:", "if False:",
          by="[checkpoints]")  # fmt: skip
@pytest.mark.parametrize("folder", paths.FOLDERS)
def test_a_folder_on_another_disk_by_a_link(
    folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, other = tmp_path / "root", tmp_path / "other"
    (root / "tmp").mkdir(parents=True)
    other.mkdir()
    (root / folder).symlink_to(other)
    real = Path.stat

    class Elsewhere:
        st_dev = -1

    def stat(path: Path, **more: Any) -> Any:
        found = real(path, **more)
        return Elsewhere() if found.st_ino == inode else found

    inode = real(other).st_ino
    LocalStore(root)
    abilities._tried.clear()
    monkeypatch.setattr(Path, "stat", stat)
    with pytest.raises(StorageError, match="another file system") as said:
        LocalStore(root)
    assert f"the folder {folder} ({other})" in str(said.value)
    assert "let the whole root be a link to the larger disk" in str(said.value)


@mutation("another mount of one disk is not noticed", ABILITIES,
          "        return error.errno == errno.EXDEV\n", "        return False\n")  # fmt: skip
def test_a_mount_below_a_root(tmp_path: Path) -> None:
    """Files of one device cannot move between two mounts of it; nothing is left by the trial."""
    root = tmp_path / "root"
    with mounted(root, "size=1m"):
        (root / "tmp").mkdir()
        (root / "checkpoints").mkdir()
        assert not is_apart(root / "tmp", root / "checkpoints")
        bind = ["mount", "--bind", str(root / "checkpoints"), str(root / "checkpoints")]
        subprocess.run(bind, check=True, timeout=BOUND_S)
        try:
            assert (root / "tmp").stat().st_dev == (root / "checkpoints").stat().st_dev
            assert is_apart(root / "tmp", root / "checkpoints")
            with pytest.raises(StorageError, match="the folder checkpoints"):
                check_abilities(root, ["checkpoints"], links=True)
            assert os.listdir(root / "checkpoints") == os.listdir(root / "tmp") == []
        finally:
            subprocess.run(["umount", "-l", str(root / "checkpoints")], check=True, timeout=BOUND_S)


def test_a_link_to_another_disk_that_comes_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = LocalStore(tmp_path)

    def apart(*_: Any) -> None:
        raise OSError(errno.EXDEV, "Invalid cross-device link")

    monkeypatch.setattr(os, "link", apart)
    with pytest.raises(StorageError, match=r"parts/x: it is on another file system.*whole root"):
        store.create("parts/x", b"1")


@mutation("MLflow's database needs its folder on the root's disk", "tasks/tracking/database.py",
          "create(path, made.read_bytes())", "made.rename(path)")  # fmt: skip
def test_the_folder_of_mlflow_may_be_a_mount(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Client:  # the real one takes seconds for its migrations
        def __init__(self, tracking_uri: str) -> None:
            Path(tracking_uri.removeprefix("sqlite:///")).write_bytes(b"made")

        def search_experiments(self) -> None: ...

    monkeypatch.setitem(sys.modules, "mlflow", SimpleNamespace(MlflowClient=Client))
    root = tmp_path / "root"
    LocalStore(root)
    with mounted(root / "mlflow", "size=1m"):
        create_database(root)
        assert (root / "mlflow" / "mlflow.db").read_bytes() == b"made"
        assert os.listdir(root / "mlflow") == ["mlflow.db"]
    assert os.listdir(root / "tmp") == []
