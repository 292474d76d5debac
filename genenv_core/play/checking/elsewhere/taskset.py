"""A taskset of verifiers as a domain whose tasks can be certified.

Another process plays it, in an interpreter that has verifiers. An attempt is one answer, and the
task's own rewards judge it. Success is a reward of 1 or more. genenv refuses tasks that need tools,
a container, a judge's model or a user: an answer alone does not decide them.
"""

from __future__ import annotations

import math
import os
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import cast

from genenv_core.domains.protocol import Domain, Episode
from genenv_core.domains.steps import EnvironmentLost
from genenv_core.errors import ConfigError, DataError, DomainError, one_line
from genenv_core.play.certificate import CLOSED
from genenv_core.play.checking.elsewhere import taskset_child
from genenv_core.play.checking.elsewhere.process import (
    SAID,
    AskedProcess,
    ForeignFault,
    asked_process,
)
from genenv_core.play.checking.sets import SetTask
from genenv_core.types import JsonObject, Message, Observation, TaskDraft, Verdict

PYTHON = "GENENV_VERIFIERS_PYTHON"
"""The environment variable that names the interpreter."""

MOST = 1000
"""Most tasks to certify; from a larger taskset, so many at equal distances."""

SPELLINGS = ("{}", "\\boxed{{{}}}", "<answer>{}</answer>", "<answer>\n{}\n</answer>", "#### {}",
             "The answer is {}.", "Answer: {}")  # fmt: skip
"""Ways to write a right answer; a task's own rewards decide which one counts."""

SET = "taskset"


class TasksetDomain:
    """The tasks of a taskset, and their verdicts."""

    tools: Sequence[JsonObject] = ()
    judged_while_played = True  # so that a task without an answer of its own has none to reject
    repeatable = True

    def __init__(self, ask: AskedProcess, name: str, size: int, version: str) -> None:
        """Keep the process that answers for the taskset."""
        self.ask, self.name, self.size, self.version = ask, name, size, version

    def tasks(self) -> list[SetTask]:
        """Return the tasks, each with the spelling of its answer that succeeds.

        Where no spelling of any task's answer succeeds, the taskset spells answers in some other
        way. Then nobody knows a right attempt, and no task gets one. Raises DataError where the
        code fails on a task.
        """
        step = max(1.0, self.size / MOST)
        places = [int(place * step) for place in range(min(self.size, MOST))]
        try:
            found = [self._task(place) for place in places]
        except (EnvironmentLost, ForeignFault, DomainError) as error:
            raise DataError(f"{self.name}: {type(error).__name__}: {error}") from error
        if not any(right for _, right in found):
            return [SetTask(SET, replace(draft, ground_truth="")) for draft, _ in found]
        return [SetTask(SET, draft) for draft, _ in found]

    def _task(self, index: int) -> tuple[TaskDraft, bool]:
        """Return a task, and whether its answer succeeds in some spelling."""
        about = self.ask("task", index=index)
        answer, messages = about["answer"], about["messages"]
        spec = {"index": index, "messages": messages, "answer": answer}
        prompt = "\n\n".join(one["content"] for one in messages)
        spelled = [spelling.format(answer) for spelling in SPELLINGS] if answer else []
        right = next((text for text in spelled if self._succeeds(index, text)), None)
        draft = TaskDraft(prompt, spec, right or answer, answer, SET, 0.0, about["key"])
        return draft, right is not None

    def _succeeds(self, index: int, text: str) -> bool:
        try:
            return self._reward(index, text) >= 1
        except (ForeignFault, DomainError):
            return False

    def _reward(self, index: int, text: str) -> float:
        return float(self.ask("reward", index=index, text=text))

    def agent_messages(self, draft: TaskDraft) -> list[Message]:
        """Return the messages that open an attempt."""
        return list(draft.spec["messages"])

    def trivial_answers(self, draft: TaskDraft) -> list[str]:
        """Return an empty answer, some constant ones, and the request itself."""
        truth = draft.spec["answer"].strip().casefold()
        constant = [
            text for text in ("0", "1", "yes", "no", "A", "None") if text.casefold() != truth
        ]
        return ["", " ", "\\boxed{}", "<answer></answer>", *constant, draft.prompt]

    def answer_turns(self, draft: TaskDraft) -> list[str]:
        """Return the right answer, [] where nobody knows one."""
        return [draft.ground_truth] if draft.ground_truth else []

    def leaks(self, draft: TaskDraft) -> list[str]:
        """Return the answer as the task has it; [] for an answer that any request may name."""
        answer = draft.spec["answer"].strip()
        closed = answer.casefold() in CLOSED or (len(answer) == 1 and answer.isalpha())
        return [] if closed or not answer else [answer]

    def score(self, draft: TaskDraft, messages: Sequence[Message]) -> Verdict:
        """Return the verdict of the task's own rewards on the last answer, '' if there is none."""
        said = [one["content"] for one in messages[len(draft.spec["messages"]) :]]
        reward = self._reward(draft.spec["index"], said[-1] if said else "")
        success = math.isfinite(reward) and reward >= 1
        return Verdict(reward, success, "" if success else "no success")

    def episode(self, draft: TaskDraft, seed: int) -> Episode:
        """Begin an attempt, which ends with its first answer."""
        return OneAnswer()


class OneAnswer:
    """An attempt of one turn, without an answer of the environment."""

    def step(self, action: str) -> Observation:
        """End the attempt."""
        return Observation((), done=True)


def taskset_module(folder: Path) -> str | None:
    """Return the module of a folder that imports verifiers, None without such a module.

    It is a file or a package of the folder. Raises DataError where there are several.
    """
    found = sorted(
        {
            path.stem if path.parent == folder else path.parent.name
            for path in (*folder.glob("*.py"), *folder.glob("*/*.py"))
            if path.parent == folder or (path.parent / "__init__.py").is_file()
            if "import verifiers" in path.read_text(encoding="utf-8", errors="replace")
        }
    )
    if len(found) > 1:
        raise DataError(
            f"{folder}: {', '.join(found)} import verifiers: certify takes a folder with one "
            "taskset; put each into a folder of its own"
        )
    return found[0] if found else None


@contextmanager
def taskset_domain(folder: Path, module: str) -> Generator[TasksetDomain]:
    """Start the process that plays a taskset, and end it afterwards.

    Raises ConfigError where no variable names an interpreter, and DataError where the taskset does
    not load or its tasks need more than an answer.
    """
    interpreter = os.environ.get(PYTHON)
    if not interpreter:
        raise ConfigError(
            f"{folder} holds a taskset of verifiers, and {PYTHON} is not set: name the interpreter "
            "of an environment that has verifiers and what the taskset needs"
        )
    if not os.access(interpreter, os.X_OK):
        raise ConfigError(f"{PYTHON}={interpreter} is no program: name an interpreter of Python")
    script = Path(taskset_child.__file__)
    command = [interpreter, "-P", script, module, folder.resolve()]
    with asked_process(command, "the taskset's code") as ask:
        try:
            about = ask("about")
        except (EnvironmentLost, ForeignFault, DomainError) as error:
            raise DataError(
                f"{folder}: {module} cannot be certified: {one_line(error, SAID)}"
            ) from error
        yield TasksetDomain(ask, module, about["tasks"], f"of verifiers {about['verifiers']}")


def as_domain(taskset: TasksetDomain) -> Domain:
    """Return a taskset as the domain that checks take; it cannot write or parse tasks."""
    return cast(Domain, taskset)
