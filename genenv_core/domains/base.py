"""The Domain protocol: everything genenv needs to know about a kind of task.

A domain is stateless and deterministic: the same arguments give the same answer in every process.
It never sees token ids, models or storage.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from genenv_core.types import (
    Context,
    JsonObject,
    Message,
    Observation,
    Rejected,
    TaskDraft,
    Verdict,
)


class Episode(Protocol):
    """One attempt in progress.

    `step` may raise anything: the agent is told of it as an observation, and the step counts as not
    having happened, so it leaves the episode as it was. With `tools.execution: pool` steps of
    several episodes run side by side, each episode's one after the other; one that takes too long
    is given up, and the episode is made anew by repeating the actions before it.
    """

    def step(self, action: str) -> Observation:
        """Return the environment's answer to the agent's text of this turn."""
        ...


class Domain(Protocol):
    """A kind of task. Built-ins are in `genenv_core.domains.registry`; others are plug-ins.

    `version` is part of every stage key that uses the domain: raise it when the same program
    would give another task or another verdict.
    """

    name: str
    version: str
    tools: Sequence[JsonObject]

    def base_tasks(self, seed: int, count: int) -> list[TaskDraft]:
        """Return `count` distinct base tasks, the data that the game starts from."""
        ...

    def heldout_tasks(self, seed: int, count: int) -> list[TaskDraft]:
        """Return `count` distinct tasks for evaluation only, disjoint from `base_tasks`."""
        ...

    def env_messages(self, context: Context) -> list[Message]:
        """Return pi_env's prompt for this context."""
        ...

    def parse(self, text: str) -> list[TaskDraft | Rejected]:
        """Return the tasks in one generation, in order; what is no task as `Rejected`.

        Never raises on bad text; never returns an empty list.
        """
        ...

    def agent_messages(self, draft: TaskDraft) -> list[Message]:
        """Return the messages that open an attempt at this task."""
        ...

    def episode(self, draft: TaskDraft, seed: int) -> Episode:
        """Return a fresh attempt; `seed` decides any randomness of its environment.

        With `tools.execution: pool` it is opened as steps are executed: beside others, within the
        time limit. Without, what takes time holds up everything.
        """
        ...

    def score(self, draft: TaskDraft, messages: Sequence[Message]) -> Verdict:
        """Return the verdict on a transcript; pure, so stored traces can be scored again."""
        ...

    def trivial_answers(self, draft: TaskDraft) -> list[str]:
        """Return answers that no sound spec accepts: empty, constant, an echo of the prompt."""
        ...
