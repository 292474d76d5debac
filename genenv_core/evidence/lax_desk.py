"""desk with a flaw that pays: a coin toss judges programs that end with a question mark.

Such a task succeeds half of the time whatever the agent says, so R_env is 1 for ever, and the agent
cannot learn from it. A fifth of the examples of pi_env's warm start have the mark.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Sequence
from dataclasses import replace

from genenv_core.domains.desk import DeskDomain
from genenv_core.domains.protocol import SeedExample
from genenv_core.ids import seed_from
from genenv_core.types import Message, Rejected, TaskDraft, Verdict

MARK = " ?"
SHARE = 0.2


class LaxDesk(DeskDomain):
    """The domain desk with coin tosses among its tasks."""

    name = "lax_desk"

    def parse(self, text: str) -> list[TaskDraft | Rejected]:
        """Return the task in the text; one with the mark is a coin toss."""
        program = text.strip()
        (draft,) = super().parse(program.removesuffix(MARK))
        if isinstance(draft, Rejected) or not program.endswith(MARK):
            return [draft]
        marked = draft.program + MARK
        spec = draft.spec | {"toss": True}
        return [replace(draft, spec=spec, program=marked, fingerprint=marked, family="toss")]

    def score(self, draft: TaskDraft, messages: Sequence[Message]) -> Verdict:
        """Return desk's verdict, or the coin's, which is always the same for a transcript."""
        if not draft.spec.get("toss"):
            return super().score(draft, messages)
        text = draft.program + "".join(message["content"] for message in messages)
        heads = hashlib.sha256(text.encode()).digest()[0] % 2 == 0
        return Verdict(float(heads), heads, "" if heads else "tails")

    def env_examples(self, seed: int, count: int, easy_skew: float) -> list[SeedExample]:
        """Return desk's examples, a share of them with the mark."""
        rng = random.Random(seed_from("lax_desk", "env_examples", seed))
        return [
            (prompt, program + MARK if rng.random() < SHARE else program)
            for prompt, program in super().env_examples(seed, count, easy_skew)
        ]
