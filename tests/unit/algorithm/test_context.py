"""Conditioning contexts.

Invariants: the number is as requested; each has its own base task while there are enough, and then
all are used evenly; ids are unique and sort in order; equal arguments give equal contexts; seed and
epoch change the choice; the history is passed on unchanged.
"""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genenv_core.domains.arithmetic import Arithmetic
from genenv_core.epoch.writing.contexts import make_contexts
from genenv_core.types import AgentHistory, Context, Task, TaskDraft, TaskSource
from tests.mutations import mutation

HISTORY = AgentHistory(success_rate=0.6, by_family={"k1": (3, 5)})


CONTEXTS = "genenv_core/epoch/writing/contexts.py"


def base(count: int) -> list[Task]:
    def task(index: int) -> Task:
        text = f"program {index}"
        draft = TaskDraft("prompt", {}, "truth", text, "k1", 1.0, text)
        return Task(f"t{index}", TaskSource.BASE, draft)

    return [task(index) for index in range(count)]


def made(tasks: int, count: int, seed: int = 0, epoch: int = 1, shots: int = 0) -> list[Context]:
    return make_contexts(
        Arithmetic({}), base(tasks), HISTORY, count=count, seed=seed, epoch=epoch, shots=shots
    )


@given(st.integers(1, 12), st.integers(0, 40), st.integers(0, 2**31 - 1), st.integers(1, 1000))
def test_base_tasks_are_used_evenly(tasks: int, count: int, seed: int, epoch: int) -> None:
    contexts = made(tasks, count, seed, epoch)
    assert len(contexts) == count
    used = Counter(context.base_task_id for context in contexts)
    assert max(used.values(), default=0) <= -(-count // tasks)
    assert len(used) == min(tasks, count)
    ids = [context.context_id for context in contexts]
    assert len(set(ids)) == count
    assert ids == sorted(ids)
    known = {task.task_id: task.draft for task in base(tasks)}
    for context in contexts:
        assert context.base == known[context.base_task_id]
        assert context.history is HISTORY


def test_equal_arguments_give_equal_contexts_and_seed_and_epoch_count() -> None:
    def chosen(seed: int, epoch: int) -> list[str]:
        contexts = made(20, 20, seed, epoch)
        return [context.base_task_id for context in contexts]

    assert chosen(0, 1) == chosen(0, 1)
    assert len({tuple(chosen(seed, epoch)) for seed in range(3) for epoch in (1, 2)}) == 6


def test_ids_of_different_epochs_differ_and_sort_by_epoch() -> None:
    ids = [context.context_id for epoch in (1, 9, 10, 99_999) for context in made(2, 2, 0, epoch)]
    assert len(set(ids)) == len(ids)
    assert ids == sorted(ids)


@mutation(
    "examples change within an epoch", CONTEXTS,
    "drafts = [base[int(index)].draft for index in drawn]",
    "drafts = [task.draft for task in base]",
)  # fmt: skip
def test_an_epoch_shows_the_same_examples_in_every_context() -> None:
    def shown(tasks: int, shots: int, epoch: int = 1, seed: int = 0) -> tuple[str, ...]:
        contexts = made(tasks, 9, seed, epoch, shots)
        (only,) = {
            tuple(turn["content"] for turn in context.examples if turn["role"] == "assistant")
            for context in contexts
        }
        assert len(set(only)) == len(only)
        return only

    assert len(shown(20, 4)) == 4
    assert shown(20, 0) == ()
    assert len(shown(3, 8)) == 2  # each answers a request to vary another
    assert len({shown(20, 4, epoch) for epoch in range(1, 6)}) == 5
    assert shown(20, 4) == shown(20, 4) != shown(20, 4, seed=1)


def test_no_base_task_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one base task"):
        made(0, 1)
