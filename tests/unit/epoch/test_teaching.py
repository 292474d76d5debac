"""A model as the teacher.

Invariants: it is asked by the domain's messages for each base task, `tasks_per_context` times, with
a seed for each place, until the set is full or the bound is reached; its tasks pass the rules of
all tasks; what fails is a row with its reason; a checkpoint is sampled with pi_env's settings, and
its tokens are counted.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from genenv_core.config.sections.curriculum import GenerationConfig
from genenv_core.epoch.rows import Output
from genenv_core.epoch.writing.intake import TaskRequest, TaskText
from genenv_core.epoch.writing.teaching import CheckpointTeacher, teach
from genenv_core.types import FinishReason, Grammar, SamplingParams
from tests.mutations import mutation
from tests.unit.epoch.builders_epoch import Chat, WordsDomain, data, seed_for, seed_parts
from tests.unit.epoch.test_generation import Says

TEACHING = "genenv_core/epoch/writing/teaching.py"

STOP = FinishReason.STOP


class Writes:
    """A teacher that gives answers in order."""

    def __init__(self, *answers: str | TaskText) -> None:
        """Take the answers; a text is one of 3 tokens, to a prompt of 7."""
        self.answers = [a if isinstance(a, TaskText) else TaskText(a, STOP, 7, 3) for a in answers]
        self.calls: list[list[TaskRequest]] = []

    def write(self, asked: Sequence[TaskRequest]) -> list[TaskText]:
        """Return the next answers."""
        self.calls.append(list(asked))
        return [self.answers.pop(0) for _ in asked]


def taught(teacher: Any, *, count: int = 3, **more: Any) -> Output:
    settings = GenerationConfig(
        **{"tasks": 1, "candidates": 1, "tasks_per_context": 2, "max_generations": 6, **more}
    )
    return teach(
        teacher, WordsDomain(), settings,
        count=count, data=data(["one", "two"], ["held"]), epoch=1, scope="0123456789",
        seed=7, seed_for=seed_for, progress=lambda done, total, unit: None,
    )  # fmt: skip


def test_it_writes_until_the_set_is_full() -> None:
    teacher = Writes("aa", "aa held", "b! cc", "dd")
    output = taught(teacher)
    assert [len(call) for call in teacher.calls] == [3, 1]
    columns = ("program", "source", "rejection", "generation_index", "generation_text")
    assert output.tables["tasks"].select(columns).rows() == [
        ("aa", "teacher", None, 0, "aa"),
        ("aa", "teacher", "duplicate", 1, "aa held"),
        ("held", "teacher", "in_heldout", 1, "aa held"),
        (None, "teacher", "unparseable", 2, "b! cc"),
        ("cc", "teacher", None, 2, "b! cc"),
        ("dd", "teacher", None, 3, "dd"),
    ]
    assert output.facts["valid"] == 3
    assert output.tables["generations"].is_empty()
    tokens = output.tables["tasks"].select("env_prompt_tokens", "generation_tokens").unique()
    assert tokens.rows() == [(7, 3)]
    assert output.tables["tasks"]["choice"].null_count() == 6


@mutation(
    "a set lists contexts that its teacher was not asked for", TEACHING,
    "asked=contexts", "asked=wanted",
)  # fmt: skip
def test_each_base_task_conditions_as_many_as_are_asked_for() -> None:
    teacher = Writes("aa", "bb", "cc", "dd")
    output = taught(teacher, count=4)
    (call,) = teacher.calls
    words = [str(one.messages[-1].get("content")) for one in call]
    assert words[0] == words[1] and words[2] == words[3]
    assert {word.split()[0] for word in words} == {"one", "two"}
    assert [seed_parts(one.seed) for one in call] == [f"generation/{place}" for place in range(4)]
    contexts = output.tables["tasks"].select("context_id", "base_task_id").rows()
    assert [c for c, _ in contexts] == [one.context.context_id for one in call]
    assert {base for _, base in contexts} == {"t0", "t1"}
    kept = output.tables["contexts"].select("context_id", "base_task_id", "messages").rows()
    assert [row[:2] for row in kept] == list(dict.fromkeys(contexts))
    assert [json.loads(row[2])[-1]["content"] for row in kept] == list(dict.fromkeys(words))


def test_it_stops_at_the_bound_and_failures_are_rows() -> None:
    teacher = Writes(
        TaskText("", FinishReason.ERROR, error="no answer"),
        TaskText("aa b", FinishReason.LENGTH, 7, 32),
        "cc",
        "cc",
    )
    output = taught(teacher, max_generations=4)
    assert output.tables["tasks"].select("rejection", "rejection_detail").rows()[:2] == [
        ("engine_error", "no answer"),
        ("truncated", "cut after 32 tokens"),
    ]
    assert output.facts["valid"] == 1 and output.facts["generated"] == 4


def test_a_checkpoint_is_sampled_as_pi_env_is() -> None:
    engine, grammar = Says(["aa", "?", "bb", "cc"]), Grammar("regex", ".*")
    settings = GenerationConfig(tasks=1, candidates=1, max_tokens=9, temperature=0.5, top_p=0.75)
    of: Callable[[Any], Grammar] = lambda context: grammar  # noqa: E731
    chat: Any = Chat()
    output = taught(CheckpointTeacher(engine, chat, settings, of))
    assert engine.params == SamplingParams(9, 0.5, 0.75, (0,))
    first = engine.calls[0][0]
    assert first.grammar == grammar and seed_parts(first.seed) == "generation/0"
    rows = output.tables["tasks"].select("program", "rejection", "env_prompt_tokens").rows()
    assert rows[:2] == [("aa", None, len(first.prompt_ids)), (None, "engine_error", 8)]
    assert output.tables["tasks"]["generation_tokens"].to_list() == [2, 1, 2, 2]
