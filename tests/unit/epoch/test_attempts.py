"""The attempted tasks, their seeds, and the stored rows.

Invariants: all valid new tasks, or those in the window of a set, then the mixture's number of base
tasks, drawn from the stage's own seed; a turn's seed depends on the place of its task and not on
its id; a shard is yielded once it is whole, with rows in the order of the tasks.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from genenv_core.config.sections.rollout import RolloutConfig
from genenv_core.config.sections.updates import MixtureConfig
from genenv_core.epoch.attempting.windows import Window
from genenv_core.epoch.attempts import attempt, attempted
from genenv_core.epoch.rows import frame
from genenv_core.play.calls import with_calls
from genenv_core.types import Cause, SamplingParams
from tests.mutations import mutation
from tests.unit.epoch.builders_epoch import (
    Player,
    data,
    generated,
    rollout,
    seed_for,
    task,
)

ATTEMPTS = "genenv_core/epoch/attempts.py"

MIXTURE = MixtureConfig(new=0.5, base=0.25, history=0.25)
BASE = [f"base{index}" for index in range(8)]


def chosen(
    seed: int, base: Sequence[str] = BASE, new: int = 4, window: Window | None = None
) -> list[str]:
    """Return the attempted words; the stage draws base tasks with `seed`."""
    asked: list[Any] = []
    tasks = [generated(f"n{index}") for index in range(new)]
    tasks.insert(1, generated("bad", rejection="duplicate"))

    def seeded(*parts: str | int) -> int:
        asked.append(parts)
        return seed

    found = attempted(frame("tasks", tasks), data(base, ["held"]), MIXTURE, seeded, window)
    assert asked == [("base",)]
    return [one.draft.program for one in found]


def test_valid_new_tasks_then_base_tasks_in_their_share() -> None:
    words = chosen(0)
    assert words[:4] == ["n0", "n1", "n2", "n3"]
    assert len(words) == 6 and words[4:] == sorted(set(words[4:])) and set(words[4:]) <= set(BASE)


@mutation(
    "the whole set is attempted in each epoch", ATTEMPTS,
    "[new[place] for place in window.places(len(new))]", "list(new)",
)  # fmt: skip
def test_a_window_of_a_set_is_attempted_with_base_tasks_in_its_share() -> None:
    words = chosen(0, new=6, window=Window(4, 4))
    assert words[:4] == ["n4", "n5", "n0", "n1"] and len(words) == 6
    assert words[4:] == chosen(0)[4:]


@mutation(
    "base tasks are drawn alike in every epoch", ATTEMPTS,
    'np.random.default_rng(seed_for("base"))', "np.random.default_rng(0)",
)  # fmt: skip
def test_base_tasks_are_drawn_from_the_stages_seed() -> None:
    assert chosen(1) == chosen(1)
    assert len({tuple(chosen(seed)) for seed in range(6)}) > 1


@mutation(
    "held-out tasks are attempted in training", ATTEMPTS, "of_source(data, TaskSource.BASE)", "data"
)
def test_no_more_base_tasks_than_there_are() -> None:
    assert chosen(0, ["only"]) == ["n0", "n1", "n2", "n3", "only"]
    assert chosen(0, new=0) == []


def shards(player: Player, names: Sequence[str], which: dict[int, range]) -> list[Any]:
    return list(
        attempt(
            player,
            [task(name) for name in names],
            which,
            RolloutConfig(n=2, max_tokens=7, temperature=0.5, top_p=0.75),
            epoch=2,
            scope="0123456789",
            policy_version=1,
            decode=lambda ids: "".join(map(chr, ids)),
            seed_for=seed_for,
        )
    )


@mutation(
    "rollouts are seeded by the task's id", ATTEMPTS,
    "seed_for(place_of[task], sample, turn)", "seed_for(task, sample, turn)",
)  # fmt: skip
def test_seeds_go_by_place_not_by_id() -> None:
    first, renamed = Player({}), Player({})
    shards(first, ["a", "b", "c"], {0: range(0, 2), 1: range(2, 3)})
    shards(renamed, ["x", "y", "z"], {0: range(0, 2), 1: range(2, 3)})
    assert first.seeds == renamed.seeds == ["0/0/0", "0/1/0", "1/0/0", "1/1/0", "2/0/0", "2/1/0"]
    rest = Player({})
    shards(rest, ["a", "b", "c"], {1: range(2, 3)})
    assert rest.seeds == ["2/0/0", "2/1/0"]  # a shard done again has the seeds that it had


def test_the_player_is_asked_shard_by_shard() -> None:
    player = Player({})
    shards(player, ["a", "b", "c"], {0: range(0, 2), 1: range(2, 3)})
    assert player.calls == [
        {"batches": [["a", "b"], ["c"]], "n": 2, "params": SamplingParams(7, 0.5, 0.75)}
    ]


def test_a_shard_comes_when_it_is_whole_and_in_order() -> None:
    player = Player({"c": 1}, order=[2, 1, 0])
    made = shards(player, ["a", "b", "c"], {4: range(0, 2), 7: range(2, 3)})
    assert [number for number, _ in made] == [7, 4]
    (_, last), (_, first) = made
    assert first["traces"]["trace_id"].to_list() == [
        "g000002-01234567-0000000.0000",
        "g000002-01234567-0000000.0001",
        "g000002-01234567-0000001.0000",
        "g000002-01234567-0000001.0001",
    ]
    assert first["trace_tokens"]["trace_id"].equals(first["traces"]["trace_id"])
    assert last["traces"].select("task_id", "group_id", "sample_index").rows() == [
        ("c", "g000002-01234567-0000002", 0),
        ("c", "g000002-01234567-0000002", 1),
    ]
    assert last["trace_tokens"]["response_text"].to_list() == ["C", "no"]


CALLED = tuple(
    with_calls(
        [
            {"role": "assistant", "content": "<tool_call>{}</tool_call> shown by the prompt"},
            {"role": "user", "content": "é"},
            {"role": "assistant", "content": "<tool_call>{}</tool_call>"},
            {"role": "assistant", "content": "no"},
        ]
    )
)


class Once(Player):
    """Yields one group of fixed rollouts."""

    def groups(self, batches: Any, **how: Any) -> Any:
        """Yield the only group."""
        yield (
            0,
            [
                rollout(
                    "a", 0, "yes+no", loss_mask=(1, 1, 1, 0, 1, 0), turns=2,
                    messages=CALLED, error="boom", cause=Cause.ENGINE,
                )
            ],
        )  # fmt: skip


@mutation(
    "calls of a prompt count as the agent's", "genenv_core/play/calls.py",
    "for message in own[len(own) - turns :])", "for message in own)",
)  # fmt: skip
def test_the_rows_of_a_rollout() -> None:
    ((_, tables),) = shards(Once({}), ["a"], {0: range(1)})
    row = tables["traces"].row(0, named=True)
    assert row == {
        "trace_id": "g000002-01234567-0000000.0000",
        "epoch": 2,
        "task_id": "a",
        "group_id": "g000002-01234567-0000000",
        "sample_index": 0,
        "policy_version": 1,
        "turns": 2,
        "prompt_tokens": 3,
        "response_tokens": 4,
        "tool_calls": 1,
        "finish_reason": "stop",
        "error": "boom",
        "cause": "engine",
    }
    tokens = tables["trace_tokens"].row(0, named=True)
    assert json.loads(tokens["messages"]) == list(CALLED)
    assert tokens["response_text"] == "yesn"  # what the agent sampled, not what was answered
    assert tokens["loss_mask"] == [1, 1, 1, 0, 1, 0]


def test_no_tasks_no_shards() -> None:
    assert shards(Player({}), [], {}) == []
    assert attempted(frame("tasks", []), data(BASE), MIXTURE, seed_for) == []
