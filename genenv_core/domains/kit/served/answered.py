"""An environment that says which text solves a task in one turn."""

from __future__ import annotations

import random

from genenv_core.domains.kit.served.programs import spelled
from genenv_core.domains.kit.served.served_domain import ServedDomain
from genenv_core.domains.parts import TRIES, drawn_rate
from genenv_core.domains.protocol import SeedExample
from genenv_core.ids import seed_from
from genenv_core.types import AgentHistory, Context, TaskDraft


class AnsweredDomain(ServedDomain):
    """Its tasks have a right answer, so genenv can check them and make tiny models for them."""

    def answer_turns(self, draft: TaskDraft) -> list[str]:
        """Return the answer, which is the only turn."""
        return [draft.ground_truth]

    def agent_examples(self, seed: int, count: int) -> list[SeedExample]:
        """Return requests that are not held out, with their answers; it may repeat some."""
        drafts = self.open_tasks(seed_from(self.name, "agent_examples", seed), count)
        return [(self.agent_messages(draft), draft.ground_truth) for draft in drafts]

    def env_examples(self, seed: int, count: int, easy_skew: float) -> list[SeedExample]:
        """Return prompts for pi_env with programs; only attempts can say which are easy."""
        del easy_skew
        rng = random.Random(seed_from(self.name, "env_examples", seed))
        examples: list[SeedExample] = []
        while len(examples) < count:
            base, new = (self._program(rng) for _ in range(2))
            rate = drawn_rate(rng)
            draft = TaskDraft("", {}, "", base, "", 1.0, base)
            asked = Context("", "", draft, AgentHistory(success_rate=rate))
            examples.append((self.env_messages(asked), new))
        return examples

    def _program(self, rng: random.Random) -> str:
        drawn = (self.resets.draw(rng) for _ in range(TRIES))
        return next(spelled(one) for one in drawn if not self.is_heldout(one))
