"""Verification of a whole store.

Invariants: a store made by the writers is whole; 100 random single-bit flips anywhere in it are all
found, with the file's name and what refers to it; so are truncated and missing files; unknown files
are listed and are not damage; each remedy repairs its damage; verifying changes nothing.
"""

from __future__ import annotations

import json
import random
import shutil
from datetime import UTC, datetime
from pathlib import Path

import pytest

from flows.cli.upkeep import verified as show
from genenv_core.storage import paths
from genenv_core.storage.records.artifacts import Artifacts, ArtifactWriter
from genenv_core.storage.records.foreign import ForeignWeights, note_foreign
from genenv_core.storage.records.labels import change_labels, change_of
from genenv_core.storage.records.manifest import Manifest, Part, Shard
from genenv_core.storage.records.origins import Origin, note_origin
from genenv_core.storage.records.retention import RetiredWeights
from genenv_core.storage.records.runs import TRACKED, RunLog
from genenv_core.storage.store.leases import Leases
from genenv_core.storage.store.local import LocalStore
from genenv_core.storage.upkeep.compaction import compact
from genenv_core.storage.upkeep.verify import (
    AGAIN,
    FOLDERS,
    LAID_OUT,
    NOTED,
    UNUSED,
    Damage,
    Use,
    VerifyReport,
    verify,
)
from tests.mutations import mutation
from tests.unit.builders_runs import attempt_at
from tests.unit.builders_tables import sample_frame

VERIFY = "genenv_core/storage/upkeep/verify.py"

NOW = datetime(2026, 11, 1, 12, 0, tzinfo=UTC)
UPDATE, ROLLOUT, LEASED, PUBLISHED = "a" * 64, "b" * 64, "c" * 64, "d" * 64


def write_update(store: LocalStore) -> Manifest:
    """Commit an update: a table and a checkpoint, laid out."""
    writer = ArtifactWriter(store, "grpo_update", {"seed": 0}, UPDATE)
    writer.table("update_samples", sample_frame("update_samples"))
    folder = store.scratch()
    for name in ("model.safetensors", "config.json"):
        (folder / name).write_bytes(name.encode() * 50)
    writer.checkpoint("agent", folder)
    shutil.rmtree(folder)
    manifest, _ = writer.commit({"steps": 2})
    Artifacts(store).checkpoint(manifest, "agent")
    return manifest


def write_shard(store: LocalStore) -> Part:
    """Write the first shard of an unfinished stage."""
    writer = ArtifactWriter(store, "rollout", {"seed": 0}, ROLLOUT)
    part = writer.written("scores", sample_frame("scores"), "scores/00000.parquet")
    store.create(paths.shard("rollout", ROLLOUT, 0), Shard(parts=(part,)).to_bytes())
    return part


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    """A small store from the real writers, with every kind of file in it."""
    store = LocalStore(tmp_path / "root")
    write_update(store)
    write_shard(store)
    log = RunLog(store, "run-a")
    log.open({"epochs": 2}, NOW)
    log.note_key(1, "grpo_update", UPDATE)
    log.note_key(1, TRACKED, UPDATE)
    begun = log.begin(attempt_at("run-a", 1, "grpo_update", UPDATE))
    log.end(begun.model_copy(update={"state": "computed", "seconds": 1.0}))
    with Leases(store).hold("pool", LEASED, lambda: None):
        lease = store.read(paths.lease("pool", LEASED))
    store.create(paths.lease("pool", LEASED), lease)  # as a killed process leaves it
    store.create("runs/run-a/run.log", b"a line\n")
    write_collected(store)
    return store


def write_collected(store: LocalStore) -> None:
    """Write an update with collected weights, and an epoch with merged history."""
    writer = ArtifactWriter(store, "rwr_update", {"seed": 0}, UPDATE)
    folder = store.scratch()
    (folder / "model.safetensors").write_bytes(b"collected")
    writer.checkpoint("env", folder)
    shutil.rmtree(folder)
    manifest, _ = writer.commit({})
    values = {"stage": "rwr_update", "key": UPDATE, "parts": manifest.parts, "kept_epochs": 1}
    note = RetiredWeights.model_validate({**values, "at": NOW})
    store.create(paths.retired("rwr_update", UPDATE), note.to_bytes())
    store.delete(manifest.parts[0].path)
    ArtifactWriter(store, "publish", {}, PUBLISHED).commit({})
    origin = {"stage": "rwr_update", "key": UPDATE, "run_id": "run-a", "host": "h"}
    note_origin(store, Origin.model_validate({**origin, "started_at": NOW}))
    note_foreign(
        store,
        ForeignWeights(stage="rwr_update", key=UPDATE, parts=manifest.parts, root="/x", at=NOW),
    )
    change_labels(store, "run-b", change_of(["baseline"]))
    log = RunLog(store, "run-b")
    log.open({"epochs": 0}, NOW)
    log.note_key(0, "publish", PUBLISHED)
    compact(store, "run-b")


