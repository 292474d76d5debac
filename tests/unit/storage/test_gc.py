"""Collection of unneeded files.

Invariants: files and rows that a run names stay, to the byte; files younger than the longest writer
stay, by the store's clock, and so do all that a live lease's stage has written; an interrupted
stage keeps the files it continues from; superseded weights go, those of bootstrap, of the latest
and best checkpoints and of the last epochs stay; a run that removes its own leaves what others
need; a run without its old weights is a full hit, whole
to `verify`, and the error on reading them names the remedy; `restore` brings them back; a dropped
run's stages go unless another run names them; a writer that uses an old orphan keeps it; a stage
that loses its manifest under a reader is computed again; dry-run changes nothing; damage stops
everything.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest
from typer.testing import CliRunner

from flows.cli.app import app
from genenv_core.errors import ConfigError, IntegrityError, Retired
from genenv_core.storage import paths
from genenv_core.storage.records.artifacts import Artifacts, ArtifactWriter, reference
from genenv_core.storage.records.labels import Change, change_labels
from genenv_core.storage.records.manifest import Shard
from genenv_core.storage.records.retention import restore
from genenv_core.storage.records.runs import RunLog
from genenv_core.storage.sql.sources import source
from genenv_core.storage.store.leases import Lease, Leases
from genenv_core.storage.store.local import LocalStore
from genenv_core.storage.store.process import identity
from genenv_core.storage.upkeep import compaction
from genenv_core.storage.upkeep.collected import KINDS, Collected, CollectionRule
from genenv_core.storage.upkeep.compaction import compact
from genenv_core.storage.upkeep.gc import collect, collect_superseded
from genenv_core.storage.upkeep.verify import COLLECTED, verify
from tests.mutations import mutation
from tests.unit.builders_runs import (
    EPOCH_STAGES,
    WRITTEN,
    age,
    attempt_at,
    key_of,
    manifest_of,
    open_run,
    rows_of,
    without_fsync,
    write_epoch,
    write_run,
    write_stage,
)

RETENTION = "genenv_core/storage/records/retention.py"
GC = "genenv_core/storage/upkeep/gc.py"

NOW = datetime(2026, 11, 21, tzinfo=UTC)
EPOCHS = 8


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the run that `store` is a copy of."""
    store = LocalStore(tmp_path_factory.mktemp("written") / "root")
    with without_fsync():
        write_run(store, "run-a", EPOCHS, weights=True, best=3)
    age(store)
    return store.root


@pytest.fixture
def store(written: Path, tmp_path: Path) -> LocalStore:
    """A finished run of eight epochs with weights, two days old; epoch 3 has the best agent."""
    return LocalStore(Path(shutil.copytree(written, tmp_path / "root")))


def gc(store: LocalStore, *, dry_run: bool = False, **rule: object) -> Collected:
    return collect(store, CollectionRule(**rule), NOW, dry_run=dry_run)  # type: ignore[arg-type]


def counts(found: Collected) -> dict[str, int]:
    return {kind: what.count for kind, what in found.kinds.items() if what.count}


def files(store: LocalStore) -> dict[str, bytes]:
    return {path: store.read(path) for path in store.list(".") if path != "swap.lock"}


def with_weights(store: LocalStore, run: str = "run-a") -> dict[str, list[int]]:
    """Return the epochs whose weights can be read, by policy."""
    found: dict[str, list[int]] = {"agent": [], "env": []}
    for policy, stage in (("agent", "grpo_update"), ("env", "rwr_update")):
        for epoch in range(1, EPOCHS + 1):
            manifest = manifest_of(store, RunLog(store, run), epoch, stage)
            try:
                Artifacts(store).checkpoint(manifest, policy)
            except Retired:
                continue
            found[policy].append(epoch)
    return found


def misses(store: LocalStore, run: str = "run-a") -> list[tuple[int, str]]:
    """Return the stages of a run that would be computed again."""
    log, artifacts = RunLog(store, run), Artifacts(store)
    return [
        (epoch, stage)
        for epoch in range(EPOCHS + 1)
        for stage, key in log.keys(epoch).items()
        if artifacts.find(stage, key) is None
    ]


