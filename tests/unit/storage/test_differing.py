"""How two runs differ.

Invariants: the first stage is that of the run's order, with the changed parts of its key; files
that people give, code and versions are told apart from settings; equal stages count as equal; a
result is compared at the last epoch that both have.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from flows.cli.app import app
from genenv_core.config.moved import ONE_CLASS
from genenv_core.storage import paths
from genenv_core.storage.records.artifacts import ArtifactWriter
from genenv_core.storage.records.differing import GONE, differing
from genenv_core.storage.records.keys import key_parts, stage_key
from genenv_core.storage.records.runs import RunLog
from genenv_core.storage.store.local import LocalStore
from tests.mutations import mutation
from tests.unit.builders_root import START, small_root

BEFORE: dict[str, Any] = {
    "bootstrap": {"inputs": {"base_file": "aa", "agent_model": "bb"}},
    "rollout": {"config": {"rollout.n": 8}, "runtime": {"torch": "2.13.0"}},
    "score": {"inputs": {"traces": "cc"}},
}


def play(store: LocalStore, run: str, changes: dict[str, Any], rollouts: int = 8) -> None:
    """Commit the stages of `BEFORE` with changed parts of their keys."""
    log = RunLog(store, run)
    config = {"arm": "genenv", "domain": {"name": "desk"}, "seed": 0, "epochs": 1}
    log.open({**config, "root": run, "rollout": {"n": rollouts}}, START)
    for stage, known in BEFORE.items():
        given = {"code": "v1", "config": {}, "inputs": {}, "runtime": {}, **known}
        given |= changes.get(stage, {})
        epoch = 0 if stage == "bootstrap" else 1
        parts = key_parts(stage=stage, seed=0, epoch=epoch, **given)
        ArtifactWriter(store, stage, parts, stage_key(parts)).commit({})
        log.note_key(epoch, stage, stage_key(parts))


def test_equal_runs_differ_in_nothing(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    play(store, "a", {})
    play(store, "b", {})
    found = differing(store, "a", "b")
    assert (found.first, found.same, found.compared, found.only) == (None, 3, 3, (0, 0))
    assert not (found.configuration or found.data or found.code or found.versions)


OLDER = {"data": {"offline_file": "t.jsonl"}, "teacher": {**ONE_CLASS}}
NEWER = {"data": {}, "teacher": {"file": "t.jsonl"}}


@mutation(
    "a moved field is a difference of two runs", "genenv_core/storage/records/differing.py",
    "in as_now(config).items()", "in config.items()",
)  # fmt: skip
def test_a_field_that_moved_between_two_runs_is_no_difference(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    for run, sections in (("a", OLDER), ("b", NEWER)):
        play(store, run, {})
        log = RunLog(store, run)
        log.open({**log.info().config, **sections}, START)
    assert differing(store, "a", "b").configuration == ()


@mutation(
    "the first difference is any", "genenv_core/storage/records/differing.py",
    "return place[0], place_of(place[1])",
    "return place[0], -place_of(place[1])",
)  # fmt: skip
def test_each_part_of_a_key_is_told_by_its_kind(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    play(store, "a", {})
    changes = {
        "score": {"code": "v2", "inputs": {"traces": "dd"}},
        "rollout": {"config": {"rollout.n": 4}, "runtime": {"torch": "2.14.0"}},
    }
    play(store, "b", changes, rollouts=4)
    found = differing(store, "a", "b")
    assert found.configuration == ("rollout.n 8 -> 4",)
    assert (found.data, found.code, found.versions) == (
        (),
        ("score v1 -> v2",),
        ("torch 2.13.0 -> 2.14.0",),
    )
    assert found.first is not None
    assert (found.first.epoch, found.first.stage, found.same) == (1, "rollout", 1)
    reasons = ("config.rollout.n 8 -> 4", "runtime.torch 2.13.0 -> 2.14.0")
    assert found.first.reasons == reasons


@mutation(
    "a stage of a newer genenv ends a comparison", "genenv_core/storage/records/runs.py",
    "if stage in STAGES else len(STAGES)", "if True else len(STAGES)",
)  # fmt: skip
def test_a_stage_of_a_newer_genenv_comes_last(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    for run in "ab":
        play(store, run, {})
        RunLog(store, run).note_key(1, "weigh", run * 64)
    found = differing(store, "a", "b").first
    assert found is not None and (found.stage, found.epoch) == ("weigh", 1)


def test_another_file_is_data(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    play(store, "a", {})
    play(store, "b", {"bootstrap": {"inputs": {"base_file": "ee", "agent_model": "bb"}}})
    found = differing(store, "a", "b")
    assert found.data == ("base_file aa -> ee",)
    assert found.first is not None and found.first.stage == "bootstrap"


def test_a_lost_manifest_is_said(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    play(store, "a", {})
    play(store, "b", {"rollout": {"code": "v2"}})
    store.delete(paths.manifest("rollout", RunLog(store, "a").keys(1)["rollout"]))
    found = differing(store, "a", "b")
    assert found.first is not None and found.first.reasons == (GONE,)


@pytest.mark.slow
def test_results_are_those_of_the_last_shared_epoch(tmp_path: Path) -> None:
    store = small_root(tmp_path, "run-a", epochs=2)
    small_root(tmp_path, "run-b", epochs=1)
    arguments = ["diff", "run-a", "run-b", "--root", str(tmp_path)]
    told = json.loads(CliRunner().invoke(app, [*arguments, "--json"]).output)
    assert told["epoch"] == 1 and told["results"]["heldout_success"] == [0.5, 0.5]
    assert told["only"] == [1, 0] and told["configuration"] == ["epochs 2 -> 1"]
    shown = CliRunner().invoke(app, arguments).output
    assert "results of epoch 1" in shown and "1 only the first has" in shown
    assert store.names(paths.runs()) == ["run-a", "run-b"]
