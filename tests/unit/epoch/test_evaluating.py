"""The evaluation of a candidate.

Invariants: the stage measures the checkpoint that the update made, and the current one only when it
made none; tasks are the held-out ones; both splits are sampled as the rollouts are, the test tasks
are attempted greedily too; seeds go by place; rows are in the order of the tasks; an attempt that
the agent broke has failed, one that was lost counts in no mean, and without any other there is no
result.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from genenv_core.config.sections.evaluation import EvaluationConfig
from genenv_core.config.sections.rollout import RolloutConfig
from genenv_core.epoch import evaluating
from genenv_core.epoch.evaluating import candidate, evaluate_candidate
from genenv_core.epoch.rows import Output
from genenv_core.errors import StageError
from genenv_core.storage.records.manifest import ArtifactRef, CheckpointRef
from genenv_core.types import Cause, SamplingParams
from tests.mutations import mutation
from tests.unit.epoch.builders_epoch import Player, WordsDomain, data, rollout, seed_for

EVALUATING = "genenv_core/epoch/evaluating.py"

SUBJECT = CheckpointRef(
    artifact=ArtifactRef(stage="bootstrap", key="k", digest="d"),
    name="agent",
    digest="old",
    policy_version=1,
)


@mutation(
    "an updated agent is not evaluated", EVALUATING,
    "current.name not in update.checkpoints", "current.name in update.checkpoints",
)  # fmt: skip
def test_the_checkpoint_that_an_update_made_is_evaluated() -> None:
    update = ArtifactRef(stage="grpo_update", key="k", digest="d", checkpoints={"agent": "new"})
    found = candidate(SUBJECT, update, 4)
    assert found == CheckpointRef(artifact=update, name="agent", digest="new", policy_version=4)


def test_without_an_updated_checkpoint_the_current_one_is() -> None:
    skipped = ArtifactRef(stage="grpo_update", key="k", digest="d")
    assert candidate(SUBJECT, skipped, 4) == candidate(SUBJECT, None, 0) == SUBJECT


def measured(player: Player, **evaluation: Any) -> Output:
    return evaluate_candidate(
        player,
        SUBJECT,
        WordsDomain(),
        data(["base"], ["ha", "hb"], ["va"]),
        epoch=2,
        evaluation=EvaluationConfig(**{"samples": 2, **evaluation}),
        settings=RolloutConfig(max_tokens=7, temperature=0.5, top_p=0.75),
        seed_for=seed_for,
        progress=lambda *done: None,
    )


@mutation(
    "evaluation is on base tasks", EVALUATING, "TaskSource(way.split.value)", "TaskSource.BASE"
)
def test_held_out_tasks_are_attempted_in_each_mode() -> None:
    player = Player({"ha": 1, "base": 2, "va": 2})
    output = measured(player)
    assert player.calls == [
        {"batches": [["t3"]], "n": 2, "params": SamplingParams(7, 0.5, 0.75)},
        {"batches": [["t1", "t2"]], "n": 2, "params": SamplingParams(7, 0.5, 0.75)},
        {"batches": [["t1", "t2"]], "n": 1, "params": SamplingParams(7, 0.0, 1.0)},
    ]
    rows = output.tables["evaluations"]
    columns = ("split", "mode", "task_id", "sample_index", "success", "reward")
    assert rows.select(columns).rows() == [
        ("validation", "sampled", "t3", 0, True, 1.0),
        ("validation", "sampled", "t3", 1, True, 1.0),
        ("test", "sampled", "t1", 0, True, 1.0),
        ("test", "sampled", "t1", 1, False, 0.25),
        ("test", "sampled", "t2", 0, False, 0.25),
        ("test", "sampled", "t2", 1, False, 0.25),
        ("test", "greedy", "t1", 0, True, 1.0),
        ("test", "greedy", "t2", 0, False, 0.25),
    ]
    assert rows.row(3, named=True) == {
        "epoch": 2,
        "measured_epoch": 2,
        "policy_version": 1,
        "agent_checkpoint": "old",
        "task_id": "t1",
        "family": "k2",
        "split": "test",
        "mode": "sampled",
        "sample_index": 1,
        "success": False,
        "reward": 0.25,
        "answer_probability": None,
        "response_tokens": 2,
        "failure": "wrong",
    }
    assert output.facts == {
        "agent_checkpoint": "old",
        "validation": {"sampled": 1.0},
        "test": {"sampled": 0.25, "greedy": 0.5},
    }


def test_what_was_said_is_kept_beside_each_attempt() -> None:
    output = measured(Player({"ha": 1, "base": 2, "va": 2}))
    key = ("epoch", "split", "mode", "task_id", "sample_index")
    texts = output.tables["evaluation_texts"]
    assert texts.select(key).equals(output.tables["evaluations"].select(key))
    said = texts.row(3, named=True)["response_text"]
    right = texts.row(2, named=True)["response_text"]
    assert (right, said) == ("HA", "no")
    assert json.loads(texts["messages"][3]) == [{"role": "assistant", "content": said}]


def test_rows_are_in_the_order_of_the_tasks() -> None:
    in_order = measured(Player({"hb": 1}), greedy=False).tables["evaluations"]
    assert in_order["task_id"].to_list() == ["t3", "t3", "t1", "t1", "t2", "t2"]

    class Backwards(Player):
        def groups(self, batches: Any, **how: Any) -> Any:
            return reversed(list(super().groups(batches, **how)))

    backwards = measured(Backwards({"hb": 1}), greedy=False).tables["evaluations"]
    assert backwards.equals(in_order)


def test_the_probability_of_the_answer_is_a_column_of_sampled_attempts() -> None:
    output = measured(Player({}, probable={"ha": 0.25, "hb": 0.5, "va": 0.125}))
    rows = output.tables["evaluations"]
    assert rows.select("mode", "answer_probability").rows() == [
        ("sampled", 0.125),
        ("sampled", 0.125),
        ("sampled", 0.25),
        ("sampled", 0.25),
        ("sampled", 0.5),
        ("sampled", 0.5),
        ("greedy", None),
        ("greedy", None),
    ]
    assert output.facts["validation"]["answer_probability"] == 0.125
    assert output.facts["test"]["answer_probability"] == 0.375


def test_seeds_go_by_split_mode_place_and_sample() -> None:
    player = Player({})
    measured(player)
    assert player.seeds[:2] == ["validation/sampled/0/0/0", "validation/sampled/0/1/0"]
    assert player.seeds[2:5] == ["test/sampled/0/0/0", "test/sampled/0/1/0", "test/sampled/1/0/0"]
    assert player.seeds[6:] == ["test/greedy/0/0/0", "test/greedy/1/0/0"]


def test_greedy_may_be_left_out() -> None:
    output = measured(Player({}), greedy=False)
    assert set(output.tables["evaluations"]["mode"]) == {"sampled"}
    assert output.facts["test"] == {"sampled": 0.0}


def test_progress_comes_with_each_chunk(monkeypatch: Any) -> None:
    monkeypatch.setattr(evaluating, "CHUNK", 1)
    seen: list[Any] = []
    player = Player({})
    evaluate_candidate(
        player,
        SUBJECT,
        WordsDomain(),
        data([], ["ha", "hb"], ["va"]),
        epoch=2,
        evaluation=EvaluationConfig(greedy=False),
        settings=RolloutConfig(),
        seed_for=seed_for,
        progress=lambda *done: seen.append(done),
    )
    assert [call["batches"] for call in player.calls] == [[["t2"]], [["t0"], ["t1"]]]
    assert seen == [
        (0, 1, "sampled validation tasks"),
        (0, 2, "sampled test tasks"),
        (1, 2, "sampled test tasks"),
    ]


class Breaks(Player):
    """Gives the right answers, of which the one to a word in `broken` breaks with an error."""

    def __init__(self, broken: dict[str, Cause], **more: Any) -> None:
        super().__init__({}, **more)
        self.broken = broken

    def groups(self, batches: Any, **how: Any) -> Any:
        """Yield groups of one rollout each."""
        for index, (name, draft) in enumerate(batches[0]):
            cause = self.broken.get(draft.program)
            error = f"{'x' * 79}; in step, turn 2 of task {name}, on y" if cause else ""
            yield index, [rollout(name, 0, draft.ground_truth, error=error, cause=cause)]


def test_an_attempt_that_the_agent_broke_has_failed() -> None:
    player = Breaks(dict.fromkeys(["ha", "hb", "va"], Cause.AGENT))
    rows = measured(player, greedy=False, samples=1).tables["evaluations"]
    assert rows.select("success", "reward", "failure").rows() == [(False, 0.0, "x" * 79)] * 3


@mutation(
    "an evaluation counts what was lost", EVALUATING,
    "for row, rollout in made if not rollout.lost]", "for row, _ in made]",
)  # fmt: skip
def test_a_lost_attempt_counts_in_no_mean_and_has_its_cause() -> None:
    player = Breaks({"hb": Cause.ENGINE}, probable={"ha": 0.5, "hb": 0.25, "va": 1.0})
    output = measured(player, greedy=False, samples=1)
    assert output.facts == {
        "agent_checkpoint": "old",
        "validation": {"sampled": 1.0, "answer_probability": 1.0},
        "test": {"sampled": 1.0, "answer_probability": 0.375},
        "lost": 1,
        "lost_first": f"{'x' * 79}; in step, turn 2 of task t2, on y",
    }
    assert output.tables["evaluations"]["task_id"].to_list() == ["t3", "t1"]
    texts = output.tables["evaluation_texts"].select("task_id", "error", "cause").rows()
    assert texts == [
        ("t3", "", None),
        ("t1", "", None),
        ("t2", output.facts["lost_first"], "engine"),
    ]


def test_without_any_verdict_there_is_no_result() -> None:
    player = Breaks({"ha": Cause.ENGINE, "hb": Cause.ENVIRONMENT})
    with pytest.raises(StageError, match=r"none of the 2 attempts at test tasks, sampled.*xxx"):
        measured(player, greedy=False, samples=1)