@mutation(
    "gc removes parts that a kept stage names", GC,
    "named |= {part.path for part in manifest.parts if whole or part.table}",
    "named |= {part.path for part in manifest.parts if whole and not part.table}",
)  # fmt: skip
@mutation(
    "retention keeps one epoch too few", RETENTION,
    "epoch > last - keep}", "epoch > last - keep + 1}",
)  # fmt: skip
@mutation(
    "retention forgets the best epoch", RETENTION,
    'best = max((epoch for epoch, facts in published.items() if facts["is_best"]), default=0)',
    "best = 0",
)  # fmt: skip
def test_only_superseded_weights_of_a_finished_run_go(store: LocalStore) -> None:
    before = files(store)
    for epoch in range(1, EPOCHS + 1):  # laid out as a run leaves them
        manifest = manifest_of(store, RunLog(store, "run-a"), epoch, "grpo_update")
        Artifacts(store).checkpoint(manifest, "agent")
    age(store)
    rows = source(store, "run-a").files
    planned = gc(store, dry_run=True, keep=2)
    assert store.list("retired") == []
    found = gc(store, keep=2)
    assert (planned.kinds, sorted(planned.paths)) == (found.kinds, sorted(found.paths))
    # Of epochs 1, 2, 4, 5 and 6 the agent's and the env's weights; the tokenizer is shared.
    assert counts(found) == {"weights": 10, "checkpoints": 5}
    assert with_weights(store) == {"agent": [3, 7, 8], "env": [3, 7, 8]}
    after = files(store)
    gone = before.keys() - after.keys()
    assert {path.split("/")[0] for path in gone} == {"parts"} and len(gone) == 10
    assert found.bytes == sum(len(before[path]) for path in gone)
    assert all(after[path] == data for path, data in before.items() if path in after)
    assert misses(store) == [] and source(store, "run-a").files == rows
    assert verify(store).damaged == []
    assert counts(gc(store, keep=2)) == {}


def test_reading_collected_weights_says_how_they_come_back(store: LocalStore) -> None:
    gc(store, keep=1)
    log = RunLog(store, "run-a")
    manifest = manifest_of(store, log, 2, "grpo_update")
    with pytest.raises(Retired, match=r"collected on 2026-11-21 .* last 1 epochs.*--restore RUN"):
        Artifacts(store).checkpoint(manifest, "agent")
    assert Artifacts(store).load(reference(manifest)) == manifest
    assert restore(store, log, EPOCHS) == 12
    assert (2, "grpo_update") in misses(store) and len(misses(store)) == 12
    with without_fsync():
        write_run(store, "run-a", EPOCHS, weights=True, best=3)
    assert misses(store) == [] and verify(store).damaged == []
    assert with_weights(store)["agent"] == list(range(1, EPOCHS + 1))


def test_weights_that_were_computed_again_are_there(store: LocalStore) -> None:
    gc(store, keep=1)
    store.delete(paths.manifest("grpo_update", key_of("grpo_update", 2)))  # its note stays
    write_stage(store, "grpo_update", 2, weights=True)
    assert 2 in with_weights(store)["agent"]


@pytest.mark.slow
def test_latest_weights_stay_however_old(tmp_path: Path) -> None:
    """The next epoch starts from the last published weights, not from the newest ones."""
    store = LocalStore(tmp_path)
    open_run(store, "run-a", EPOCHS)
    with without_fsync():
        for epoch in range(EPOCHS + 1):
            shown = {"agent": epoch <= 4, "env": epoch <= 2}
            write_epoch(store, "run-a", epoch, weights=True, facts={"published": shown})
    age(store)
    gc(store, keep=1)
    assert with_weights(store) == {"agent": [4, 8], "env": [2, 8]}


def test_weights_that_another_run_needs_stay(store: LocalStore) -> None:
    open_run(store, "run-b", EPOCHS)
    for epoch in range(3):  # shares what run-a computed, and has come to epoch 2
        write_epoch(store, "run-b", epoch)
    age(store)
    gc(store, keep=1)
    assert with_weights(store)["agent"] == [2, 3, 8]


@mutation(
    "gc removes what is young", GC,
    "self._old = store.clock() - rule.older_than_h * 3600", "self._old = store.clock() + 3600",
)  # fmt: skip
def test_nothing_young_goes(store: LocalStore) -> None:
    open_run(store, "run-b", 0)
    write_epoch(store, "run-b", 0, seed=7)
    store.delete_folder(paths.run("run-b"))
    store.create("tmp/left", b"x")
    store.create("parts/00/" + "0" * 64, b"x")
    store.create("leases/score/x.json", b"{}")
    young = files(store)
    assert counts(gc(store, keep=EPOCHS)) == {}
    assert files(store) == young
    assert counts(gc(store, keep=EPOCHS, older_than_h=0)).keys() == {
        "manifests", "parts", "leases", "temporary",
    }  # fmt: skip


