"""The store on a local directory.

Invariants: those of every store (`store_contract`); objects are read-only; nothing is left in
`tmp`; a killed writer leaves nothing visible; a folder that goes while it is listed is left out; a
full disk, a read-only or impossible root is one StorageError with the path and the remedy, and the
store works again afterwards.
"""

from __future__ import annotations

import errno
import os
import resource
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from genenv_core.errors import ConfigError, StorageError
from genenv_core.storage.store.local import LocalStore
from genenv_core.storage.store.opening import open_store
from genenv_core.storage.store.protocol import Store
from tests.mutations import mutation
from tests.unit.storage.store_contract import StoreContract
from tests.waiting import BOUND_S

FILES = "genenv_core/storage/files.py"
LOCAL = "genenv_core/storage/store/local.py"


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "root")


def leftovers(store: LocalStore) -> list[str]:
    return [str(path) for path in (store.root / "tmp").iterdir()]


class TestLocalStore(StoreContract):
    """The contract, on a directory; and nothing is left in `tmp`."""

    @pytest.fixture
    def store(self, tmp_path: Path) -> Iterator[Store]:
        store = LocalStore(tmp_path / "root")
        yield store
        killed = (tmp_path / "root" / "counter").exists()
        folders = [path for path in (store.root / "tmp").iterdir() if not path.is_dir()]
        assert folders == [] or killed


@mutation("objects can be written", FILES, "            path.chmod(mode)\n", "            pass\n")
def test_objects_are_read_only(store: LocalStore) -> None:
    store.create("a", b"1")
    store.replace("b", b"2")
    for name in ("a", "b"):
        assert (store.root / name).stat().st_mode & 0o777 == 0o444


