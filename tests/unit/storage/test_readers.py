"""Roots that are read from beside a run's own, stage by stage.

Invariants: a stage is taken from the first root that has it whole, with its tables, and its
manifest stays as it is; weights stay there until they are needed, and are compared with their
digest then; nothing of a root that is read from changes; a stage that the own root has is asked for
nowhere else; damage names the root, and the stage is computed; a root that cannot be read is said
once; gc, verify and copies handle stages that were taken.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from genenv_core.errors import ConfigError, IntegrityError, Retired, StorageError
from genenv_core.storage import paths
from genenv_core.storage.records import foreign
from genenv_core.storage.records.artifacts import Artifacts
from genenv_core.storage.records.foreign import find_foreign, left_behind, read_foreign
from genenv_core.storage.records.manifest import Manifest
from genenv_core.storage.records.origins import Origin, find_origin, note_origin
from genenv_core.storage.records.readers import Readers, check_readers
from genenv_core.storage.records.retention import restore
from genenv_core.storage.records.runs import RunLog
from genenv_core.storage.store.local import LocalStore
from genenv_core.storage.upkeep.collected import CollectionRule
from genenv_core.storage.upkeep.copying import copy_run
from genenv_core.storage.upkeep.gc import collect
from genenv_core.storage.upkeep.verify import verify
from tests.mutations import mutation
from tests.unit.builders_runs import START, age, key_of, open_run, spoil, write_epoch, write_stage

FOREIGN = "genenv_core/storage/records/foreign.py"
PARTS = "genenv_core/storage/records/parts.py"
READERS = "genenv_core/storage/records/readers.py"

UPDATE = ("grpo_update", key_of("grpo_update", 1))


def state(root: Path) -> dict[str, tuple[Any, ...]]:
    """Return what a folder is: bytes, modes, times and links of every path."""
    found: dict[str, tuple[Any, ...]] = {}
    for path in sorted([root, *root.rglob("*")]):
        status = path.stat()
        digest = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
        seen = (status.st_mode, status.st_mtime_ns, status.st_ctime_ns, status.st_nlink)
        found[str(path)] = (*seen, digest)
    return found


def shared(root: Path) -> tuple[LocalStore, Manifest]:
    """Return a root with one update, and who computed it."""
    store = LocalStore(root)
    manifest = write_stage(store, "grpo_update", 1, weights=True)
    origin = Origin(stage=UPDATE[0], key=UPDATE[1], run_id="theirs", host="h", started_at=START)
    note_origin(store, origin)
    return store, manifest


def own(root: Path, *uris: Path, told: list[str] | None = None) -> tuple[Artifacts, Readers]:
    artifacts = Artifacts(LocalStore(root))
    heard = [] if told is None else told
    return artifacts, Readers(artifacts, [str(uri) for uri in uris], heard.append)


@mutation(
    "weights of another root are copied with the stage", READERS,
    "along = [part for part in manifest.parts if part not in weights]",
    "along = list(manifest.parts)",
)  # fmt: skip
@mutation(
    "files of another root are linked, not copied", PARTS,
    "shutil.copyfile(store.local(part.path), made)", "made.hardlink_to(store.local(part.path))",
)  # fmt: skip
@mutation(
    "a root to read from is opened for writing", READERS,
    "self._open[uri] = Artifacts(open_store(uri, writable=False), shared=True)",
    "self._open[uri] = Artifacts(open_store(uri), shared=True)",
)  # fmt: skip
@mutation(
    "weights elsewhere count as missing", "genenv_core/storage/upkeep/verify.py",
    "if isinstance(record, ForeignWeights) and not record.fault:", "if False:",
)  # fmt: skip
def test_a_stage_is_taken_without_its_weights_and_nothing_there_changes(tmp_path: Path) -> None:
    team, manifest = shared(tmp_path / "team")
    before = state(team.root)
    artifacts, readers = own(tmp_path / "own", team.root)
    store = artifacts.store
    found = readers.find(*UPDATE)
    assert found and found.manifest == manifest and found.reader.store.uri == team.uri
    assert store.list("stages") == store.list("parts") == []  # a plan copies nothing
    assert readers.take_in(*UPDATE) == manifest
    path = paths.manifest(*UPDATE)
    assert store.read(path) == team.read(path)
    (weights,) = left_behind(manifest)
    assert store.size(weights.path) is None
    along = [part.path for part in manifest.parts if part is not weights]
    assert len(along) == 2 and None not in store.stats(along)  # samples, and the tokenizer
    fresh = Artifacts(store)
    assert fresh.find(*UPDATE) == manifest
    assert fresh.frame(manifest, "update_samples").height
    origin = find_origin(store, *UPDATE)
    assert origin and (origin.run_id, origin.root) == ("theirs", team.uri)
    assert f"computed by run theirs of {team.uri} on 2026-11-01" in str(origin)
    assert verify(LocalStore(tmp_path / "own")).damaged == []
    assert state(team.root) == before


def test_weights_are_copied_when_something_needs_them(tmp_path: Path) -> None:
    team, manifest = shared(tmp_path / "team")
    theirs = Artifacts(team).checkpoint(manifest, "agent")
    before = state(team.root)
    artifacts, readers = own(tmp_path / "own", team.root)
    readers.take_in(*UPDATE)
    folder = artifacts.checkpoint(manifest, "agent")
    assert {p.name: p.read_bytes() for p in folder.iterdir()} == {
        p.name: p.read_bytes() for p in theirs.iterdir()
    }
    assert state(team.root) == before
    shutil.rmtree(team.root)  # the own root has them now
    shutil.rmtree(folder)
    assert Artifacts(artifacts.store).checkpoint(manifest, "agent") == folder
    assert verify(LocalStore(tmp_path / "own")).damaged == []


def test_the_first_root_that_has_a_stage_gives_it(tmp_path: Path) -> None:
    one, manifest = shared(tmp_path / "one")
    two, _ = shared(tmp_path / "two")
    artifacts, readers = own(tmp_path / "own", tmp_path / "one", tmp_path / "two")
    readers.take_in(*UPDATE)
    note = find_foreign(artifacts.store, manifest)
    assert note and note.root == one.uri
    _, other = own(tmp_path / "other", tmp_path / "one", tmp_path / "two")
    (one.root / paths.manifest(*UPDATE)).unlink()
    taken = other.find(*UPDATE)
    assert taken and taken.reader.store.uri == two.uri


def test_a_root_that_has_a_stage_from_elsewhere_says_where_the_weights_lie(tmp_path: Path) -> None:
    team, manifest = shared(tmp_path / "team")
    own(tmp_path / "mine", team.root)[1].take_in(*UPDATE)
    artifacts, readers = own(tmp_path / "yours", tmp_path / "mine")
    assert readers.take_in(*UPDATE) == manifest
    note, origin = find_foreign(artifacts.store, manifest), find_origin(artifacts.store, *UPDATE)
    assert note and note.root == team.uri and origin and origin.root == team.uri
    before = state(tmp_path / "mine")
    assert artifacts.checkpoint(manifest, "agent").is_dir()
    assert state(tmp_path / "mine") == before


@pytest.mark.parametrize("what", ["table", "manifest"])
def test_damage_there_is_a_miss_that_names_the_root(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, what: str
) -> None:
    team, manifest = shared(tmp_path / "team")
    spoil(team, paths.manifest(*UPDATE) if what == "manifest" else manifest.parts[-1].path)
    artifacts, readers = own(tmp_path / "own", team.root)
    assert readers.take_in(*UPDATE) is None
    assert "taken as a miss" in caplog.text and team.uri in caplog.text
    assert artifacts.store.list("stages") == []


@mutation(
    "what is copied from another root is not compared", PARTS,
    "if file_sha256(made) != part.sha256:", "if False:",
)  # fmt: skip
@mutation(
    "weights with a fault elsewhere are asked for again", READERS,
    "if note and note.fault:", "if False:",
)  # fmt: skip
@mutation(
    "a note with a fault excuses missing weights", FOREIGN,
    "return found if found and not found.fault and found.parts == left_behind(manifest) else None",
    "return found if found and found.parts == left_behind(manifest) else None",
)  # fmt: skip
def test_damaged_weights_are_found_when_they_are_copied_and_then_computed_here(
    tmp_path: Path,
) -> None:
    team, manifest = shared(tmp_path / "team")
    (weights,) = left_behind(manifest)
    spoil(team, weights.path)
    artifacts, readers = own(tmp_path / "own", team.root)
    assert readers.take_in(*UPDATE) == manifest  # their size is right
    with pytest.raises(IntegrityError, match=f"damaged in {team.uri}: .*run the same command"):
        artifacts.checkpoint(manifest, "agent")
    assert artifacts.find(*UPDATE) is None
    assert readers.find(*UPDATE) is None and readers.take_in(*UPDATE) is None
    assert [(d.path, d.problem) for d in verify(LocalStore(tmp_path / "own")).damaged] == [
        (weights.path, "it is missing")
    ]
    write_stage(LocalStore(tmp_path / "own"), "grpo_update", 1, weights=True)
    assert Artifacts(artifacts.store).checkpoint(manifest, "agent").is_dir()
    assert verify(LocalStore(tmp_path / "own")).damaged == []


@mutation(
    "gc --restore gives up weights that can be had", FOREIGN,
    'why = "" if None not in stats else "they are not there"', 'why = "they are not there"',
)  # fmt: skip
def test_weights_that_are_gone_there_say_how_they_are_computed_here(tmp_path: Path) -> None:
    team, manifest = shared(tmp_path / "team")
    store = LocalStore(tmp_path / "own")
    artifacts, readers = own(store.root, team.root)
    readers.take_in(*UPDATE)
    log = open_run(store, "mine", 1)
    log.note_key(1, *UPDATE)
    assert restore(store, log, 1) == 0  # they can be had
    team.delete(left_behind(manifest)[0].path)
    with pytest.raises(Retired, match=rf"not in {team.uri} any more: .*gc --restore"):
        artifacts.checkpoint(manifest, "agent")
    assert artifacts.find(*UPDATE) == manifest  # the tables are here
    assert restore(store, log, 1) == 1
    assert artifacts.find(*UPDATE) is None and readers.find(*UPDATE) is None


def test_weights_in_a_root_that_is_away_say_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    team, manifest = shared(tmp_path / "team")
    artifacts, readers = own(tmp_path / "own", team.root)
    readers.take_in(*UPDATE)

    def away(*_: Any, **__: Any) -> Any:
        raise StorageError("no answer")

    with monkeypatch.context() as patch:
        patch.setattr(foreign, "open_store", away)
        with pytest.raises(StorageError, match=f"lie in {team.uri} and cannot be copied here: no"):
            artifacts.checkpoint(manifest, "agent")
    assert artifacts.checkpoint(manifest, "agent").is_dir()


@mutation(
    "a root that is away is asked again for every stage", READERS,
    "left = [uri for uri in self._uris if uri not in self._away]", "left = list(self._uris)",
)  # fmt: skip
def test_a_root_that_goes_away_is_said_once_and_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    team, _ = shared(tmp_path / "team")
    told: list[str] = []
    _, readers = own(tmp_path / "own", team.root, told=told)
    asked: list[str] = []

    def away(self: LocalStore, path: str) -> bytes:
        if self.uri == team.uri:
            asked.append(path)
            raise StorageError("no answer")
        return read(self, path)

    read = LocalStore.read
    monkeypatch.setattr(LocalStore, "read", away)
    assert readers.take_in(*UPDATE) is None and readers.find(*UPDATE) is None
    assert len(asked) == 1
    (text,) = told
    assert text == f"roots.read {team.uri} cannot be read: no answer; the run goes on without it"


@mutation(
    "gc leaves the note of weights elsewhere", "genenv_core/storage/upkeep/gc.py",
    "self._store.delete(paths.foreign(*output))", "pass",
)  # fmt: skip
@pytest.mark.slow
def test_gc_keeps_what_was_taken_and_a_note_goes_with_its_stage(tmp_path: Path) -> None:
    team = LocalStore(tmp_path / "team")
    write_epoch(team, "theirs", 0, weights=True)
    for epoch in (1, 2, 3):
        write_epoch(team, "theirs", epoch, weights=True)
    store = LocalStore(tmp_path / "own")
    artifacts, readers = own(store.root, team.root)
    log = open_run(store, "mine", 3)
    for epoch in range(4):
        for stage, key in RunLog(team, "theirs").keys(epoch).items():
            assert readers.take_in(stage, key)
            log.note_key(epoch, stage, key)
    manifest = artifacts.find(*UPDATE)
    assert manifest
    artifacts.checkpoint(manifest, "agent")  # superseded weights that were copied go again
    before = state(team.root)
    age(store)
    gone = collect(store, CollectionRule(keep=1), datetime.now(UTC), dry_run=False)
    (weights,) = left_behind(manifest)
    assert weights.path in gone.paths and gone.kinds["manifests"].count == 0
    assert verify(store).damaged == [] and Artifacts(store).find(*UPDATE) == manifest
    assert artifacts.checkpoint(manifest, "agent").is_dir()  # and are had again
    age(store)
    collect(store, CollectionRule(drop_run="mine"), datetime.now(UTC), dry_run=False)
    assert store.list("foreign") == store.list("stages") == store.list("parts") == []
    assert state(team.root) == before


@mutation(
    "a copy of a run lacks what lies elsewhere", "genenv_core/storage/upkeep/copying.py",
    "self._lying.update((part.path, note.root) for part in note.parts)", "pass",
)  # fmt: skip
def test_a_copy_of_a_run_is_whole(tmp_path: Path) -> None:
    team, manifest = shared(tmp_path / "team")
    artifacts, readers = own(tmp_path / "own", team.root)
    readers.take_in(*UPDATE)
    store = LocalStore(tmp_path / "own")
    open_run(store, "mine", 1).note_key(1, *UPDATE)
    copy_run(store, LocalStore(tmp_path / "copy"), "mine")
    assert left_behind(manifest)[0].path not in store.list("parts")
    shutil.rmtree(team.root)
    copied = Artifacts(LocalStore(tmp_path / "copy"))
    assert copied.checkpoint(manifest, "agent").is_dir()
    assert artifacts.find(*UPDATE) == manifest


def test_a_damaged_note_is_as_none(tmp_path: Path) -> None:
    team, manifest = shared(tmp_path / "team")
    artifacts, readers = own(tmp_path / "own", team.root)
    readers.take_in(*UPDATE)
    spoil(LocalStore(tmp_path / "own"), paths.foreign(*UPDATE))
    assert read_foreign(artifacts.store, *UPDATE) is None
    assert artifacts.find(*UPDATE) is None
    assert readers.take_in(*UPDATE) == manifest == artifacts.find(*UPDATE)


@mutation(
    "the own root may be read from as another one", READERS,
    "if _same(store.uri, own):", "if False:",
)  # fmt: skip
def test_roots_that_cannot_be_read_are_refused_at_the_start(tmp_path: Path) -> None:
    team, _ = shared(tmp_path / "team")
    home = str(tmp_path / "own")
    check_readers(home, [])
    check_readers(home, [team.uri, f"file://{team.uri}"])
    assert not (tmp_path / "own").exists()
    (tmp_path / "empty").mkdir()
    (tmp_path / "link").symlink_to(team.root)
    for root, uri, words in (
        (home, str(tmp_path / "none"), "no such directory: correct it or leave it out"),
        (home, f"file://{tmp_path}/none", "no such directory"),
        (home, str(tmp_path / "empty"), "there is no data of genenv: correct it"),
        (team.uri, str(tmp_path / "link"), "is the run's own root: leave it out"),
        (team.uri, f"file://{team.uri}", "is the run's own root"),
    ):
        with pytest.raises(ConfigError, match=rf"^roots\.read {uri}.*{words}"):
            check_readers(root, [uri])
    if os.geteuid():
        (tmp_path / "shut").mkdir(mode=0)
        with pytest.raises(ConfigError, match=r"cannot be read: .*permission denied"):
            check_readers(home, [str(tmp_path / "shut")])