def superseded(store: LocalStore, keep: int = 1, until: int = EPOCHS) -> Collected:
    return collect_superseded(store, "run-a", keep, NOW, until=until)


@mutation(
    "a run removes weights that another run names", GC,
    "self._leases()[1] | others |", "self._leases()[1] |",
)  # fmt: skip
@mutation(
    "a run removes files that kept weights share", GC,
    "sorted(self._superseded - named)", "sorted(self._superseded)",
)  # fmt: skip
@mutation(
    "a run keeps the laid-out checkpoints of weights that went", GC,
    "if name not in laid_out and self._store.list(paths.checkpoint(name)):", "if False:",
)  # fmt: skip
def test_a_run_removes_its_own_superseded_weights_of_any_age(store: LocalStore) -> None:
    """Epoch 3 is the best one, 8 the last; another run names the update of epoch 2."""
    open_run(store, "run-b", 1)
    RunLog(store, "run-b").note_key(1, "grpo_update", key_of("grpo_update", 2))
    for policy, stage in (("agent", "grpo_update"), ("env", "rwr_update")):
        Artifacts(store).checkpoint(manifest_of(store, RunLog(store, "run-a"), 5, stage), policy)
    a_minute_ago = time.time() - 60
    for path in files(store):
        os.utime(store.root / path, (a_minute_ago, a_minute_ago))
    found = superseded(store)
    assert with_weights(store) == {"agent": [2, 3, 8], "env": [3, 8]}
    assert counts(found) == {"checkpoints": 2, "weights": 11}  # all have one tokenizer
    assert found.bytes > 11 * 900
    assert misses(store) == [] and verify(store).damaged == []
    assert counts(superseded(store)) == {}


@mutation(
    "a run that plays again loses the weights that it goes on from", GC,
    "kept_weights(so_far, manifests, self._rule.keep)", "set()",
)  # fmt: skip
def test_a_run_that_plays_its_epochs_again_keeps_what_it_goes_on_from(store: LocalStore) -> None:
    superseded(store, until=5)
    assert with_weights(store) == {"agent": [3, 5, 8], "env": [3, 5, 8]}
    superseded(store, keep=2, until=8)
    assert with_weights(store) == {"agent": [3, 8], "env": [3, 8]}


def test_a_pinned_run_keeps_its_weights(store: LocalStore) -> None:
    change_labels(store, "run-a", Change(pinned=True))
    assert counts(superseded(store)) == {}
    manifest = manifest_of(store, RunLog(store, "run-a"), 5, "grpo_update")
    change_labels(store, "run-a", Change(pinned=False))
    superseded(store)
    with pytest.raises(Retired, match=r"genenv tag RUN --pin. and .genenv gc --restore RUN"):
        Artifacts(store).checkpoint(manifest, "agent")


def test_leftovers_go(store: LocalStore) -> None:
    (store.scratch() / "deep").write_bytes(b"x" * 10)
    writer = ArtifactWriter(store, "rollout", {}, "e" * 64)
    orphan = writer.written("scores", rows_of("scores", 99), "scores.parquet")
    done = Shard(parts=())
    store.create(paths.shard("rollout", key_of("rollout", 1), 0), done.to_bytes())
    (store.folder(paths.progress("grpo_update", "f" * 64)) / "checkpoint").write_bytes(b"x")
    store.create(paths.shard("rollout", "f" * 64, 0), done.to_bytes())
    store.create("checkpoints/" + "0" * 64 + "/config.json", b"{}")
    with Leases(store).hold("score", "f" * 64, lambda: None):
        lease = Lease.from_bytes(store.read(paths.lease("score", "f" * 64)))
    ended = lease.model_copy(update={"process": identity(os.getpid()) + "0"})
    store.create(paths.lease("score", "f" * 64), ended.to_bytes())
    age(store)
    found = gc(store, keep=EPOCHS)
    assert counts(found) == {
        "shards": 2, "progress": 1, "checkpoints": 1, "parts": 1, "leases": 1, "temporary": 1,
    }  # fmt: skip
    assert found.kinds["temporary"].bytes == 10
    assert store.size(orphan.path) is None
    assert list(KINDS) == list(found.kinds)
    assert [p.name for p in (store.root / "tmp").iterdir()] == []
    assert misses(store) == [] and verify(store).damaged == []


