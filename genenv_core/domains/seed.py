"""The optional SeedData protocol: what lets `bootstrap` warm-start tiny models for a domain."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from genenv_core.types import Message

SeedExample = tuple[list[Message], str]
"""A prompt in chat messages and the text that the policy should answer with."""


@runtime_checkable
class SeedData(Protocol):
    """A domain that can write its own supervised examples.

    The caller may rely on: equal arguments give equal lists; prompts look as `agent_messages` and
    `env_messages` build them; nothing equals a task that `heldout_tasks` could ever return.
    """

    def agent_examples(self, seed: int, count: int) -> list[SeedExample]:
        """Return `count` requests with their right answers, mostly easy ones."""
        ...

    def env_examples(self, seed: int, count: int, easy_skew: float) -> list[SeedExample]:
        """Return `count` prompts for pi_env with valid generations.

        `easy_skew` in [0, 1]: 0 = difficulty uniform, 1 = nearly all of the lowest difficulty.
        """
        ...
