"""The domain of `sums.py` with seed data, so that `bootstrap` can make tiny models for it."""

import random

from sums import Sums

from genenv_core.domains.protocol import SeedExample
from genenv_core.types import AgentHistory, Context


class TinySums(Sums):
    name = "tiny_sums"

    def agent_examples(self, seed: int, count: int) -> list[SeedExample]:
        drafts = random.Random(seed).choices(self._tasks(seed, heldout=False), k=count)
        return [(self.agent_messages(draft), draft.ground_truth) for draft in drafts]

    def env_examples(self, seed: int, count: int, easy_skew: float) -> list[SeedExample]:
        rng, drafts = random.Random(seed), self._tasks(seed, heldout=False)
        # There are 8 times as many sums of one more term: 0 gives each length an equal share.
        weights = [8.0 ** (-draft.difficulty * (1 + easy_skew)) for draft in drafts]
        bases, written = rng.choices(drafts, k=count), rng.choices(drafts, weights, k=count)
        contexts = [Context("", "", b, AgentHistory(rng.random())) for b in bases]
        return [(self.env_messages(c), w.program) for c, w in zip(contexts, written, strict=True)]
