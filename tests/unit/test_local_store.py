"""The store on a local directory.

Invariants: `create` has exactly one winner among racing processes, whose bytes stay; a path is
complete or absent, for a reader as well; `replace` is atomic; `swap` loses no update, whoever is
killed; `adopt` takes a finished file over once; objects are read-only; nothing is left in `tmp`; a
full disk, a read-only or impossible root is one StorageError with the path and the remedy, and the
store works again afterwards.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from genenv_core.errors import AlreadyExists, ConfigError, NotFound, StorageError
from genenv_core.storage.local import LocalStore
from genenv_core.storage.registry import open_store

RACERS = 8


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "root")


def leftovers(store: LocalStore) -> list[str]:
    return [str(path) for path in (store.root / "tmp").iterdir()]


def test_what_is_written_is_read_back(store: LocalStore) -> None:
    store.create("a/b/c.json", b"one")
    assert store.read("a/b/c.json") == b"one"
    assert store.size("a/b/c.json") == 3
    assert store.local("a/b/c.json").read_bytes() == b"one"
    assert Path(store.url("a/b/c.json")) == store.root / "a/b/c.json"
    assert LocalStore(store.root).read("a/b/c.json") == b"one"
    assert leftovers(store) == []


def test_create_never_overwrites(store: LocalStore) -> None:
    store.create("x", b"first")
    with pytest.raises(AlreadyExists, match="x is already there"):
        store.create("x", b"second")
    assert store.read("x") == b"first"
    assert leftovers(store) == []


def test_replace_overwrites_and_creates(store: LocalStore) -> None:
    store.replace("folder/x", b"first")
    store.replace("folder/x", b"second, longer")
    assert store.read("folder/x") == b"second, longer"
    assert leftovers(store) == []


def test_objects_are_read_only_and_the_folder_is_made(store: LocalStore) -> None:
    store.create("a", b"1")
    store.replace("b", b"2")
    for name in ("a", "b"):
        assert (store.root / name).stat().st_mode & 0o777 == 0o444


def test_what_is_not_there(store: LocalStore) -> None:
    assert store.size("no/where") is None
    assert store.list("no/where") == []
    store.delete("no/where")
    for call in (store.read, store.local):
        with pytest.raises(NotFound, match="no/where does not exist"):
            call("no/where")


def test_list_and_delete(store: LocalStore) -> None:
    for name in ("runs/b/2", "runs/a/1", "runs/a/10", "other"):
        store.create(name, b"")
    assert store.list("runs") == ["runs/a/1", "runs/a/10", "runs/b/2"]
    store.delete("runs/a/1")
    assert store.list("runs/a") == ["runs/a/10"]


def test_adopt_takes_the_file_over_once(store: LocalStore) -> None:
    work = store.scratch()
    (work / "x").write_bytes(b"first")
    store.adopt(work / "x", "parts/x")
    assert not (work / "x").exists()
    (work / "y").write_bytes(b"other")
    store.adopt(work / "y", "parts/x")
    assert store.read("parts/x") == b"first"
    assert store.local("parts/x").stat().st_mode & 0o777 == 0o444


def test_scratch_folders_are_private(store: LocalStore) -> None:
    assert store.scratch() != store.scratch()
    assert os.stat(store.scratch()).st_dev == os.stat(store.root).st_dev


RACER = """
import sys
from pathlib import Path
from genenv_core.errors import AlreadyExists
from genenv_core.storage.local import LocalStore

store, name = LocalStore(Path(sys.argv[1])), sys.argv[2]
print("ready", flush=True)
sys.stdin.readline()
for turn in range(40):
    try:
        store.create(f"stages/s/{turn}.json", name.encode() * 10_000)
        print(turn)
    except AlreadyExists:
        pass
