"""What a branch takes over, and its record.

Invariants: a run that is not there, or has not finished the epoch, is refused with what there is;
the record is written once, and what it names stays when the other run goes on, is dropped or
collected, and in a copy; a run that began otherwise becomes no branch; epochs that do not follow
from each other are refused; a damaged record is never taken for a run of its own, except where
people only look.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

import pytest

from flows.preparing import prepare
from genenv_core.config.branching import BranchPoint
from genenv_core.config.load import resolve
from genenv_core.config.run_options import RunOptions
from genenv_core.config.stages import EPOCH_STAGES, START_STAGES, WARM, StageEntry
from genenv_core.config.until import Until
from genenv_core.errors import ConfigError, IntegrityError
from genenv_core.storage import paths
from genenv_core.storage.records import branches
from genenv_core.storage.records.artifacts import Artifacts, ArtifactWriter
from genenv_core.storage.records.branches import (
    Branch,
    branch_off,
    find_branch,
    note_branch,
    origin_of,
    read_branch,
    taken_over,
)
from genenv_core.storage.records.draws import force_draw, read_draws
from genenv_core.storage.records.runs import RunLog
from genenv_core.storage.sql.catalog import query
from genenv_core.storage.sql.sources import open_tables
from genenv_core.storage.store.local import LocalStore
from genenv_core.storage.upkeep.collected import CollectionRule
from genenv_core.storage.upkeep.copying import copy_run
from genenv_core.storage.upkeep.gc import collect
from genenv_core.storage.upkeep.verify import BRANCH, verify
from tests.mutations import mutation
from tests.unit.builders_runs import (
    START,
    age,
    key_of,
    open_run,
    without_fsync,
    write_epoch,
    write_stage,
)

PREPARING = "flows/preparing.py"
BRANCHES = "genenv_core/storage/records/branches.py"

NOW = datetime(2026, 11, 21, tzinfo=UTC)
POINT = BranchPoint(run_id="run-a", epoch=1)
CONFIG = resolve("quickstart", fields={"run_id": "run-b", "epochs": 2})


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    """Return a store with a run of two epochs, each stage of the start included."""
    store = LocalStore(tmp_path / "root")
    with without_fsync():
        open_run(store, "run-a", 2)
        for epoch in range(3):
            write_epoch(store, "run-a", epoch, weights=True, facts={"is_best": False})
        key = write_stage(store, "evaluate", 0, tables={}).key
        RunLog(store, "run-a").note_key(0, "evaluate", key)
    return store


def noted(store: LocalStore) -> Branch:
    """Branch run-b off, as a run does."""
    branch = find_branch(store, CONFIG, POINT)
    assert branch is not None and read_branch(store, "run-b") is None
    note_branch(store, "run-b", branch)
    return branch


@mutation(
    "a branch follows what the other run becomes", BRANCHES,
    "if noted is not None and point in (None, noted.point):",
    "if noted is not None and point is None:",
)  # fmt: skip
@pytest.mark.slow
def test_it_is_noted_once_and_the_other_run_may_go_on(store: LocalStore) -> None:
    branch = noted(store)
    log = RunLog(store, "run-a")
    assert [set(keys) for keys in branch.epochs] == [set(START_STAGES), set(EPOCH_STAGES)]
    assert branch.epochs == (log.keys(0), log.keys(1))
    write_epoch(store, "run-a", 1, variant=1)
    again = find_branch(store, CONFIG, POINT)
    assert again == branch == note_branch(store, "run-b", branch_off(store, POINT))
    assert find_branch(store, CONFIG, None) == branch  # resumed
    with pytest.raises(ConfigError, match="run-b is a branch of run run-a at epoch 1"):
        find_branch(store, CONFIG, BranchPoint(run_id="run-a", epoch=0))


@pytest.mark.parametrize(
    ("point", "words"),
    [
        ("nobody@1", "there is no run 'nobody' here; known: run-a"),
        ("run-a@3", "has not finished epoch 3; of its finished epochs the last one is 2"),
        ("run-b@0", "needs a name of its own"),
    ],
)
def test_what_is_not_there_is_refused(store: LocalStore, point: str, words: str) -> None:
    run, _, epoch = point.partition("@")
    with pytest.raises(ConfigError, match=words):
        find_branch(store, CONFIG, BranchPoint(run_id=run, epoch=int(epoch)))


@mutation(
    "a run may branch off from an epoch that is not finished", BRANCHES,
    "    if missing:\n", "    if not keys:\n",
)  # fmt: skip
def test_an_epoch_that_was_begun_is_not_finished(store: LocalStore) -> None:
    open_run(store, "run-c", 2)
    write_epoch(store, "run-c", 0, stages=["bootstrap"])
    with pytest.raises(ConfigError, match=r"has not finished epoch 0; .* it has none"):
        branch_off(store, BranchPoint(run_id="run-c", epoch=0))


@mutation(
    "a finished epoch of other stages is called not finished", BRANCHES,
    "if missing and LAST in keys:", "if False:",
)  # fmt: skip
@pytest.mark.parametrize("epoch", [0, 1])
def test_a_finished_epoch_of_an_older_genenv_is_refused_by_the_stage_that_it_lacks(
    epoch: int, store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    later = StageEntry("weigh", "weigh", "a stage of tomorrow", at_start=True)
    known = list(branches.STAGES.items())
    monkeypatch.setattr(branches, "STAGES", dict([*known[:-2], ("weigh", later), *known[-2:]]))
    name = "EPOCH_STAGES" if epoch else "START_STAGES"
    monkeypatch.setattr(branches, name, (*getattr(branches, name), "weigh"))
    words = f"epoch {epoch} of the run was made by an older genenv, which had no weigh in it: "
    with pytest.raises(ConfigError, match=f"{words}`genenv resume run-a` computes what is missing"):
        branch_off(store, POINT)


@mutation(
    "a stage that a newer genenv added is left behind", BRANCHES,
    "if unknown := sorted(keys.keys() - STAGES.keys()):", "if unknown := '':",
)  # fmt: skip
def test_an_epoch_of_a_newer_genenv_is_refused(store: LocalStore) -> None:
    RunLog(store, "run-a").note_key(1, "weigh", "k" * 64)
    with pytest.raises(ConfigError, match="epoch 1 of the run has weigh, which this genenv does"):
        branch_off(store, POINT)
    assert branch_off(store, BranchPoint(run_id="run-a", epoch=0)).epoch == 0


def test_a_run_of_before_the_warm_start_is_taken_over(store: LocalStore) -> None:
    assert WARM not in branch_off(store, POINT).epochs[0]


def test_settings_are_compared_also_when_the_other_run_is_gone(store: LocalStore) -> None:
    other = CONFIG.model_copy(update={"domain": CONFIG.domain.model_copy(update={"name": "x"})})
    with pytest.raises(ConfigError, match=r"domain\.name is desk there and x here"):
        find_branch(store, other, POINT)
    branch = noted(store)
    RunLog(store, "run-b").open(RunLog(store, "run-a").info().config, START)
    store.delete_folder(paths.run("run-a"))
    assert find_branch(store, CONFIG, POINT) == branch
    for point in (POINT, None):
        with pytest.raises(ConfigError, match=r"domain\.name is desk there and x here"):
            find_branch(store, other, point)


def test_a_run_that_began_by_itself_becomes_no_branch(store: LocalStore) -> None:
    branch = noted(store)
    for epoch, keys in enumerate(branch.epochs):
        for stage, key in keys.items():
            RunLog(store, "run-b").note_key(epoch, stage, key)
    store.delete(paths.run_branch("run-b"))  # as after damage
    assert find_branch(store, CONFIG, POINT) == branch
    RunLog(store, "run-b").note_key(1, "rollout", key_of("rollout", 1, 1))
    with pytest.raises(ConfigError, match="run-b has begun by itself"):
        find_branch(store, CONFIG, POINT)


def test_later_draws_are_taken_along_and_earlier_ones_are_in_what_is_stored(
    store: LocalStore,
) -> None:
    force_draw(store, "run-a", "rollout", 1)
    force_draw(store, "run-a", "rollout", 2)
    assert noted(store).draws == {"rollout@2": 1}
    assert read_draws(store, "run-b").numbers == {"rollout@2": 1}
    assert read_draws(store, "run-b").open == ()


@mutation(
    "gc takes what a branch has not noted yet", "genenv_core/storage/upkeep/gc.py",
    "enumerate(branch.epochs if branch else ())", "enumerate(())",
)  # fmt: skip
@mutation(
    "a copy of a branch has lost what it takes over", "genenv_core/storage/upkeep/copying.py",
    "note_branch(self._target, self._run.run_id, branch)", "pass",
)  # fmt: skip
def test_gc_and_a_copy_keep_what_it_names_without_the_other_run(
    store: LocalStore, tmp_path: Path
) -> None:
    branch = noted(store)  # killed before it noted a stage
    age(store)
    collect(store, CollectionRule(keep=1, drop_run="run-a"), NOW, dry_run=False)
    artifacts = Artifacts(store)
    for keys in branch.epochs:
        for stage, key in keys.items():
            assert artifacts.find(stage, key) is not None
    assert artifacts.find("rollout", key_of("rollout", 2)) is None
    for stage, policy in (("grpo_update", "agent"), ("rwr_update", "env")):
        manifest = artifacts.find(stage, branch.epochs[1][stage])
        assert manifest and artifacts.checkpoint(manifest, policy).is_dir()
    log = RunLog(store, "run-b")
    log.open({**RunLog(store, "run-b").keys(9), "epochs": 2, "arm": "genenv", "seed": 0}, START)
    for epoch, keys in enumerate(branch.epochs):
        for stage, key in keys.items():
            log.note_key(epoch, stage, key)
    target = LocalStore(tmp_path / "copy")
    copy_run(store, target, "run-b")
    assert read_branch(target, "run-b") == branch
    assert (verify(target).damaged, verify(target).unknown) == ([], [])


@pytest.mark.slow
def test_the_table_of_runs_says_where_a_run_branches_off(store: LocalStore) -> None:
    noted(store)
    RunLog(store, "run-b").open(RunLog(store, "run-a").info().config, START)
    with open_tables(store, tables=["runs"]) as connection:
        rows = query(connection, "SELECT run_id, branch_of, branch_epoch FROM runs ORDER BY 1")
    assert rows.rows() == [("run-a", None, None), ("run-b", "run-a", 1)]


def test_damage_is_not_taken_for_a_run_of_its_own(store: LocalStore) -> None:
    noted(store)
    path = store.root / paths.run_branch("run-b")
    path.write_bytes(path.read_bytes().replace(b'"epoch": 1', b'"epoch": 0'))
    with pytest.raises(IntegrityError, match="what run run-b has taken over is unknown"):
        find_branch(store, CONFIG, None)
    assert origin_of(store, "run-b") is None
    assert [damage.remedy for damage in verify(store).damaged] == [BRANCH]


def _history(store: LocalStore, inputs: Mapping[str, str]) -> Branch:
    """Return a branch of one epoch whose stages have read these digests, one stage the next."""
    epochs: list[dict[str, str]] = []
    before = ""
    for epoch, stages in enumerate((START_STAGES, EPOCH_STAGES)):
        keys: dict[str, str] = {}
        for stage in stages:
            key = key_of(stage, epoch)
            read = {"before": before}
            if stage == "rollout":
                read["agent"] = f"{inputs['agent']}@0"
            writer = ArtifactWriter(store, stage, {"inputs": read}, key)
            if stage == "bootstrap":
                folder = store.scratch()
                (folder / "model.safetensors").write_bytes(b"weights")
                writer.checkpoint("agent", folder)
            manifest, _ = writer.commit({"of": f"{stage} {epoch}"})
            keys[stage] = key
            before = inputs.get(stage, manifest.digest)
            if stage == "bootstrap" and not inputs["agent"]:
                inputs = {**inputs, "agent": manifest.checkpoints["agent"]}
        epochs.append(keys)
    return Branch(run_id="run-c", epoch=1, epochs=tuple(epochs))


@mutation(
    "epochs of several configurations are taken for one", BRANCHES,
    "    _check_history(branch.point, found)\n", "",
)  # fmt: skip
@pytest.mark.parametrize(
    ("inputs", "stage"),
    [({"agent": "", "score": "old"}, "score"), ({"agent": "other"}, "rollout")],
)
def test_epochs_that_do_not_follow_from_each_other_are_refused(
    tmp_path: Path, inputs: dict[str, str], stage: str
) -> None:
    whole = LocalStore(tmp_path / "whole")
    found = taken_over(Artifacts(whole), _history(whole, {"agent": ""}))
    assert [set(one) for one in found] == [set(START_STAGES), set(EPOCH_STAGES)]
    mixed = LocalStore(tmp_path / "mixed")
    with pytest.raises(ConfigError, match=f"epoch 1 of the run is not of one piece: {stage} was"):
        taken_over(Artifacts(mixed), _history(mixed, inputs))


def test_an_output_that_is_gone_is_named(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    branch = _history(store, {"agent": ""})
    store.delete(paths.manifest("score", branch.epochs[1]["score"]))
    with pytest.raises(IntegrityError, match=r"score of epoch 1.*`genenv resume run-c` computes"):
        taken_over(Artifacts(store), branch)


@mutation("a run may end in what it takes over", PREPARING,
          'branch.point.check_later(options.until, option("until"))', "pass")  # fmt: skip
@mutation("what is taken over may be drawn anew", PREPARING,
          'branch.point.check_later(options.force, option("force"))', "pass")  # fmt: skip
def test_what_is_taken_over_is_not_drawn_anew(store: LocalStore) -> None:
    branch = noted(store)
    config = CONFIG.model_copy(update={"root": store.uri})
    later = RunOptions(until=Until(stage="pool", epoch=2))
    assert prepare(config, later, computes=False).branch == branch
    end = RunOptions(until=Until(stage="publish", epoch=1))
    with pytest.raises(ConfigError, match="--until publish@1: epoch 1 is taken over"):
        prepare(config, end, computes=False)
    draw = RunOptions(force=Until(stage="rollout", epoch=1), said_in="request.")
    with pytest.raises(ConfigError, match=r"request\.force rollout@1: epoch 1 is taken over"):
        prepare(config, draw, computes=False)