@mutation(
    "bytes are not on the disk before they are named", FILES,
    "            sync(path)\n", "            pass\n",
)  # fmt: skip
def test_bytes_are_on_the_disk_before_they_have_a_name(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The name is on the disk afterwards too, because the folder is synced last."""
    steps: list[str] = []

    def noted(name: str) -> None:
        real = getattr(os, name)

        def call(*given: Any) -> Any:
            kind = name
            if name == "fsync":
                kind = "folder" if stat.S_ISDIR(os.fstat(given[0]).st_mode) else "bytes"
            steps.append(kind)
            return real(*given)

        monkeypatch.setattr(os, name, call)

    for name in ("fsync", "link", "replace"):
        noted(name)
    store.create("a", b"1")
    store.replace("b", b"2")
    source = store.scratch() / "weights"
    source.write_bytes(b"3")
    store.adopt(source, "c")
    linked = ["bytes", "link", "folder"]
    assert steps == [*linked, "bytes", "replace", "folder", *linked]


def test_scratch_is_on_the_same_file_system(store: LocalStore) -> None:
    assert os.stat(store.scratch()).st_dev == os.stat(store.root).st_dev


@mutation(
    "a folder that goes while it is listed is an error", LOCAL,
    "FileNotFoundError | NotADirectoryError):", "NotADirectoryError):",
)  # fmt: skip
def test_a_folder_that_goes_while_it_is_listed_is_left_out(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    for path in ("tmp/a/x", "tmp/b/y", "tmp/b/c/z"):
        store.create(path, b"1")
    real = os.scandir

    def goes(path: Any) -> Any:
        if str(path).endswith("/a"):
            shutil.rmtree(path)
        return real(path)

    monkeypatch.setattr(os, "scandir", goes)
    assert store.list("tmp") == ["tmp/b/c/z", "tmp/b/y"]
    assert store.list("tmp/a") == store.list("tmp/b/y") == []


@mutation(
    "a folder that cannot be listed is empty", LOCAL,
    "os.walk(folder, onerror=_unless_gone)", "os.walk(folder)",
)  # fmt: skip
def test_a_listing_that_is_not_allowed_says_so(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(path: Any) -> Any:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(os, "scandir", refuses)
    with pytest.raises(StorageError, match="permission denied: choose another --root"):
        store.list("parts")


def test_a_killed_writer_leaves_nothing_visible(store: LocalStore) -> None:
    script = (
        "import os, sys; from pathlib import Path; from genenv_core.storage.store import local;"
        "store = local.LocalStore(Path(sys.argv[1])); local.os.link = lambda *_: os._exit(9);"
        "store.create('stages/x', b'data')"
    )
    done = subprocess.run([sys.executable, "-c", script, store.uri], timeout=BOUND_S, check=False)
    assert done.returncode == 9
    assert store.size("stages/x") is None
    store.create("stages/x", b"again")
    assert store.read("stages/x") == b"again"


@contextmanager
def mounted(folder: Path, options: str) -> Iterator[None]:
    """Mount a small tmpfs, or skip with the reason."""
    folder.mkdir(exist_ok=True)
    if os.geteuid() != 0:
        pytest.skip("mounting a small tmpfs needs root")
    command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
    try:
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=BOUND_S)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no tmpfs can be mounted here: {getattr(error, 'stderr', error)}")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True, timeout=BOUND_S)


def test_a_full_disk_is_one_clear_error_and_heals(tmp_path: Path) -> None:
    folder = tmp_path / "small"
    with mounted(folder, "size=256k"):
        store = LocalStore(folder / "root")
        store.create("ballast", b"x" * 150_000)
        for write in (store.create, store.replace):
            with pytest.raises(StorageError, match=r"stages/key.*disk is full.*same command"):
                write("stages/key", b"y" * 200_000)
            assert store.size("stages/key") is None
        assert leftovers(store) == []
        store.replace("old", b"old")
        with pytest.raises(StorageError, match="disk is full"):
            store.replace("old", b"z" * 200_000)
        assert store.read("old") == b"old"
        store.delete("ballast")
        store.create("stages/key", b"y" * 200_000)
        assert store.size("stages/key") == 200_000


def test_a_read_only_file_system_names_the_remedy(tmp_path: Path) -> None:
    folder = tmp_path / "fixed"
    with mounted(folder, "size=256k"):
        store = LocalStore(folder / "root")
        store.create("x", b"1")
        subprocess.run(["mount", "-o", "remount,ro", str(folder)], check=True, timeout=BOUND_S)
        with pytest.raises(StorageError, match=r"read-only: choose another --root"):
            store.create("y", b"2")
        with pytest.raises(StorageError, match=r"read-only: choose another --root"):
            LocalStore(folder / "root")
        assert store.read("x") == b"1"


@mutation(
    "a limit on files has no remedy", LOCAL,
    "    errno.EFBIG: f", "    -1: f",
)  # fmt: skip
def test_a_limit_on_files_is_one_clear_error_and_heals(store: LocalStore) -> None:
    usual = resource.getrlimit(resource.RLIMIT_FSIZE)
    for write in (store.create, store.replace):
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, usual[1]))
        try:
            with pytest.raises(StorageError, match=r"stages/key.*ulimit -f.*raise the limit"):
                write("stages/key", b"y" * 200_000)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, usual)
        assert store.size("stages/key") is None
        assert [path for path in store.root.rglob("*") if path.is_file()] == []
    store.create("stages/key", b"y" * 200_000)
    assert store.size("stages/key") == 200_000


def test_a_root_below_a_file_names_the_remedy(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("text", encoding="utf-8")
    with pytest.raises(StorageError, match=r"a part of the path is a file: choose another --root"):
        LocalStore(tmp_path / "file" / "root")


def test_permission_denied_names_the_remedy(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Root is never refused, so the refusal is simulated.
    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "link", refuse)
    with pytest.raises(StorageError, match=r"x: permission denied: choose another --root"):
        store.create("x", b"1")
    assert leftovers(store) == []


def test_roots_by_uri(tmp_path: Path) -> None:
    assert open_store(str(tmp_path / "a")).root == tmp_path / "a"
    assert open_store(f"file://{tmp_path}/b").root == tmp_path / "b"
    with pytest.raises(ConfigError, match=r"'gopher://x': no store for gopher://"):
        open_store("gopher://x")


def test_a_relative_root_does_not_move_with_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    store = LocalStore(Path("here"))
    monkeypatch.chdir("/")
    store.create("x", b"1")
    assert (tmp_path / "here" / "x").read_bytes() == b"1"