"""


def test_racing_creators_have_one_winner(store: LocalStore) -> None:
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", RACER, store.uri, str(index)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for index in range(RACERS)
    ]
    for racer in racers:
        assert racer.stdout is not None and racer.stdout.readline() == "ready\n"
    for racer in racers:
        assert racer.stdin is not None
        racer.stdin.write("go\n")
        racer.stdin.flush()
    won: dict[str, list[int]] = {}
    for index, racer in enumerate(racers):
        output, _ = racer.communicate(timeout=60)
        assert racer.returncode == 0
        for turn in output.split():
            won.setdefault(turn, []).append(index)
    assert sorted(won, key=int) == [str(turn) for turn in range(40)]
    for turn, winners in won.items():
        assert len(winners) == 1, f"key {turn}: {winners}"
        assert store.read(f"stages/s/{turn}.json") == str(winners[0]).encode() * 10_000
    assert leftovers(store) == []


def test_swap_writes_only_over_what_was_expected(store: LocalStore) -> None:
    assert store.swap("folder/x", b"first", b"second") is False
    assert store.size("folder/x") is None
    assert store.swap("folder/x", None, b"first") is True
    assert store.swap("folder/x", None, b"second") is False
    assert store.swap("folder/x", b"other", b"second") is False
    assert store.read("folder/x") == b"first"
    assert store.swap("folder/x", b"first", b"second") is True
    assert store.read("folder/x") == b"second"
    assert leftovers(store) == []


COUNTER = """
import json, sys
from pathlib import Path
from genenv_core.errors import NotFound
from genenv_core.storage.local import LocalStore

store, name, turns = LocalStore(Path(sys.argv[1])), sys.argv[2], int(sys.argv[3])
for _ in range(turns):
    while True:
        try:
            before = store.read("counter")
        except NotFound:
            before = None
        counts = json.loads(before) if before else {}
        counts[name] = counts.get(name, 0) + 1
        counts["all"] = counts.get("all", 0) + 1
        if store.swap("counter", before, json.dumps(counts).encode()):
            break
    print("done", flush=True)
"""


def counting(store: LocalStore, name: int, turns: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", COUNTER, store.uri, str(name), str(turns)],
        stdout=subprocess.PIPE,
        text=True,
    )


def test_racing_counters_lose_no_update(store: LocalStore) -> None:
    racers = [counting(store, index, 50) for index in range(RACERS)]
    for racer in racers:
        racer.communicate(timeout=120)
        assert racer.returncode == 0
    counts = json.loads(store.read("counter"))
    assert counts == {"all": 50 * RACERS} | {str(index): 50 for index in range(RACERS)}


def test_killed_counters_lose_no_update_and_leave_no_lock(store: LocalStore) -> None:
    rng = random.Random(5)
    racers = [counting(store, index, 10_000) for index in range(RACERS)]
    deadline = time.monotonic() + 60
    while store.size("counter") is None and time.monotonic() < deadline:
        time.sleep(0.05)
    told: list[int] = []
    for racer in racers:
        time.sleep(rng.uniform(0.05, 0.3))
        racer.kill()
        told.append(racer.communicate(timeout=60)[0].count("done"))
    counts = json.loads(store.read("counter"))
    assert counts["all"] == sum(counts.get(str(index), 0) for index in range(RACERS))
    for index, number in enumerate(told):  # the last one may be done and not told
        assert number <= counts.get(str(index), 0) <= number + 1
    assert sum(told) > 0
    assert counting(store, 99, 1).wait(timeout=60) == 0


def test_a_reader_never_sees_half_a_replacement(store: LocalStore) -> None:
    blocks = [bytes([65 + index]) * 200_000 for index in range(2)]
    store.replace("x", blocks[0])
    script = (
        "import sys; from pathlib import Path; from genenv_core.storage.local import LocalStore;"
        "store = LocalStore(Path(sys.argv[1]));"
        "[store.replace('x', b'AB'[i % 2: i % 2 + 1] * 200_000) for i in range(60)]"
    )
    writer = subprocess.Popen([sys.executable, "-c", script, store.uri])
    reads = 0
    while writer.poll() is None:
        assert store.read("x") in blocks
        reads += 1
    assert writer.returncode == 0
    assert reads > 0


def test_a_killed_writer_leaves_nothing_visible(store: LocalStore) -> None:
    script = (
        "import os, sys; from pathlib import Path; from genenv_core.storage import local;"
        "local.os.link = lambda *_: os._exit(9);"
        "local.LocalStore(Path(sys.argv[1])).create('stages/x', b'data')"
    )
    done = subprocess.run([sys.executable, "-c", script, store.uri], timeout=60, check=False)
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
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no tmpfs can be mounted here: {getattr(error, 'stderr', error)}")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True, timeout=20)


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
        subprocess.run(["mount", "-o", "remount,ro", str(folder)], check=True, timeout=20)
        with pytest.raises(StorageError, match=r"read-only: choose another --root"):
            store.create("y", b"2")
        with pytest.raises(StorageError, match=r"read-only: choose another --root"):
            LocalStore(folder / "root")
        assert store.read("x") == b"1"


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
