"""A taskset of verifiers whose tasks are certified.

Invariants: the right answer is in the spelling that the rewards take, and where none is taken
nobody knows a right attempt; the answer itself is what a request must not say; at most so many
tasks are taken, at equal distances; a folder with one module that imports verifiers is a taskset;
what is missing is said. That verifiers itself plays them is in `test_verifiers_tasksets`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from flows.cli.app import app
from genenv_core.errors import ConfigError, DataError
from genenv_core.play.checking.elsewhere import taskset
from genenv_core.play.checking.elsewhere.process import ForeignFault
from genenv_core.play.checking.elsewhere.taskset import (
    SPELLINGS,
    TasksetDomain,
    as_domain,
    taskset_module,
)
from genenv_core.play.checking.set_flaws import AnyFlaw, SetFlaw
from genenv_core.play.checking.sets import CertifiedTask, certified, compared
from genenv_core.types import Flaw
from tests.mutations import mutation

TASKSET = "genenv_core/play/checking/elsewhere/taskset.py"
PLAYED = "flows/cli/data/certifying/certify_tasks.py"


class Asked:
    """Answers what the process of a taskset is asked: tasks are sums, the answer is in a box."""

    def __init__(self, size: int = 6, spelling: str = "\\boxed{{{}}}") -> None:
        self.size, self.spelling = size, spelling
        self.prompts = {place: f"What is {place + 1} + 50?" for place in range(size)}
        self.accepts: dict[int, str] = {}
        self.rewards: dict[int, float] = {}
        self.asked: list[int] = []

    def __call__(self, do: str, **given: Any) -> Any:
        index = given["index"]
        if do == "task":
            self.asked.append(index)
            messages = [{"role": "user", "content": self.prompts[index]}]
            return {"key": f"key {index}", "messages": messages, "answer": str(index + 51)}
        if given["text"] == "raise":
            raise ForeignFault("no")
        right = given["text"] in (self.spelling.format(index + 51), self.accepts.get(index))
        return self.rewards.get(index, 1.0) if right else 0.0


def domain_of(asked: Asked) -> TasksetDomain:
    ask: Any = asked
    return TasksetDomain(ask, "sums", asked.size, "of verifiers 0")


def flaws_of(asked: Asked) -> dict[str, set[AnyFlaw]]:
    """Return the flaws by the key of the task, for those that have any."""
    taskset = domain_of(asked)
    found: list[CertifiedTask] = list(certified(as_domain(taskset), taskset.tasks()))
    for place, one in compared(as_domain(taskset), found):
        found[place] = one
    named = {
        one.task.draft.fingerprint: {check.flaw for check in one.checks if not check.passed}
        for one in found
    }
    return {key: flaws for key, flaws in named.items() if flaws}


@mutation(
    "only the bare answer is tried", TASKSET, "for spelling in SPELLINGS]", "for spelling in '']"
)
@pytest.mark.parametrize("spelling", SPELLINGS)
def test_the_right_answer_is_spelled_as_the_rewards_take_it(spelling: str) -> None:
    asked = Asked(spelling=spelling)
    (first, *_) = domain_of(asked).tasks()
    assert first.draft.ground_truth == spelling.format(51) and first.draft.program == "51"
    assert flaws_of(asked) == {}


def test_each_flaw_is_named_for_its_task() -> None:
    asked = Asked()
    asked.prompts[1] += " It is 52."
    asked.accepts[2], asked.rewards[3] = "", 1.5
    asked.prompts[5] = asked.prompts[4]
    found = flaws_of(asked)
    assert found["key 1"] == {Flaw.LEAKS_ANSWER}
    assert {Flaw.ACCEPTS_TRIVIAL, SetFlaw.ALREADY_SOLVED} <= found["key 2"]
    assert SetFlaw.WRONG_VERDICT in found["key 3"]
    assert SetFlaw.CONTRADICTS in found["key 5"]
    assert found.keys() == {"key 1", "key 2", "key 3", "key 5"}


@mutation("an answer in an unknown spelling is a flaw", TASKSET,
          "if not any(right for _, right in found):", "if not found:")  # fmt: skip
def test_where_no_spelling_succeeds_nobody_knows_what_is_right() -> None:
    asked = Asked(spelling="in words: {}")
    assert {one.draft.ground_truth for one in domain_of(asked).tasks()} == {""}
    assert flaws_of(asked) == {}


def test_one_answer_that_fails_among_others_is_a_flaw() -> None:
    asked = Asked()
    asked.rewards[4] = 0.5
    assert Flaw.REJECTS_GROUND_TRUTH in flaws_of(asked)["key 4"]


@mutation("more tasks than the most", TASKSET, "range(min(self.size, MOST))", "range(self.size)")
def test_of_many_tasks_some_at_equal_distances_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(taskset, "MOST", 4)
    asked = Asked(size=10)
    domain_of(asked).tasks()
    assert asked.asked == [0, 2, 5, 7]


@mutation(
    "an answer of one letter is a leak",
    TASKSET,
    "return [] if closed or not answer",
    "return [] if not answer",
)
@pytest.mark.parametrize(("answer", "leaks"), [("B", []), ("Yes", []), ("", []), ("42", ["42"])])
def test_a_request_may_name_an_answer_of_a_closed_set(answer: str, leaks: list[str]) -> None:
    (first, *_) = domain_of(Asked()).tasks()
    first.draft.spec["answer"] = answer
    assert domain_of(Asked()).leaks(first.draft) == leaks


def test_a_task_that_cannot_be_read_is_named() -> None:
    def fails(do: str, **given: Any) -> Any:
        raise ForeignFault("no prompt")

    asked: Any = fails
    with pytest.raises(DataError, match="sums: ForeignFault: no prompt"):
        TasksetDomain(asked, "sums", 3, "").tasks()


def written(folder: Path, *names: str) -> Path:
    for name in names:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("import verifiers.v1 as vf\n")
    return folder


def test_a_folder_with_one_module_that_imports_verifiers_is_a_taskset(tmp_path: Path) -> None:
    assert taskset_module(tmp_path) is None
    written(tmp_path, "docs/example.py")  # in no package
    assert taskset_module(tmp_path) is None
    written(tmp_path, "mine/__init__.py", "mine/tasks.py")
    assert taskset_module(tmp_path) == "mine"
    written(tmp_path, "other.py")
    with pytest.raises(DataError, match="mine, other import verifiers: certify takes a folder wit"):
        taskset_module(tmp_path)


def command(*words: str | Path) -> Result:
    return CliRunner().invoke(app, ["certify", *map(str, words)])


@mutation(
    "a report on a taskset",
    PLAYED,
    "    if outputs.report is not None:\n        raise",
    "    if False:\n        raise",
)
@pytest.mark.parametrize(
    ("python", "words", "said"),
    [
        (None, [], "GENENV_VERIFIERS_PYTHON is not set: name the interpreter of an environment"),
        ("/no/python", [], "GENENV_VERIFIERS_PYTHON=/no/python is no program"),
        (None, ["--report", "r.json"], "--report is of a package of OpenEnv, and not of a taskset"),
    ],
)
def test_what_a_taskset_lacks_is_said(
    python: str | None, words: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GENENV_VERIFIERS_PYTHON", raising=False)
    if python:
        monkeypatch.setenv("GENENV_VERIFIERS_PYTHON", python)
    done = command(written(tmp_path, "sums.py"), *words)
    assert isinstance(done.exception, ConfigError) and said in str(done.exception)
