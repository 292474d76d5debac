"""The tasks of an exported folder behind OpenEnv's server; runs where `openenv` is installed.

A reset begins a task, by its index or its seed. Each action is one turn of the agent, a text with
its calls in it. The reward comes with the last observation; before it there is none.
"""

# pyright: reportMissingImports=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false, reportUntypedBaseClass=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from openenv.core.env_server import Action, Environment, Observation, State, create_app
from openenv.core.env_server.types import EnvironmentMetadata
from pydantic import Field

from genenv_core.exchange.environments.playing import ExportedAttempt, ExportedTasks, read_tasks
from genenv_core.types import JsonObject, Message

SPLIT = "train"
"""The only split: pi_env writes no test tasks."""

SESSIONS = 64
"""Connections at once, each with an attempt of its own."""


class TurnAction(Action):
    """One turn of the agent."""

    text: str = Field(..., description="what the agent says; calls of tools are in its text")


class AnswerObservation(Observation):
    """What the agent reads.

    `said` is all of it as one text. `messages` are the same as chat messages, and after a reset
    `tools` are those of the task, for a harness that shows them in its own way.
    """

    said: str = ""
    messages: list[dict[str, Any]] = Field(default_factory=list)
    tools: list[dict[str, Any]] = Field(default_factory=list)


class ExportedEnvironment(Environment):
    """One attempt at a time at one of the tasks."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self, tasks: ExportedTasks) -> None:
        """Serve these tasks."""
        super().__init__()
        self._tasks = tasks
        self._attempt: ExportedAttempt | None = None
        self._turns = 0

    def reset(
        self,
        seed: int | None = None,
        episode_id: str | None = None,
        index: int | None = None,
        split: str = SPLIT,
        **other: Any,
    ) -> AnswerObservation:
        """Begin a task: that of `index`, else the one that `seed` falls on."""
        del episode_id, other
        self._only(split)
        chosen = (seed or 0) % self.num_tasks(split) if index is None else index
        self._attempt, self._turns = self._tasks.attempt(chosen, seed or 0), 0
        return AnswerObservation(
            said=self._attempt.opening(),
            messages=[dict(one) for one in self._attempt.messages],
            tools=list(self._attempt.tools),
            metadata=self.get_task(split, chosen),
        )

    def step(
        self, action: TurnAction, timeout_s: float | None = None, **other: Any
    ) -> AnswerObservation:
        """Take a turn of the agent; raises ValueError before a reset."""
        del timeout_s, other
        if self._attempt is None:
            raise ValueError("there is no attempt: reset first")
        answers = self._attempt.say(action.text)
        self._turns += 1
        return _answered(self._attempt, answers)

    def get_metadata(self) -> EnvironmentMetadata:
        """Return what the tasks are."""
        return EnvironmentMetadata(name="genenv", description=self._tasks.about)

    @property
    def state(self) -> State:
        """Return how many turns were taken."""
        return State(step_count=self._turns)

    def list_splits(self) -> list[str]:
        """Return the one split."""
        return [SPLIT]

    def num_tasks(self, split: str) -> int:
        """Return how many tasks there are."""
        self._only(split)
        return len(self._tasks.tasks)

    def list_tasks(self, split: str) -> list[JsonObject]:
        """Return all tasks, as `get_task` does."""
        return [self.get_task(split, index) for index in range(self.num_tasks(split))]

    def get_task(self, split: str, index: int) -> JsonObject:
        """Return what an agent may know before an attempt: no answer, and nothing that judges one.

        Raises IndexError for a task that there is not, ValueError for another split.
        """
        if not 0 <= index < self.num_tasks(split):
            raise IndexError(f"task {index}: there are tasks 0 to {self.num_tasks(split) - 1}")
        task = self._tasks.tasks[index]
        return {
            "id": task.task_id,
            "index": index,
            "family": task.draft.family,
            "difficulty": task.draft.difficulty,
            "passport": task.passport,
        }

    def _only(self, split: str) -> None:
        if split != SPLIT:
            raise ValueError(f"split {split!r}: there is {SPLIT!r} alone")


def make_app(folder: Path, name: str) -> Any:
    """Return the app of an exported folder under a name, as uvicorn serves it."""
    factory = partial(ExportedEnvironment, read_tasks(folder))
    return create_app(
        factory, TurnAction, AnswerObservation, env_name=name, max_concurrent_envs=SESSIONS
    )


def _answered(attempt: ExportedAttempt, answers: list[Message]) -> AnswerObservation:
    said = "\n".join(message["content"] for message in answers)
    messages = [dict(one) for one in answers]
    if not attempt.done:
        return AnswerObservation(said=said, messages=messages)
    verdict = attempt.verdict()
    metadata = {"success": verdict.success, "failure": verdict.failure}
    return AnswerObservation(
        said=said, messages=messages, reward=verdict.reward, done=True, metadata=metadata
    )