def interrupt(store: LocalStore, stage: str, key: str) -> str:
    """Write a shard of a stage that run-a has not finished; returns the shard's part."""
    RunLog(store, "run-a").begin(attempt_at("run-a", EPOCHS + 1, stage, key))
    part = ArtifactWriter(store, stage, {}, key).written("scores", rows_of("scores", 50), "scores")
    store.create(paths.shard(stage, key, 0), Shard(parts=(part,)).to_bytes())
    (store.folder(paths.progress(stage, key)) / "checkpoint").write_bytes(b"x")
    return part.path


def test_an_interrupted_stage_keeps_what_it_continues_from(store: LocalStore) -> None:
    first = interrupt(store, "rollout", "e" * 64)
    age(store)
    assert counts(gc(store, keep=EPOCHS)) == {}
    interrupt(store, "rollout", "f" * 64)  # again, with another configuration: e... is abandoned
    age(store)
    assert counts(gc(store, keep=EPOCHS)) == {"shards": 1, "progress": 1}
    assert store.size(first) is not None  # equal content: a part of the other one as well


def test_a_live_lease_protects_what_was_written_since_it_began(store: LocalStore) -> None:
    old = ArtifactWriter(store, "score", {}, "d" * 64).written("scores", rows_of("scores", 77), "s")
    age(store)
    with Leases(store).hold("grpo_update", "e" * 64, lambda: None):
        RunLog(store, "run-a").begin(attempt_at("run-a", 9, "grpo_update", "e" * 64))
        writer = ArtifactWriter(store, "grpo_update", {}, "e" * 64)
        writer.table("scores", rows_of("scores", 78))
        (store.scratch() / "rows.parquet").write_bytes(b"x")
        age(store)
        with pytest.raises(ConfigError, match="run 'run-a' is at work on grpo_update of epoch 9"):
            gc(store, drop_run="run-a")
        assert counts(gc(store, keep=EPOCHS)) == {"parts": 1}
        assert store.size(old.path) is None
        manifest, _ = writer.commit({})
    assert Artifacts(store).find("grpo_update", "e" * 64) == manifest


@pytest.mark.slow
def test_a_dropped_run_takes_what_no_other_run_names(store: LocalStore) -> None:
    open_run(store, "run-b", EPOCHS)
    for epoch in range(EPOCHS + 1):
        write_epoch(store, "run-b", epoch, variant=1 if epoch > 4 else 0)
    age(store)
    with pytest.raises(ConfigError, match="no run 'run-x' here; known: run-a, run-b"):
        gc(store, drop_run="run-x")
    before = files(store)
    planned = gc(store, dry_run=True, drop_run="run-a", keep=EPOCHS)
    assert files(store) == before
    found = gc(store, drop_run="run-a", keep=EPOCHS)
    assert planned.kinds == found.kinds
    assert found.kinds["manifests"].count == 4 * 9 and found.kinds["runs"].count == 1
    assert not (store.root / paths.run("run-a")).exists()
    assert misses(store, "run-b") == [] and verify(store).damaged == []
    gc(store, drop_run="run-b")
    assert store.list("parts") == store.list("stages") == []


def test_an_output_that_a_run_replaces_is_young_again(store: LocalStore) -> None:
    write_stage(store, "score", 8, variant=1)
    age(store)
    log = RunLog(store, "run-a")
    log.begin(attempt_at("run-a", 8, "score", key_of("score", 8, 1), cached=True))
    log.note_key(8, "score", key_of("score", 8, 1))
    assert counts(gc(store, keep=EPOCHS)) == {}  # somebody may have it open
    age(store)
    assert counts(gc(store, keep=EPOCHS)) == {"manifests": 1, "parts": len(EPOCH_STAGES["score"])}


@pytest.mark.slow
def test_merged_files_stay_until_they_are_merged_further(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compaction, "FAN", 3)
    compact(store, "run-a")
    assert len(store.list(paths.segments("run-a"))) == 1
    live = source(store, "run-a").files
    assert counts(gc(store, keep=EPOCHS)) == {}
    age(store)
    assert counts(gc(store, keep=EPOCHS)) == {
        "parts": 3 * (len(WRITTEN) + 1)
    }  # tables and history of the merged ones
    assert source(store, "run-a").files == live
    store.delete(store.list(paths.segments("run-a"))[0])
    assert gc(store, keep=EPOCHS).kinds["parts"].count == len(WRITTEN) + 1  # and the history
    assert source(store, "run-a").files != live and verify(store).damaged == []


