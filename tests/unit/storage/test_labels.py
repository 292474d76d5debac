"""Tags, note and pin of a run.

Invariants: two processes that tag one run at once both see their tag; labels are in `runs` and in
`genenv runs`, go along with a copy, and change neither a key nor the run; a damaged record says how
it is healed; a pinned run keeps its weights from gc and cannot be dropped.
"""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import pytest
from typer.testing import CliRunner

from flows.cli.app import app
from flows.cli.runs.listing import Filter
from genenv_core.config.moved import ONE_CLASS
from genenv_core.errors import ConfigError, IntegrityError
from genenv_core.storage import paths
from genenv_core.storage.records.labels import Labels, change_labels, change_of, read_labels
from genenv_core.storage.records.runs import RunLog, list_runs
from genenv_core.storage.sql.catalog import query
from genenv_core.storage.sql.sources import open_tables
from genenv_core.storage.store.local import LocalStore
from genenv_core.storage.upkeep.collected import CollectionRule
from genenv_core.storage.upkeep.copying import copy_run
from genenv_core.storage.upkeep.gc import collect
from genenv_core.storage.upkeep.verify import LABELS, verify
from tests.mutations import mutation
from tests.unit.builders_root import START, small_root
from tests.unit.builders_runs import age, without_fsync, write_run

NOW = datetime(2026, 11, 21, tzinfo=UTC)


