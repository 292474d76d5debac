"""Which earlier task, and which test task, a new task resembles.

Invariants: a new task is held against base tasks, tasks of earlier epochs and the valid ones
before it in its epoch, never against held-out ones; its test task is found apart; a refused draft
has both, a text that spells no task has none; a domain with an embedding is asked for it in place
of programs, and one that returns no vectors is named.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from genenv_core.epoch.rows import frame
from genenv_core.errors import DomainError
from genenv_core.types import TaskDraft
from tests.mutations import mutation
from tests.unit.epoch.builders_epoch import WordsDomain, data, generated
from tests.unit.epoch.test_generation import Says, write

RESEMBLING = "genenv_core/epoch/writing/resembling.py"
COLUMNS = ("nearest_task_id", "similarity", "nearest_test_id", "test_similarity")


class Phrases(WordsDomain):
    """Words joined by dashes, which make one task; the request may say its answer."""

    def leaks(self, draft: TaskDraft) -> list[str]:
        """Return that nothing gives it away."""
        return []


def near(*texts: str, **more: Any) -> list[tuple[Any, ...]]:
    """Return the columns of the rows that these texts become, beside a few earlier tasks."""
    output = write(
        Says(list(texts)),
        data=data(["b-one", "b-two"], ["t-one", "t-two"]),
        recent=frame("tasks", [generated("r0", "r-one"), generated("r1", "t-one", rejection="x")]),
        settings={"tasks": len(texts), "max_generations": len(texts)},
        **{"domain": Phrases()} | more,
    )
    return output.tables["tasks"].select("task_id", *COLUMNS).rows()


@mutation(
    "a new task is not held against earlier epochs", RESEMBLING,
    "*_tasks(of_source(data, TaskSource.BASE)), *_tasks(recent)",
    "*_tasks(of_source(data, TaskSource.BASE))",
)  # fmt: skip
@mutation(
    "a refused text is an earlier task", RESEMBLING,
    'rows.filter(pl.col("valid")).select', "rows.select",
)  # fmt: skip
@mutation(
    "a refused draft is an earlier task of its epoch", RESEMBLING,
    '[bool(row["valid"]) for row in new]', "[True for row in new]",
)  # fmt: skip
@mutation(
    "a new task is held against held-out ones", RESEMBLING,
    "of_source(data, TaskSource.BASE)", "data",
)  # fmt: skip
def test_a_new_task_is_held_against_all_that_came_before_it() -> None:
    base, test = data(["b-one", "b-two"], ["t-one", "t-two"])["task_id"][::2]
    rows = near("b-one", "r-one-x", "t-one", "t-one-z", "t-one-z-y", "!")
    ids = [row[0] for row in rows]
    # b-one: b, -, one and two pairs. r-one-x shares r, -, one and two pairs of its nine.
    assert [row[1:3] for row in rows] == [
        (base, 1.0),
        ("r0", 2 * 5 / 14),
        (base, 2 * 3 / 10),  # -, one and their pair
        (ids[1], 2 * 5 / 18),  # not t-one, which became no task
        (ids[3], 2 * 9 / 22),
        (None, None),
    ]
    assert [row[3:] for row in rows] == [
        (test, 2 * 3 / 10),
        (test, 2 * 3 / 14),
        (test, 1.0),
        (test, 2 * 5 / 14),
        (test, 2 * 5 / 18),
        (None, None),
    ]


class Embedded(Phrases):
    """A domain whose requests are as alike as their last letters."""

    asked: Sequence[str] = ()

    def embed(self, prompts: Sequence[str]) -> Any:
        """Return a vector for each."""
        self.asked = prompts
        return [
            [float(prompt.endswith("x")), float(not prompt.endswith("x"))] for prompt in prompts
        ]


@mutation(
    "the domain's embedding is not asked", RESEMBLING,
    "embedded(domain, prompts) if new else None", "None",
)  # fmt: skip
def test_an_embedding_of_the_domain_decides() -> None:
    domain = Embedded()
    rows = near("aa", "bx", "cx", domain=domain)
    assert [row[2] for row in rows] == [1.0, 0.0, 1.0]
    assert rows[2][1] == rows[1][0]
    assert domain.asked[:3] == ["say aa", "say bx", "say cx"]


@pytest.mark.parametrize(
    ("vectors", "found"),
    [
        (lambda prompts: [[1.0]], r"returned numbers of shape \(1, 1\)"),
        (lambda prompts: [1.0 for _ in prompts], r"returned numbers of shape \(7,\)"),
        (lambda prompts: [[float("nan")] for _ in prompts], "returned a number that is not finite"),
        (lambda prompts: [[1.0], [1.0, 2.0]], "raised ValueError"),
        (lambda prompts: None, r"returned numbers of shape \(\)"),
        (lambda prompts: 1 / 0, "raised ZeroDivisionError"),
    ],
)
def test_an_embedding_that_is_none_is_named(vectors: Any, found: str) -> None:
    domain = Embedded()
    domain.embed = vectors
    with pytest.raises(DomainError, match=f"domain words: embed {found}"):
        near("aa", "bx", domain=domain)
