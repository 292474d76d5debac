"""The tasks of an exported folder, and attempts at them: what every format stands on.

This module travels in the folder and runs without genenv. An attempt goes as one of the run that
the tasks come from: the same messages open it, the same code answers and judges it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from genenv_core.domains.kit.tools import how_to_call
from genenv_core.domains.protocol import Domain, right_turns, tools_of
from genenv_core.domains.rewards import unrewarded
from genenv_core.domains.steps import EnvironmentLost, as_observed, stepped
from genenv_core.domains.tool_calls import OPEN
from genenv_core.errors import DomainError
from genenv_core.types import Cause, JsonObject, Message, TaskDraft, Verdict

TASKS = "tasks.jsonl"
"""The file with a task and its passport in each line."""

ABOUT = "environment.json"
"""The file that says which domain plays the tasks, and what bounds an attempt."""

DRAFT = (
    "prompt",
    "spec",
    "ground_truth",
    "program",
    "family",
    "difficulty",
    "fingerprint",
    "chance",
)
"""The fields of a line that are the task itself; its digest is of these."""


@dataclass(frozen=True, slots=True)
class ExportedTask:
    """One task: its id in the run that it comes from, and what is known about it."""

    task_id: str
    draft: TaskDraft
    passport: JsonObject


@dataclass(frozen=True, slots=True)
class TurnLimits:
    """Most turns of an attempt, and how many failing steps in a row end it."""

    turns: int
    errors: int


class ExportedTasks:
    """The tasks of a folder with the domain that plays them."""

    def __init__(
        self, tasks: Sequence[ExportedTask], domain: Domain, limits: TurnLimits, about: str
    ) -> None:
        """Hold what `read_tasks` reads; `about` says in a sentence what the tasks are."""
        self.tasks, self.domain, self.limits, self.about = tasks, domain, limits, about

    def attempt(self, index: int, seed: int = 0) -> ExportedAttempt:
        """Return a fresh attempt at a task; `seed` is that of the environment's own chance.

        Raises IndexError for a task that there is not, and what the domain raises where it cannot
        begin.
        """
        if not 0 <= index < len(self.tasks):
            raise IndexError(f"task {index}: there are tasks 0 to {len(self.tasks) - 1}")
        return ExportedAttempt(self.domain, self.tasks[index].draft, self.limits, seed)

    def solved(self, index: int) -> Verdict | None:
        """Return the verdict on the domain's own right attempt; None where it knows none."""
        draft = self.tasks[index].draft
        turns = right_turns(self.domain, draft)
        return self.said(index, turns) if turns else None

    def said(
        self, index: int, turns: Sequence[str], *, seed: int = 0, cut: bool = False
    ) -> Verdict:
        """Return the verdict on an attempt in which the agent says these turns.

        `cut` says that the last one was cut off, so that the environment never answered it.
        """
        attempt = self.attempt(index, seed)
        for place, turn in enumerate(turns):
            attempt.say(turn, cut=cut and place == len(turns) - 1)
        return attempt.verdict()


class ExportedAttempt:
    """One attempt in progress.

    `messages` are the transcript so far, as the domain has it; `tools` are those of the task.
    """

    def __init__(self, domain: Domain, draft: TaskDraft, limits: TurnLimits, seed: int) -> None:
        """Begin at the task's first message."""
        self._domain, self._draft, self._limits = domain, draft, limits
        self._episode = domain.episode(draft, seed)
        self._turns = self._errors = 0
        self.messages: list[Message] = list(domain.agent_messages(draft))
        self.tools: Sequence[JsonObject] = tools_of(domain, draft)
        self.broken = False
        self.done = False

    def opening(self) -> str:
        """Return what the agent reads first, as one text: with the tools, unless it says them."""
        said = "\n\n".join(message["content"] for message in self.messages)
        if not self.tools or OPEN in said:
            return said
        functions = [json.dumps(tool.get("function", tool)) for tool in self.tools]
        return "\n".join(["The tools are", *functions, how_to_call(self.tools), "", said])

    def say(self, text: str, *, cut: bool = False) -> list[Message]:
        """Take a turn of the agent; return what the environment answers, as the agent reads it.

        Where `cut`, the turn was cut off: it ends the attempt and gets no answer. After `done`,
        it answers nothing either. Raises EnvironmentLost where the environment itself fails,
        which says nothing about the agent.
        """
        if self.done:
            return []
        self._turns += 1
        self.messages.append({"role": "assistant", "content": text})
        if cut:
            self.done = True
            return []
        observation = stepped(self._episode.step, text)
        answers = as_observed(observation)
        if observation.failed and observation.cause is not Cause.AGENT:
            raise EnvironmentLost(answers[-1]["content"] if answers else "it gave no answer")
        if observation.begins_anew:
            raise EnvironmentLost("it begins the conversation anew, and a folder's has one alone")
        self.messages += answers
        self._errors = self._errors + 1 if observation.failed else 0
        self.broken = self._errors >= self._limits.errors
        self.done = self.broken or observation.done or self._turns >= self._limits.turns
        return [unrewarded(message) for message in observation.messages]

    def verdict(self) -> Verdict:
        """Return the verdict on what was said so far; an attempt that broke earns nothing."""
        if self.broken:
            return Verdict(0.0, False, "error")
        return self._domain.score(self._draft, self.messages)


def read_tasks(folder: Path) -> ExportedTasks:
    """Return the tasks of an exported folder; `folder` holds `TASKS` and `ABOUT`.

    Raises OSError where these cannot be read.
    """
    about = json.loads((folder / ABOUT).read_text(encoding="utf-8"))
    domain = made_domain(about["module"], about["attribute"], about["options"])
    with (folder / TASKS).open(encoding="utf-8") as lines:
        tasks = [task_of(json.loads(line)) for line in lines]
    limits = TurnLimits(about["max_turns"], about["max_errors"])
    said = f"{len(tasks)} tasks of {about['domain']} that pi_env wrote in the run {about['run_id']}"
    return ExportedTasks(tasks, domain, limits, said)


def made_domain(module: str, attribute: str, options: JsonObject) -> Domain:
    """Return the domain that something of a module of the folder makes of its options."""
    made: Any = import_module(_beside(module))
    for name in attribute.split("."):
        made = getattr(made, name)
    return getattr(made, "from_options", made)(options)


def task_of(line: Mapping[str, Any]) -> ExportedTask:
    """Return the task of a line of `TASKS`."""
    draft = TaskDraft(**{name: line[name] for name in DRAFT})
    return ExportedTask(line["task_id"], draft, line["passport"])


def right_attempt(domain: Domain, draft: TaskDraft) -> list[str]:
    """Return the turns of a right attempt; [] where the domain knows none."""
    try:
        return right_turns(domain, draft)
    except DomainError:
        return []


def _beside(module: str) -> str:
    """Return the full name of a module of the folder: beside `genenv_core`, wherever that is."""
    before = __name__.removesuffix("genenv_core.exchange.environments.playing")
    return f"{before}{module}"