def genenv(*arguments: str, root: Path) -> str:
    done = CliRunner().invoke(app, [*arguments, "--root", str(root)], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


@mutation(
    "two who tag at once lose a tag", "genenv_core/storage/records/labels.py",
    "if nothing or data == before or store.swap(path, before, data):",
    "if nothing or store.replace(path, data) is None:",
)  # fmt: skip
def test_writers_at_once_lose_nothing(tmp_path: Path) -> None:
    names = [f"t{number}" for number in range(24)]
    with ThreadPoolExecutor(8) as threads:
        # A store each: what threads of one process share must not be what makes it safe.
        stores = [LocalStore(tmp_path) for _ in names]
        changes = [change_of([name]) for name in names]
        list(threads.map(change_labels, stores, ["run-a"] * len(names), changes))
    assert read_labels(LocalStore(tmp_path), "run-a").tags == tuple(sorted(names))


def test_what_is_not_named_stays(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    change_labels(store, "r", change_of(["b", "a"], note=" why\n not ", pinned=True))
    assert change_labels(store, "r", change_of(remove=["b"])) == Labels(
        tags=("a",), note="why not", pinned=True
    )
    assert change_labels(store, "r", change_of(note="", pinned=False)) == Labels(tags=("a",))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((["two words"],), "'two words'"),
        ((["a"], ["a"]), "added and removed"),
        (([], [], "x" * 1001), "1001 characters"),
    ],
)
def test_what_cannot_be_a_label_is_refused(arguments, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        change_of(*arguments)


def test_a_tag_that_is_not_there_cannot_be_removed(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    change_labels(store, "r", change_of(["here"]))
    with pytest.raises(ConfigError, match=r"'gone' to remove; its tags: here"):
        change_labels(store, "r", change_of(remove=["gone"]))


@pytest.mark.slow
def test_labels_are_in_sql_and_on_the_command_line(tmp_path: Path) -> None:
    store = small_root(tmp_path)
    before = RunLog(store, "run-a").keys(1)
    genenv("tag", "run-a", "paper", "seed:0", "--note", "the [first] one", "--pin", root=tmp_path)
    with open_tables(store) as connection:
        text = "SELECT run_id, tags, note, pinned FROM runs WHERE list_contains(tags, 'paper')"
        rows = query(connection, text).rows()
    assert rows == [("run-a", ["paper", "seed:0"], "the [first] one", True)]
    for command in (("runs", "--tag", "paper"), ("status",), ("status", "run-a"), ("tag", "run-a")):
        shown = genenv(*command, root=tmp_path)
        assert "paper, seed:0" in shown and "the [first] one" in shown and "pinned" in shown
    listed = json.loads(genenv("runs", "--tag", "paper", "--json", root=tmp_path))
    assert [row["run_id"] for row in listed] == ["run-a"]
    assert "no run" in genenv("runs", "--tag", "other", root=tmp_path)
    assert RunLog(store, "run-a").keys(1) == before and list_runs(store) == ["run-a"]


def test_every_filter_must_hold() -> None:
    row = {"run_id": "big-1", "arm": "genenv", "domain": "desk", "tags": ["a", "b"]}
    row |= {"pinned": True, "epochs_done": 1, "epochs_planned": 2, "measured": None}
    fit = [Filter(), Filter(tags=("a", "b")), Filter(arm="genenv"), Filter(name="big-*")]
    fit += [Filter(domain="desk"), Filter(pinned=True), Filter(finished=False)]
    unfit = [Filter(tags=("a", "c")), Filter(arm="base"), Filter(name="b"), Filter(pinned=False)]
    unfit += [Filter(domain="trails"), Filter(finished=True), Filter(tags=("a",), arm="base")]
    assert [where for where in fit if not where.fits(row)] == []
    assert [where for where in unfit if where.fits(row)] == []
    measured = row | {"measured": "model", "items": 3}
    assert Filter(finished=True).fits(measured)
    assert not Filter(finished=True).fits(measured | {"items": 0})


@pytest.mark.slow
def test_a_run_is_one_line_where_no_terminal_reads_it(tmp_path: Path) -> None:
    small_root(tmp_path)
    note = "what people say of a run may be longer than a line of a terminal; " * 3
    genenv("tag", "run-a", "one", "two", "--note", note, root=tmp_path)
    (line,) = genenv("runs", root=tmp_path).splitlines()[1:]
    assert line.startswith("run-a ") and "one, two" in line and note.strip() in line


def test_an_arm_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    small_root(tmp_path)
    with pytest.raises(ConfigError, match=r"--arm 'genev' is no arm; there are genenv, random"):
        genenv("runs", "--arm", "genev", root=tmp_path)


@pytest.mark.slow
def test_labels_go_along_with_a_copy_and_those_of_the_copy_stay(tmp_path: Path) -> None:
    store, target = small_root(tmp_path / "a"), LocalStore(tmp_path / "b")
    change_labels(store, "run-a", change_of(["one"], note="from a", pinned=True))
    copy_run(store, target, "run-a")
    assert read_labels(target, "run-a") == read_labels(store, "run-a")
    change_labels(target, "run-a", change_of(["two"], ["one"], note="from b"))
    copy_run(store, target, "run-a")
    assert read_labels(target, "run-a") == Labels(tags=("one", "two"), note="from b", pinned=True)


def test_a_damaged_record_is_found_and_written_anew(tmp_path: Path) -> None:
    store = small_root(tmp_path)
    change_labels(store, "run-a", change_of(["one"]))
    path = tmp_path / paths.run_labels("run-a")
    path.write_bytes(path.read_bytes().replace(b"one", b"two"))
    assert read_labels(store, "run-a") == Labels()
    (damage,) = verify(store).damaged
    assert (damage.path, damage.remedy) == (paths.run_labels("run-a"), LABELS)
    with pytest.raises(IntegrityError, match="gc collects nothing"):
        collect(store, CollectionRule(), NOW, dry_run=True)  # it may have been a pin
    change_labels(store, "run-a", change_of(["three"]))
    assert read_labels(store, "run-a").tags == ("three",)
    assert verify(store).damaged == [] and verify(store).unknown == []


@mutation(
    "gc takes the weights of a pinned run", "genenv_core/storage/upkeep/gc.py",
    "kept |= _outputs({run: keys}) if run in pinned else set()", "pass",
)  # fmt: skip
@pytest.mark.slow
def test_a_pinned_run_keeps_its_weights_and_cannot_be_dropped(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    with without_fsync():
        write_run(store, "run-a", 6, weights=True)
    age(store)
    change_labels(store, "run-a", change_of(pinned=True))
    assert collect(store, CollectionRule(keep=1), NOW, dry_run=False).paths == []
    with pytest.raises(ConfigError, match=r"genenv tag run-a --unpin"):
        collect(store, CollectionRule(drop_run="run-a"), NOW, dry_run=True)
    change_labels(store, "run-a", change_of(pinned=False))
    gone = collect(store, CollectionRule(keep=1), NOW, dry_run=False)
    assert gone.kinds["weights"].count > 0
    assert "genenv gc --restore run-a" in genenv("tag", "run-a", "--pin", root=tmp_path)


@mutation(
    "a copy whose fields moved is another run", "genenv_core/storage/upkeep/copying.py",
    "in as_now(config).items()", "in config.items()",
)  # fmt: skip
@pytest.mark.slow
def test_a_run_that_a_newer_genenv_continued_goes_over_its_older_copy(tmp_path: Path) -> None:
    store, target = small_root(tmp_path / "here"), LocalStore(tmp_path / "there")
    log, config = RunLog(store, "run-a"), RunLog(store, "run-a").info().config
    log.open({**config, "data": {"offline_file": None}, "teacher": {**ONE_CLASS}}, START)
    copy_run(store, target, "run-a")
    log.open({**config, "data": {}, "teacher": {}}, START)
    copy_run(store, target, "run-a")
    assert RunLog(target, "run-a").info().config["teacher"] == {}
