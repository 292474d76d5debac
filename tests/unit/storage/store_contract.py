"""The contract of every store, as one class of tests; a subclass names a store.

Invariants: `create` has exactly one winner among racing processes, and its bytes stay; a path is
complete or absent, for a reader as well; `swap` loses no update, whichever process is killed;
`adopt` takes a finished file over once; ages are by the store's clock, and a touch resets them;
damaged, missing and whole files are distinguished.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from genenv_core.canonical import sha256
from genenv_core.errors import AlreadyExists, NotFound
from genenv_core.storage import paths
from genenv_core.storage.store.opening import open_store
from genenv_core.storage.store.protocol import Store
from tests.mutations import mutation
from tests.waiting import BOUND_S, until

RACER = """
import sys
from genenv_core.errors import AlreadyExists
from genenv_core.storage.store.opening import open_store

store, name, turns = open_store(sys.argv[1]), sys.argv[2], int(sys.argv[3])
print("ready", flush=True)
sys.stdin.readline()
for turn in range(turns):
    try:
        store.create(f"stages/s/{turn}.json", name.encode() * 10_000)
        print(turn)
    except AlreadyExists:
        pass
"""

COUNTER = """
import json, sys
from genenv_core.errors import NotFound
from genenv_core.storage.store.opening import open_store

store, name, turns = open_store(sys.argv[1]), sys.argv[2], int(sys.argv[3])
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

REPLACER = """
import sys
from genenv_core.storage.store.opening import open_store

store = open_store(sys.argv[1])
for turn in range(int(sys.argv[2])):
    store.replace("x", b"AB"[turn % 2: turn % 2 + 1] * 200_000)
"""


