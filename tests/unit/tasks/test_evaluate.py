"""The stage `evaluate`, with a player that needs no model.

Invariants: an evaluation stands for later epochs with the same agent, with their number and the
same values, and costs them nothing; it is made anew for other weights, under other settings, and
where an attempt was lost; a plan knows which of these it is; seeds are equal in every epoch.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import tasks.evaluate
from flows.planner import note_standing
from genenv_core.config.load import resolve
from genenv_core.config.schema import RunConfig
from genenv_core.storage.records.artifacts import Artifacts, ArtifactWriter, reference
from genenv_core.storage.records.manifest import ArtifactRef, CheckpointRef
from genenv_core.storage.records.runs import RunLog
from genenv_core.storage.store.local import LocalStore
from genenv_core.types import Cause
from tasks.evaluate import STAGE, EvaluateInputs, compute
from tasks.stage.execution import run_stage
from tasks.stage.planning import Planned, planned
from tests.mutations import mutation
from tests.unit.epoch.builders_epoch import Player, WordsDomain, data, rollout

EVALUATE = "tasks/evaluate.py"
EVALUATING = "genenv_core/epoch/evaluating.py"
PLANNER = "flows/planner.py"


class Answers(Player):
    """Is right at its first attempt at each word, and loses its attempts at the word `lost`."""

    def __init__(self, lost: str = "") -> None:
        super().__init__({})
        self.lost, self.given = lost, list[int]()

    def groups(self, batches: Any, **how: Any) -> Any:
        """Yield groups in task order; `given` are the seeds."""
        for index, (name, draft) in enumerate(pair for batch in batches for pair in batch):
            samples = range(how["n"])
            self.given += [how["seed_of"](name, sample, 0) for sample in samples]
            gone: dict[str, Any] = {"error": "gone", "cause": Cause.ENGINE}
            more = gone if draft.program == self.lost else {}
            said = [draft.ground_truth if sample == 0 else "no" for sample in samples]
            yield index, [rollout(name, sample, said[sample], **more) for sample in samples]


class World:
    """A root with held-out tasks; `player` answers, and `seeds` are of each evaluation made."""

    def __init__(self, root: Path) -> None:
        self.root, self.player = root, Answers()
        self.seeds: list[list[Any]] = []
        writer = ArtifactWriter(LocalStore(root), "bootstrap", {}, "b" * 64)
        writer.table("tasks", data(["base"], ["ha", "hb"], ["va"]))
        self.bootstrap = reference(writer.commit({})[0])

    @contextlib.contextmanager
    def sampler(self, *_: Any) -> Generator[Answers]:
        """Yield the player, and note the seeds that it is asked for."""
        before = len(self.player.given)
        yield self.player
        self.seeds.append(self.player.given[before:])

    def config(self, *overrides: str) -> RunConfig:
        """Return the settings of run x with some overrides."""
        return resolve(
            "tiny", overrides=list(overrides), fields={"root": str(self.root), "run_id": "x"}
        )

    def evaluate(
        self, epoch: int, earlier: ArtifactRef | None, *overrides: str, **agent: Any
    ) -> ArtifactRef:
        """Return the evaluation of an epoch, whose agent is `old` unless `agent` says more."""
        fields = {"name": "agent", "digest": "old", "policy_version": 0, **agent}
        subject = CheckpointRef(artifact=self.bootstrap, **fields)
        inputs = EvaluateInputs(subject, self.bootstrap, None, earlier)
        return run_stage(STAGE, compute, self.config(*overrides), epoch, inputs).ref

    def rows(self, ref: ArtifactRef, table: str = "evaluations") -> pl.DataFrame:
        """Return the rows of an evaluation."""
        artifacts = Artifacts(LocalStore(self.root))
        return artifacts.frame(artifacts.load(ref), table)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    made = World(tmp_path)
    monkeypatch.setattr(tasks.evaluate, "sampler", made.sampler)
    monkeypatch.setattr(tasks.evaluate.StageContext, "domain", lambda _: WordsDomain())
    return made


@mutation(
    "an evaluation that stands keeps its epoch's number", EVALUATING,
    'columns = {"epoch": epoch, ', "columns = {",
)  # fmt: skip
def test_it_stands_for_later_epochs_with_their_number_and_costs_nothing(world: World) -> None:
    first = world.evaluate(0, None)
    second = world.evaluate(1, first)
    third = world.evaluate(2, second, policy_version=2)  # an update that gave the same weights
    assert len(world.seeds) == 1
    assert first.facts == second.facts == third.facts
    for table in ("evaluations", "evaluation_texts"):
        before = world.rows(first, table)
        for epoch, again in enumerate((second, third), 1):
            rows = world.rows(again, table)
            assert rows["epoch"].unique().to_list() == [epoch]
            same = pl.exclude("epoch", "policy_version")
            assert rows.select(same).equals(before.select(same))
    assert world.rows(third)["measured_epoch"].unique().to_list() == [0]
    assert world.rows(third)["policy_version"].unique().to_list() == [2]
    attempts = RunLog(LocalStore(world.root), "x").attempts()
    tokens = {attempt.epoch: attempt.tokens for attempt in attempts if attempt.seconds is not None}
    assert tokens.pop(0) and tokens == {1: 0, 2: 0}
    assert world.evaluate(1, first) == second and len(attempts) == len(
        RunLog(LocalStore(world.root), "x").attempts()
    )


@mutation(
    "an evaluation under other settings stands", EVALUATING,
    "return same and changed(earlier.key_parts, key_parts).keys() <= _NO_MEASURE", "return same",
)  # fmt: skip
@mutation(
    "an evaluation of other weights stands", EVALUATING,
    'earlier.facts["agent_checkpoint"] == subject.digest and ', "",
)  # fmt: skip
def test_it_is_made_anew_for_other_weights_and_under_other_settings(world: World) -> None:
    """A branch takes over evaluations of a run with other settings."""
    first = world.evaluate(0, None)
    other = world.evaluate(1, first, digest="new")
    assert other.facts["agent_checkpoint"] == "new"
    wider = world.evaluate(1, first, "evaluation.samples=3")
    assert len(world.seeds) == 3
    assert world.rows(wider)["sample_index"].max() == 2
    assert {*world.rows(other)["measured_epoch"], *world.rows(wider)["measured_epoch"]} == {1}


@mutation(
    "an evaluation with lost attempts stands", EVALUATING,
    'subject.digest and "lost" not in earlier.facts', "subject.digest",
)  # fmt: skip
def test_one_with_lost_attempts_is_tried_again(world: World) -> None:
    world.player = Answers(lost="hb")
    first = world.evaluate(0, None)
    assert first.facts["lost"] > 0
    world.player = Answers()
    second = world.evaluate(1, first)
    assert "lost" not in second.facts and len(world.seeds) == 2


@mutation(
    "a plan takes an evaluation that lost attempts for one that stands", PLANNER,
    "one.stands = False", "one.stands = None",
)  # fmt: skip
@mutation(
    "a plan does not ask whether an earlier evaluation stands", PLANNER,
    "one.stands = standing(one.inputs, one.parts, one.epoch, load) is not None",
    "one.stands = False",
)  # fmt: skip
@pytest.mark.parametrize("lost", ["", "hb"])
def test_a_plan_says_whether_it_stands(world: World, lost: str) -> None:
    """As when an update that skipped is stored, and the run ended before its evaluation."""
    world.player = Answers(lost=lost)
    first, config = world.evaluate(0, None), world.config()
    agent = CheckpointRef(artifact=world.bootstrap, name="agent", digest="old", policy_version=0)
    kept = planned(STAGE, config, 1, EvaluateInputs(agent, world.bootstrap, None, first))
    new = agent.model_copy(update={"digest": "new"})
    trained = planned(STAGE, config, 1, EvaluateInputs(new, world.bootstrap, None, first))
    past = Planned("evaluate", 0, "hit", ref=first)
    then = Planned("evaluate", 2, "unknown")
    for entries, stand in (
        ([past, kept, then], [None, not lost, None]),
        ([past, trained], [None, False]),
        ([past, then], [None, False if lost else None]),  # of epoch 2 the arm tells the rest
    ):
        then.stands = None
        note_standing(config, entries)
        assert [one.stands for one in entries] == stand


@mutation(
    "evaluation seeds go by the epoch", EVALUATE,
    "partial(stage_seed, context.seed, STAGE.name, 0)", "context.seed_for",
)  # fmt: skip
def test_seeds_are_equal_in_every_epoch(world: World) -> None:
    for epoch in (0, 1):
        world.evaluate(epoch, None)
    assert len(world.seeds) == 2 and world.seeds[0] == world.seeds[1] != []
