"""Tasks of a domain that draws one of any level: base tasks, held-out tasks, seed data.

`LevelledTasks` decides how many tasks of each level there are, and keeps base tasks and held-out
tasks apart. `SeededTasks` also makes supervised examples of such a domain. The domain itself says
how to draw, ask for and solve a task of a level.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import ClassVar, Protocol

from genenv_core.domains.parts import (
    by_weight,
    distinct,
    draw_open,
    drawn_rate,
    env_weights,
    even_weights,
    in_turn,
    mixed_weights,
    skewed_weights,
    steep_weights,
)
from genenv_core.domains.protocol import Episode, SeedExample, SolutionTurn
from genenv_core.ids import seed_from
from genenv_core.types import AgentHistory, Message, TaskDraft


class LevelledTasks(ABC):
    """Base tasks and held-out tasks of a domain that draws a task of any level."""

    name: str
    more_tasks: ClassVar[str] = "raise the options"
    """How to get more tasks, for the error of too few."""
    steep: bool = False
    """Whether base tasks and pi_env's examples are nearly all of the easiest fifth of the levels,
    while the agent's examples have all levels equally. Without it, all of them are mostly easy."""

    @abstractmethod
    def highest(self) -> int:
        """Return the highest level, from 1."""

    @abstractmethod
    def draw_task(self, rng: random.Random, level: int) -> TaskDraft:
        """Return a random task of a level, inside or outside of the held-out bucket."""

    def limited_by(self) -> str:
        """Return the options that bound the number of tasks, for the error of too few."""
        return ""

    def base_weights(self) -> list[float]:
        """Return the shares of levels 1, 2, ... in base tasks, which need not sum to 1."""
        most = self.highest()
        return steep_weights(most) if self.steep else mixed_weights(most)

    def base_tasks(self, seed: int, count: int) -> list[TaskDraft]:
        """Return `count` distinct tasks outside the held-out bucket, most of them easy.

        Raises ConfigError where there are fewer.
        """
        rng = random.Random(seed_from(self.name, "base", seed))
        return self.distinct_tasks(rng, count, by_weight(rng, self.base_weights()), heldout=False)

    def heldout_tasks(self, seed: int, count: int) -> list[TaskDraft]:
        """Return `count` distinct tasks of the held-out bucket, equally many of each level.

        Raises ConfigError where there are fewer.
        """
        rng = random.Random(seed_from(self.name, "heldout", seed))
        drafts = self.distinct_tasks(rng, count, in_turn(), heldout=True)
        rng.shuffle(drafts)
        return drafts

    def distinct_tasks(
        self,
        rng: random.Random,
        count: int,
        pick: Callable[[Sequence[int]], int],
        *,
        heldout: bool,
    ) -> list[TaskDraft]:
        """Return `count` distinct tasks of levels that `pick` chooses, all held out or all not.

        Raises ConfigError where there are fewer.
        """

        def draw(level: int) -> TaskDraft:
            return self.draw_task(rng, level)

        return distinct(
            count,
            self.highest(),
            pick,
            draw,
            heldout=heldout,
            domain=self.name,
            bounds=self.limited_by(),
            more=self.more_tasks,
        )

    def draw_open(self, rng: random.Random, weights: Sequence[float]) -> TaskDraft:
        """Return a drawn task outside of the held-out bucket; `weights` are shares of levels."""
        return draw_open(rng, weights, lambda level: self.draw_task(rng, level))


class SolvesItself(Protocol):
    """A domain that knows how to solve its tasks, and plays attempts."""

    def agent_messages(self, draft: TaskDraft) -> list[Message]:
        """Return the messages that open an attempt."""
        ...

    def episode(self, draft: TaskDraft, seed: int) -> Episode:
        """Return a fresh attempt."""
        ...

    def solution(self, draft: TaskDraft) -> list[SolutionTurn]:
        """Return the turns of a right attempt."""
        ...


def drawn_turn(domain: SolvesItself, draft: TaskDraft, rng: random.Random) -> SeedExample:
    """Return a random turn of a right attempt: the messages before it, and its text."""
    turns = [turn.says for turn in domain.solution(draft)]
    chosen = rng.randrange(len(turns))
    messages, episode = list(domain.agent_messages(draft)), domain.episode(draft, 0)
    for says in turns[:chosen]:
        seen, before = episode.step(says), list(messages)
        before.append({"role": "assistant", "content": says})
        messages = [*([] if seen.anew else before), *seen.messages]
    return messages, turns[chosen]


class SeededTasks(LevelledTasks):
    """A domain of levels that can solve its own tasks, and so makes its seed data."""

    @abstractmethod
    def asked_of_env(self, history: AgentHistory, base: TaskDraft) -> list[Message]:
        """Return pi_env's prompt: the agent's success, and a base task to vary."""

    @abstractmethod
    def one_turn(self, draft: TaskDraft, rng: random.Random) -> SeedExample:
        """Return one turn of a right attempt: the messages before it, and the agent's text."""

    def example_weights(self) -> list[float]:
        """Return the shares of levels 1, 2, ... in `agent_examples`, which need not sum to 1."""
        most = self.highest()
        return even_weights(most) if self.steep else mixed_weights(most)

    def written_weights(self, easy_skew: float) -> list[float]:
        """Return the shares of levels that pi_env writes in `env_examples`; equal ones at skew 0.

        They need not sum to 1.
        """
        most = self.highest()
        if self.steep:
            return skewed_weights(steep_weights(most), easy_skew)
        return env_weights(most, easy_skew)

    def agent_examples(self, seed: int, count: int) -> list[SeedExample]:
        """Return `count` turns of right attempts; few are at hard tasks, unless `steep` is set."""
        rng = random.Random(seed_from(self.name, "agent_examples", seed))
        weights = self.example_weights()
        return [self.one_turn(self.draw_open(rng, weights), rng) for _ in range(count)]

    def env_examples(self, seed: int, count: int, easy_skew: float) -> list[SeedExample]:
        """Return `count` prompts of pi_env, each with a task that it could write there."""
        rng = random.Random(seed_from(self.name, "env_examples", seed))
        base_weights, weights = self.base_weights(), self.written_weights(easy_skew)
        return [self.one_writing(rng, base_weights, weights) for _ in range(count)]

    def one_writing(
        self, rng: random.Random, base_weights: Sequence[float], weights: Sequence[float]
    ) -> SeedExample:
        """Return a prompt of pi_env, and a task to write there that does not depend on its base."""
        history = AgentHistory(success_rate=drawn_rate(rng))
        prompt = self.asked_of_env(history, self.draw_open(rng, base_weights))
        return prompt, self.draw_open(rng, weights).program