def test_a_writer_that_finds_an_old_orphan_keeps_it(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = rows_of("scores", 60)
    orphan = ArtifactWriter(store, "score", {}, "e" * 64).written("scores", rows, "scores.parquet")
    age(store)
    writer = ArtifactWriter(store, "score", {}, "e" * 64)
    real = store.delete_older

    def meanwhile(path: str, than: float) -> bool:
        if path == orphan.path:  # after gc has chosen it
            writer.table("scores", rows)
        return real(path, than)

    monkeypatch.setattr(store, "delete_older", meanwhile)
    assert counts(gc(store, keep=EPOCHS)) == {}
    manifest, _ = writer.commit({})
    assert Artifacts(store).find("score", "e" * 64) == manifest


def test_a_touch_in_the_last_moment_counts(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.create("parts/00/x", b"x")
    age(store)
    real = os.rename

    def slow(source: Path, target: Path) -> None:
        store.touch("parts/00/x")
        real(source, target)

    monkeypatch.setattr(os, "rename", slow)
    assert store.delete_older("parts/00/x", store.clock() - 3600) is False
    assert store.read("parts/00/x") == b"x"


def test_a_stage_that_goes_under_its_reader_is_computed_again(store: LocalStore) -> None:
    write_stage(store, "score", 60)
    age(store)
    found = Artifacts(store).find("score", key_of("score", 60))  # a run takes it for a hit
    assert found is not None
    order = gc(store, keep=EPOCHS).paths
    assert order.index(paths.manifest("score", found.key)) < order.index(found.parts[0].path)
    RunLog(store, "run-a").note_key(60, "score", found.key)
    with pytest.raises(IntegrityError, match="run the same command again and it is computed again"):
        Artifacts(store).load(reference(found))
    assert write_stage(store, "score", 60) == found
    assert Artifacts(store).load(reference(found)) == found


def test_a_run_that_names_an_output_meanwhile_keeps_it(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_stage(store, "score", 60)
    age(store)
    read = store.read

    def meanwhile(path: str) -> bytes:
        if path.startswith("shards/") or path.startswith("stages/evaluate"):
            RunLog(store, "run-a").note_key(8, "other", key_of("score", 60))
            RunLog(store, "run-a").note_key(8, "score", key_of("score", 60))
        return read(path)

    monkeypatch.setattr(store, "read", meanwhile)
    assert counts(gc(store, keep=EPOCHS)) == {}
    assert Artifacts(store).find("score", key_of("score", 60))


@pytest.mark.parametrize(
    "path",
    [
        paths.run_epoch("run-a", 3),
        paths.manifest("score", key_of("score", 3)),
        paths.retired("grpo_update", key_of("grpo_update", 1)),
    ],
)
def test_damage_stops_it_or_is_healed(store: LocalStore, path: str) -> None:
    gc(store, keep=1)
    store.create("tmp/left", b"x")
    store.replace(path, b"{}")
    age(store)
    if path.startswith("retired"):
        (damage,) = [d for d in verify(store).damaged if d.path == path]
        assert damage.remedy == COLLECTED
        gc(store, keep=1)
        assert verify(store).damaged == []
        return
    before = files(store)
    with pytest.raises(IntegrityError, match=f"gc collects nothing while {path} is damaged"):
        gc(store, keep=1)
    assert files(store) == before


@pytest.mark.slow
def test_gc_and_its_dry_run_on_the_command_line(store: LocalStore) -> None:
    def said(*arguments: str) -> str:
        done = CliRunner().invoke(app, [*arguments, "--root", str(store.root)])
        assert done.exit_code == 0, done.output
        return done.output

    left = store.root / "tmp" / "left"
    left.mkdir()
    age(store)
    before = files(store)
    assert "superseded" in said("gc", "--dry-run", "--keep-checkpoints", "1")
    assert files(store) == before and left.exists()
    answer = json.loads(said("gc", "--json", "--keep-checkpoints", "1"))
    assert answer["dry_run"] is False and answer["kinds"]["weights"]["count"] == 12
    assert not left.exists()
    assert "0 files and folders" in said("gc")
    assert "12 updates of run run-a" in said("gc", "--restore", "run-a")
    assert "run-a: " in said("compact", "run-a")
    assert json.loads(said("compact", "--json"))["run-a"]["merged"] == 0
    shutil.rmtree(store.root)
