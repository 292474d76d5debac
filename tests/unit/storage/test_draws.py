"""Further draws of a stage.

Invariants: a draw is repeated until the run has come to its end, then another one follows; the
outputs that it replaces are named, so gc and a copy keep them; a stage that was never finished has
no draw to follow; a damaged record is never taken for the first draws; the first draw is in no key.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from genenv_core.config.load import resolve
from genenv_core.config.until import Until, read_forced
from genenv_core.errors import ConfigError, IntegrityError
from genenv_core.storage import paths
from genenv_core.storage.records.artifacts import Artifacts
from genenv_core.storage.records.draws import close_draws, force_draw, next_draws, read_draws
from genenv_core.storage.records.runs import RunLog
from genenv_core.storage.store.local import LocalStore
from genenv_core.storage.upkeep.collected import CollectionRule
from genenv_core.storage.upkeep.copying import copy_run
from genenv_core.storage.upkeep.gc import collect
from genenv_core.storage.upkeep.verify import DRAWS, verify
from tasks.stage.key import parts_of
from tests.mutations import mutation
from tests.unit.builders_runs import age, key_of, without_fsync, write_epoch, write_run
from tests.unit.builders_stage import NO_INPUTS
from tests.unit.config.test_what_changes_a_key import STAGES as BY_NAME

NOW = datetime(2026, 11, 21, tzinfo=UTC)


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    store = LocalStore(tmp_path / "root")
    with without_fsync():
        write_run(store, "run-a", 2, weights=True)
    return store


@mutation(
    "a crash in a forced draw makes another draw", "genenv_core/storage/records/draws.py",
    "if name in self.open:", "if False:",
)  # fmt: skip
def test_a_draw_is_repeated_until_the_run_has_ended(store: LocalStore) -> None:
    first = next_draws(store, "run-a", "rollout", 1)
    assert first.number("rollout", 1) == 1 and read_draws(store, "run-a").numbers == {}
    for _ in range(2):  # the command, and again after a crash
        assert force_draw(store, "run-a", "rollout", 1) == first
    close_draws(store, "run-a")
    assert force_draw(store, "run-a", "rollout", 1).numbers == {"rollout@1": 2}
    assert force_draw(store, "run-a", "grpo_update", 2).numbers == {
        "rollout@1": 2,
        "grpo_update@2": 1,
    }


def test_what_follows_is_kept_and_what_comes_before_is_not_named(store: LocalStore) -> None:
    kept = force_draw(store, "run-a", "grpo_update", 2).kept
    expected = ("grpo_update", "rwr_update", "evaluate", "publish")
    assert set(kept) == {(stage, key_of(stage, 2)) for stage in expected}


def test_what_a_newer_genenv_made_of_a_draw_is_kept(store: LocalStore) -> None:
    RunLog(store, "run-a").note_key(1, "weigh", "k" * 64)
    assert ("weigh", "k" * 64) in force_draw(store, "run-a", "rollout", 1).kept


def test_a_stage_without_a_first_draw_is_refused(store: LocalStore) -> None:
    with pytest.raises(ConfigError, match="has not finished rollout of epoch 3"):
        force_draw(store, "run-a", "rollout", 3)


@pytest.mark.parametrize(
    ("text", "words"),
    [("score@1", "score draws nothing"), ("rollout@9", "ends with epoch"), ("x", "no stage")],
)
def test_what_cannot_be_drawn_is_refused(text: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        read_forced(text, resolve("tiny"))
    assert read_forced("rollout@1", resolve("tiny")) == Until(stage="rollout", epoch=1)


def test_a_set_is_drawn_where_it_is_made() -> None:
    config = resolve("tiny", overrides=["arm=static"])
    with pytest.raises(ConfigError, match="name generate_tasks@1"):
        read_forced("generate_tasks@2", config)


@mutation(
    "gc takes the outputs of an earlier draw", "genenv_core/storage/upkeep/gc.py",
    "_outputs(runs) | unfinished | earlier)", "_outputs(runs) | unfinished)",
)  # fmt: skip
@pytest.mark.slow
def test_gc_and_a_copy_keep_the_earlier_outputs(store: LocalStore, tmp_path: Path) -> None:
    force_draw(store, "run-a", "generate_tasks", 2)
    write_epoch(store, "run-a", 2, variant=1)
    age(store)
    collect(store, CollectionRule(), NOW, dry_run=False)
    copy_run(store, LocalStore(tmp_path / "copy"), "run-a")
    for there in (store, LocalStore(tmp_path / "copy")):
        assert Artifacts(there).find("rollout", key_of("rollout", 2)) is not None
        assert RunLog(there, "run-a").keys(2)["rollout"] == key_of("rollout", 2, 1)
        assert read_draws(there, "run-a") == read_draws(store, "run-a")
        assert (verify(there).damaged, verify(there).unknown) == ([], [])


def test_damage_is_not_taken_for_the_first_draws(store: LocalStore) -> None:
    force_draw(store, "run-a", "rollout", 1)
    path = store.root / paths.run_draws("run-a")
    path.write_bytes(path.read_bytes().replace(b'"rollout@1": 1', b'"rollout@1": 2'))
    with pytest.raises(IntegrityError, match="delete the file to go on with the first ones"):
        read_draws(store, "run-a")
    assert [damage.remedy for damage in verify(store).damaged] == [DRAWS]


def test_only_a_further_draw_is_in_a_key() -> None:
    stage, config = BY_NAME["rollout"], resolve("tiny")
    first = parts_of(stage, config, 1, NO_INPUTS)
    assert "draw" not in first
    assert parts_of(stage, config, 1, NO_INPUTS, draw=2) == {**first, "draw": 2}