def files(store: LocalStore) -> list[str]:
    listed = [path for folder in FOLDERS for path in store.list(folder)]
    return [path for path in listed if not path.endswith(".log")]


def of(report: VerifyReport, path: str) -> Damage:
    return next(damage for damage in report.damaged if damage.path == path)


def test_a_whole_store_is_whole(store: LocalStore) -> None:
    before = {path: store.read(path) for path in files(store)}
    progress: list[tuple[int, int]] = []
    report = verify(store, lambda done, total: progress.append((done, total)))
    assert (report.damaged, report.unknown) == ([], [])
    assert report.files == len(before) == 21
    assert report.bytes == sum(map(len, before.values()))
    assert progress[-1] == (report.bytes, report.bytes)
    assert {path: store.read(path) for path in files(store)} == before
    assert verify(LocalStore(store.root / "empty")) == VerifyReport()


@mutation("a changed part is sound", VERIFY, "if found not in (name, None):", "if found == '':")
@pytest.mark.slow
def test_a_hundred_random_flips_are_all_found_and_named(store: LocalStore) -> None:
    rng = random.Random(3)
    listed = files(store)
    folders: set[str] = set()
    for _ in range(100):
        path = rng.choice(listed)
        data = store.read(path)
        position = rng.randrange(len(data) * 8)
        flipped = bytearray(data)
        flipped[position // 8] ^= 1 << position % 8
        # In place, so that a laid-out checkpoint stays the part's hard link.
        (store.root / path).chmod(0o644)
        (store.root / path).write_bytes(flipped)
        damage = of(verify(store), path)
        assert damage.problem and damage.remedy
        if not path.startswith("runs/"):
            assert damage.named_by, path
        (store.root / path).write_bytes(data)
        folders.add(path.split("/")[0])
    assert folders == set(FOLDERS)
    assert verify(store).damaged == []


def test_a_damaged_part_names_its_stage_run_and_epoch(store: LocalStore) -> None:
    part = Artifacts(store).find("grpo_update", UPDATE).of_table("update_samples")[0]  # type: ignore[union-attr]
    store.replace(part.path, store.read(part.path)[:-1])
    damage = of(verify(store), part.path)
    assert damage.named_by == (Use("grpo_update", UPDATE, "run-a", 1),)
    assert str(damage.named_by[0]) == "stage grpo_update key aaaaaaaaaaaa (run run-a epoch 1)"
    assert damage.remedy == AGAIN
    write_update(store)
    assert verify(store).damaged == []


@mutation(
    "a run may lack its configuration",
    VERIFY,
    "paths.run_config(use.run): NOTED for use in uses",
    "paths.run_config(use.run): NOTED for use in uses[:0]",
)
def test_what_is_missing_is_found(store: LocalStore) -> None:
    shard = write_shard_part(store)
    for path, use, remedy in (
        (paths.manifest("grpo_update", UPDATE), Use("grpo_update", UPDATE, "run-a", 1), AGAIN),
        (shard, Use("rollout", ROLLOUT), AGAIN),
        (paths.run_config("run-a"), None, NOTED),
    ):
        data = store.read(path)
        store.delete(path)
        (damage,) = verify(store).damaged
        assert (damage.path, damage.problem, damage.remedy) == (path, "it is missing", remedy)
        assert damage.named_by == ((use,) if use else ())
        store.replace(path, data)
    assert verify(store).damaged == []


def write_shard_part(store: LocalStore) -> str:
    return Shard.from_bytes(store.read(paths.shard("rollout", ROLLOUT, 0))).parts[0].path


@mutation(
    "a manifest may lie anywhere",
    VERIFY,
    "paths.manifest(record.stage, record.key) != path:",
    "record.key not in path:",
)
def test_a_record_in_another_ones_place_is_found(store: LocalStore) -> None:
    here, there = paths.manifest("grpo_update", UPDATE), paths.manifest("score", UPDATE)
    store.create(there, store.read(here))
    (damage,) = verify(store).damaged
    assert damage.path == there
    assert "it is the manifest of stage grpo_update" in damage.problem


@mutation(
    "an altered checkpoint is sound",
    VERIFY,
    "elif files[path] != part.sha256:",
    "elif not files[path]:",
)
def test_a_checkpoint_that_was_copied_is_compared_with_its_parts(store: LocalStore) -> None:
    digest = Artifacts(store).find("grpo_update", UPDATE).checkpoints["agent"]  # type: ignore[union-attr]
    folder = store.root / paths.checkpoint(digest)
    altered, lost = folder / "config.json", folder / "model.safetensors"
    altered.unlink()
    altered.write_bytes(b"{}")
    lost.unlink()
    (folder / "notes.txt").write_text("mine", encoding="utf-8")
    report = verify(store)
    assert {damage.path: damage.problem.split()[1] for damage in report.damaged} == {
        str(altered.relative_to(store.root)): "differs",
        str(lost.relative_to(store.root)): "is",
    }
    assert {damage.remedy for damage in report.damaged} == {LAID_OUT}
    assert report.damaged[0].named_by == (Use("grpo_update", UPDATE, "run-a", 1),)
    assert report.unknown == [str((folder / "notes.txt").relative_to(store.root))]
    shutil.rmtree(folder)
    assert verify(store).damaged == []
    store.create(f"checkpoints/{'0' * 64}/config.json", b"{}")  # of no manifest
    assert [d.path for d in verify(store).damaged] == [f"checkpoints/{'0' * 64}"]


@mutation("an unused shard is computed again", VERIFY, "(problem, UNUSED)", "(problem, AGAIN)")
def test_damage_in_unused_files_says_that_they_are_unused(store: LocalStore) -> None:
    writer = ArtifactWriter(store, "rollout", {"seed": 0}, ROLLOUT)
    writer.adopt(Shard.from_bytes(store.read(paths.shard("rollout", ROLLOUT, 0))).parts)
    writer.commit({})
    store.replace(paths.shard("rollout", ROLLOUT, 0), b"{}")
    store.create(f"parts/00/{'0' * 64}.parquet", b"not that")
    remedies = {damage.path: damage.remedy for damage in verify(store).damaged}
    assert remedies == {
        paths.shard("rollout", ROLLOUT, 0): UNUSED,
        f"parts/00/{'0' * 64}.parquet": UNUSED,
    }


@mutation(
    "unknown files are not told", VERIFY, "            self._report.unknown.append(path)\n", ""
)
def test_unknown_files_are_listed_and_are_no_damage(store: LocalStore) -> None:
    for path in ("parts/readme.txt", "stages/rollout/old/x.json", "runs/run-a/notes"):
        store.create(path, b"")
    store.create("prefect/prefect.db", b"")
    report = verify(store)
    assert report.damaged == []
    assert sorted(report.unknown) == [
        "parts/readme.txt",
        "runs/run-a/notes",
        "stages/rollout/old/x.json",
    ]


def test_a_file_that_goes_away_meanwhile_is_no_damage(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = paths.lease("pool", LEASED)
    listed = store.list

    def stale(prefix: str) -> list[str]:
        return listed(prefix) + ([gone] if prefix == "leases" else [])

    store.delete(gone)
    monkeypatch.setattr(store, "list", stale)
    assert verify(store).damaged == []


def test_the_command_prints_what_to_do(
    store: LocalStore, capsys: pytest.CaptureFixture[str]
) -> None:
    assert show(store, as_json=False) is True
    assert "0 damaged, 0 unknown" in capsys.readouterr().out
    path = paths.manifest("grpo_update", UPDATE)
    store.replace(path, b"{}")
    assert show(store, as_json=False) is False
    out = capsys.readouterr().out
    for words in (path, "it is no sealed record", "run run-a epoch 1", AGAIN, "not read: Prefect"):
        assert words in out
    assert show(store, as_json=True) is False
    (damage,) = json.loads(capsys.readouterr().out)["damaged"]
    assert damage["path"] == path and damage["remedy"] == AGAIN
    assert damage["named_by"] == [
        {"stage": "grpo_update", "key": UPDATE, "run": "run-a", "epoch": 1}
    ]
