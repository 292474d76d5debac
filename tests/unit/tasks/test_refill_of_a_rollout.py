"""The stage `rollout` with a refill, with a player that needs no model.

Invariants: the chosen tasks are attempted first, then tasks of the reserve in their order, in
rounds as large as the number of groups that are lacking; a stage that stopped inside a round goes
on with the same rounds and ends with the same rows, and attempts no finished shard again; a shard
that belongs to a round of another size is attempted again; without a refill nothing of it is in the
key.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import tasks.rollout
from genenv_core.config.load import resolve
from genenv_core.config.schema import RunConfig
from genenv_core.epoch.rows import frame
from genenv_core.errors import StageError
from genenv_core.storage.records.artifacts import Artifacts, ArtifactWriter, reference
from genenv_core.storage.records.manifest import ArtifactRef, CheckpointRef
from genenv_core.storage.store.local import LocalStore
from tasks.rollout import STAGE, RolloutInputs, compute
from tasks.stage.execution import run_stage
from tasks.stage.key import parts_of
from tests.mutations import mutation
from tests.unit.builders_stage import NO_INPUTS
from tests.unit.epoch.builders_epoch import Chat, WordsDomain, data, generated, rollout

ROLLOUT = "tasks/rollout.py"
REFILLING = "genenv_core/epoch/attempting/refilling.py"
SHARDS = "tasks/stage/shards.py"

SETTINGS = (
    "generation.candidates=3",
    "rollout.shard_groups=2",
    "rollout.logprob_rows=0",
    "refill.groups=3",
)
WITHOUT = ("refill.groups=0",)
CHOSEN = ("even0", "flat1", "flat2", "flat3")
RESERVE = ("flat4", "even5", "even6", "even7", "even8")


class Answers:
    """Solves half of what is `even`, or as many as `right` says; fails before the group `last`."""

    chat = Chat()

    def __init__(self, last: int | None = None, **right: int) -> None:
        self.right = {word: 2 for word in (*CHOSEN, *RESERVE) if "even" in word} | right
        self.last, self.played = last, list[str]()

    def groups(self, batches: Any, **how: Any) -> Iterator[Any]:
        """Yield groups in task order; wrong answers tell the seed."""
        for index, (name, draft) in enumerate(pair for batch in batches for pair in batch):
            if len(self.played) == self.last:
                raise RuntimeError("as if killed")
            self.played.append(name)
            right = self.right.get(draft.program, 0)
            said = [
                draft.ground_truth if place < right else f"no {how['seed_of'](name, place, 0)}"
                for place in range(how["n"])
            ]
            yield index, [rollout(name, place, text) for place, text in enumerate(said)]


class World:
    """A root with tasks of pi_env, most of them in a reserve; `player` attempts them."""

    def __init__(self, root: Path) -> None:
        self.root, self.player = root, Answers()
        self.bootstrap = self._artifact("bootstrap", data(["base"]))
        rows = [generated(word) for word in CHOSEN]
        # In the table they stand as they were written, not in their turn.
        rows += [
            generated(word, choice="reserve", reserve_place=place)
            for place, word in reversed(list(enumerate(RESERVE)))
        ]
        self.tasks = self._artifact("generate_tasks", frame("tasks", rows))

    def _artifact(self, stage: str, rows: pl.DataFrame) -> ArtifactRef:
        writer = ArtifactWriter(LocalStore(self.root), stage, {}, stage[0] * 64)
        writer.table("tasks", rows)
        return reference(writer.commit({})[0])

    @contextlib.contextmanager
    def sampler(self, *_: Any) -> Generator[Answers]:
        """Yield the player."""
        yield self.player

    def config(self, *overrides: str) -> RunConfig:
        """Return the settings of run x with some overrides."""
        fields = {"root": str(self.root), "run_id": "x"}
        return resolve("tiny", overrides=[*SETTINGS, *overrides], fields=fields)

    def rollout(self, player: Answers, *overrides: str) -> ArtifactRef:
        """Return what the stage makes with a player; overrides as in `config`."""
        self.player = player
        agent = CheckpointRef(artifact=self.bootstrap, name="agent", digest="a", policy_version=0)
        inputs = RolloutInputs(self.tasks, self.bootstrap, agent)
        return run_stage(STAGE, compute, self.config(*overrides), 2, inputs).ref

    def words(self, ref: ArtifactRef) -> list[str]:
        """Return the tasks of the groups in their order."""
        artifacts = Artifacts(LocalStore(self.root))
        traces = artifacts.frame(artifacts.load(ref), "traces")
        groups = traces.unique("group_id", maintain_order=True)
        assert groups["group_id"].is_sorted() and traces.height == 4 * groups.height
        return groups["task_id"].to_list()


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    made = World(tmp_path)
    monkeypatch.setattr(tasks.rollout, "sampler", made.sampler)
    monkeypatch.setattr(tasks.rollout.StageContext, "domain", lambda _: WordsDomain())
    return made


@mutation(
    "what a round attempts is not counted", REFILLING,
    "        count.add(further, *play(further))\n", "        play(further)\n",
)  # fmt: skip
@mutation(
    "each round takes the reserve from its beginning", REFILLING,
    "reserve[taken : taken + size]", "reserve[:size]",
)  # fmt: skip
@mutation(
    "the reserve is taken as it was written", "genenv_core/epoch/attempting/choosing.py",
    'filter(choice=TaskChoice.RESERVE.value).sort("reserve_place")',
    "filter(choice=TaskChoice.RESERVE.value)",
)  # fmt: skip
def test_rounds_of_the_reserve_follow_until_there_are_groups_enough(world: World) -> None:
    """One of four chosen tasks has a signal, so two follow; one of these has; so one follows."""
    made = world.rollout(Answers())
    assert world.words(made) == [*CHOSEN, "t0", *RESERVE[:3]]
    counts = {name: made.facts[name] for name in ("groups", "traces", "refilled", "rounds")}
    assert counts == {"groups": 8, "traces": 32, "refilled": 3, "rounds": 2}
    assert made.facts["with_signal"] == 3


def test_a_bound_or_an_empty_reserve_ends_it(world: World) -> None:
    most = ("generation.tasks=4", "refill.groups=4", "refill.max_tasks=6")
    few_right = Answers(even5=0)
    assert world.words(world.rollout(few_right, *most))[5:] == list(RESERVE[:2])
    assert world.words(world.rollout(Answers(), "refill.groups=9", "grpo.max_groups=40"))[
        5:
    ] == list(RESERVE)


def test_without_a_refill_the_reserve_is_left_alone(world: World) -> None:
    made = world.rollout(Answers(), *WITHOUT)
    assert world.words(made) == [*CHOSEN, "t0"] and "refilled" not in made.facts


@pytest.mark.parametrize("last", range(8))
def test_a_stage_that_stopped_goes_on_with_the_same_rounds(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, last: int
) -> None:
    stopped = Answers(last)
    with pytest.raises(StageError, match="as if killed"):
        world.rollout(stopped)
    again = world.rollout(rest := Answers())
    # Shards have two groups; a round that has an odd number ends with a smaller one.
    finished = max(end for end in (0, 2, 4, 5, 7, 8) if end <= last)
    assert stopped.played[:finished] + rest.played == [*CHOSEN, "t0", *RESERVE[:3]]
    whole = World(tmp_path / "whole")
    monkeypatch.setattr(tasks.rollout, "sampler", whole.sampler)
    assert whole.rollout(Answers()).digest == again.digest


@mutation(
    "a shard of other places counts as finished", SHARDS,
    "context.artifacts.damage(parts) or self._of_others(parts, self._all[number])",
    "context.artifacts.damage(parts)",
)  # fmt: skip
def test_a_shard_of_a_round_of_another_size_is_attempted_again(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """An engine that does not repeat itself: a lost shard comes out otherwise the second time."""
    with pytest.raises(StageError, match="as if killed"):
        world.rollout(Answers(7))
    store = LocalStore(world.root)
    (first, *others) = sorted(store.list("shards"))
    assert len(others) == 3
    store.delete(first)  # the groups of even0 and flat1
    made = world.rollout(again := Answers(flat1=1))
    assert "it holds the groups" in caplog.text
    assert world.words(made) == [*CHOSEN, "t0", "flat4", "even5"]
    assert again.played == ["even0", "flat1", "flat4", "even5"]
    assert made.facts["rounds"] == 2


@mutation(
    "a refill reads what is not in its key", ROLLOUT,
    '            "curriculum.least_n",\n', "",
)  # fmt: skip
def test_the_key_has_what_a_refill_needs_where_it_is_asked_for() -> None:
    plain, asked = (
        parts_of(STAGE, resolve("tiny", overrides=on), 1, NO_INPUTS)
        for on in (SETTINGS[:3], SETTINGS)
    )
    more = asked["config"].keys() - plain["config"].keys()
    judged_by = ("alpha", "beta", "level", "k_min", "filter_agent", "least_n")
    assert more == {
        "refill.groups",
        "refill.max_tasks",
        "generation.tasks",
        "generation.candidates",
        *(f"curriculum.{name}" for name in judged_by),
    }
    assert asked["code"] != plain["code"]