def start(script: str, store: Store, *arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", script, store.uri, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def start_together(racers: Sequence[subprocess.Popen[str]]) -> None:
    """Let racers go once each of them is ready."""
    for racer in racers:
        assert racer.stdout is not None and racer.stdout.readline() == "ready\n"
    for racer in racers:
        assert racer.stdin is not None
        racer.stdin.write("go\n")
        racer.stdin.flush()


def content(data: bytes) -> str:
    """Return the path of a part with this content."""
    return paths.part(sha256(data), ".bin")


class StoreContract:
    """The tests; `store` is a fixture of the subclass."""

    racers = 8
    turns = 40

    @pytest.fixture
    def store(self) -> Store:
        raise NotImplementedError

    def test_what_is_written_is_read_back(self, store: Store) -> None:
        store.create("a/b/c.json", b"one")
        assert store.read("a/b/c.json") == b"one"
        assert store.size("a/b/c.json") == 3
        assert store.read_all(["a/b/c.json", "a/none"]) == [b"one", None]
        assert store.sha256("a/b/c.json") == sha256(b"one")
        assert open_store(store.uri).read("a/b/c.json") == b"one"

    @mutation(
        "an object is created by a rename, not a link", "genenv_core/storage/store/local.py",
        "            os.link(source, target)\n            sync",
        "            shutil.copyfile(source, source.with_suffix('.x'))\n"
        "            os.replace(source.with_suffix('.x'), target)\n            sync",
        by="unit/storage/test_local_store.py::TestLocalStore::test_create_never_overwrites",
    )  # fmt: skip
    def test_create_never_overwrites(self, store: Store) -> None:
        store.create("x", b"first")
        with pytest.raises(AlreadyExists, match="x is already there"):
            store.create("x", b"second")
        assert store.read("x") == b"first"

    def test_replace_overwrites_and_creates(self, store: Store) -> None:
        store.replace("folder/x", b"first")
        store.replace("folder/x", b"second, longer")
        store.replace("folder/x", b"second, longer")
        assert store.read("folder/x") == b"second, longer"

    def test_a_missing_path_is_empty_or_not_found(self, store: Store) -> None:
        assert store.size("no/where") is None
        assert store.stats(["no/where"]) == [None]
        assert store.modified("no/where") is None
        assert store.mark("no/where") == ""
        assert store.list("no/where") == store.names("no/where") == []
        assert store.touch("no/where") is False
        assert store.delete_older("no/where", store.clock()) is False
        store.delete("no/where")
        store.delete_folder("no/where")
        for call in (store.read, store.sha256):
            with pytest.raises(NotFound, match="no/where does not exist"):
                call("no/where")
        absent = content(b"absent")
        with pytest.raises(NotFound, match=f"{absent} does not exist"):
            store.local(absent)
        assert store.held(absent) is None
        assert not Path(store.files([absent])[0]).exists()

    def test_list_names_and_delete(self, store: Store) -> None:
        for name in ("runs/b/2", "runs/a/1", "runs/a/10", "other", "runsnot/1"):
            store.create(name, b"12")
        assert store.list("runs") == ["runs/a/1", "runs/a/10", "runs/b/2"]
        assert store.names("runs") == ["a", "b"]
        assert store.names("runs/a") == ["1", "10"]
        store.delete("runs/a/1")
        assert store.list("runs/a") == ["runs/a/10"]
        assert store.freed("runs") == 4
        store.delete_folder("runs")
        assert store.list("runs") == []
        assert store.list("runsnot") == ["runsnot/1"]

    def test_parts_are_local_files_that_nobody_can_write(self, store: Store) -> None:
        path = content(b"rows")
        store.replace(path, b"rows")
        found = store.local(path)
        assert found.read_bytes() == b"rows"
        assert found.stat().st_mode & 0o777 == 0o444
        assert store.held(path) == found
        assert [Path(file).read_bytes() for file in store.files([path])] == [b"rows"]

    @pytest.mark.parametrize("data", [b"", b"first", b"x" * 100_000])
    def test_adopt_takes_the_file_over_once(self, store: Store, data: bytes) -> None:
        work, path = store.scratch(), content(data)
        for name in ("x", "y"):
            (work / name).write_bytes(data)
            store.adopt(work / name, path)
        assert not (work / "x").exists()
        assert store.read(path) == data
        assert store.local(path).read_bytes() == data
        assert store.local(path).stat().st_mode & 0o777 == 0o444
        assert store.sha256(path) == sha256(data)

    def test_scratch_folders_are_private_and_below_home(self, store: Store) -> None:
        first, second = store.scratch(), store.scratch()
        assert first != second
        assert first.is_relative_to(store.home)
        assert store.folder("progress/a").is_dir()

    def test_a_mark_changes_with_the_bytes(self, store: Store) -> None:
        store.create("x", b"1")
        before = store.mark("x")
        assert before == store.mark("x") != ""
        store.replace("x", b"2")
        assert store.mark("x") != before

    def test_ages_are_by_the_stores_clock_and_a_touch_makes_young(self, store: Store) -> None:
        store.create("x", b"1")
        written = store.modified("x")
        assert written is not None
        assert abs(store.clock() - written) < BOUND_S  # another time zone is half an hour off

        def touched() -> float | None:  # more than once where a bucket counts whole seconds
            assert store.touch("x") is True
            at = store.modified("x")
            assert at is not None and at >= written
            return at if at > written else None

        young = until(touched)
        assert store.read("x") == b"1"
        with store.collecting():
            assert store.delete_older("x", (written + young) / 2) is False
            assert store.delete_older("x", young + 1) is True
        assert store.size("x") is None

    def test_racing_creators_have_one_winner(self, store: Store) -> None:
        racers = [start(RACER, store, index, self.turns) for index in range(self.racers)]
        start_together(racers)
        won: dict[str, list[int]] = {}
        for index, racer in enumerate(racers):
            output, _ = racer.communicate(timeout=BOUND_S)
            assert racer.returncode == 0
            for turn in output.split():
                won.setdefault(turn, []).append(index)
        assert sorted(won, key=int) == [str(turn) for turn in range(self.turns)]
        for turn, winners in won.items():
            assert len(winners) == 1, f"key {turn}: {winners}"
            assert store.read(f"stages/s/{turn}.json") == str(winners[0]).encode() * 10_000

    def test_swap_writes_only_over_what_was_expected(self, store: Store) -> None:
        assert store.swap("folder/x", b"first", b"second") is False
        assert store.size("folder/x") is None
        assert store.swap("folder/x", None, b"first") is True
        assert store.swap("folder/x", None, b"second") is False
        assert store.swap("folder/x", b"other", b"second") is False
        assert store.read("folder/x") == b"first"
        assert store.swap("folder/x", b"first", b"second") is True
        assert store.read("folder/x") == b"second"

    def test_racing_counters_lose_no_update(self, store: Store) -> None:
        racers = [start(COUNTER, store, index, self.turns) for index in range(self.racers)]
        for racer in racers:
            racer.communicate(timeout=BOUND_S)
            assert racer.returncode == 0
        counts = json.loads(store.read("counter"))
        expected = {str(index): self.turns for index in range(self.racers)}
        assert counts == {"all": self.turns * self.racers} | expected

    def test_killed_counters_lose_no_update_and_leave_no_lock(self, store: Store) -> None:
        rng = random.Random(5)
        racers = [start(COUNTER, store, index, 10_000) for index in range(self.racers)]
        until(lambda: store.size("counter") is not None)
        counted = lambda: json.loads(store.read("counter"))["all"]  # noqa: E731
        finished: list[int] = []
        for racer in racers:
            enough = counted() + rng.randint(2, 6)
            until(lambda enough=enough: counted() >= enough)
            racer.kill()
            finished.append(racer.communicate(timeout=BOUND_S)[0].count("done"))
        counts = json.loads(store.read("counter"))
        assert counts["all"] == sum(counts.get(str(index), 0) for index in range(self.racers))
        for index, number in enumerate(finished):  # the last one may be done and not printed
            assert number <= counts.get(str(index), 0) <= number + 1
        assert sum(finished) > 0
        assert start(COUNTER, store, 99, 1).wait(timeout=BOUND_S) == 0

    @mutation(
        "a record is written in place", "genenv_core/storage/files.py",
        "        os.replace(made, path)\n",
        "        path.unlink(missing_ok=True)\n        path.write_bytes(b'')\n"
        "        os.replace(made, path)\n",
        by="unit/storage/test_local_store.py::TestLocalStore::"
        "test_a_reader_never_sees_half_a_replacement",
    )  # fmt: skip
    def test_a_reader_never_sees_half_a_replacement(self, store: Store) -> None:
        blocks = [bytes([65 + index]) * 200_000 for index in range(2)]
        store.replace("x", blocks[0])
        writer = start(REPLACER, store, self.turns)
        reads = 0
        while writer.poll() is None:
            assert store.read("x") in blocks
            reads += 1
        assert writer.returncode == 0
        assert reads > 0
