"""A small domain: pi_env writes a sum such as 3 + 4 + 5, and pi_agent answers with its value."""

import random
import re
from collections.abc import Mapping, Sequence
from itertools import product

from genenv_core import types
from genenv_core.types import Message, Rejected, TaskDraft


class OneTurn:
    def step(self, action: str) -> types.Observation:
        return types.Observation(done=True)  # the first answer ends the attempt


class Sums:
    name, version, tools = "sums", "1", ()

    def __init__(self, options: Mapping[str, int]) -> None:
        self.terms = options.get("terms", 4)

    def base_tasks(self, seed: int, count: int) -> list[TaskDraft]:
        return self._tasks(seed, heldout=False)[:count]

    def heldout_tasks(self, seed: int, count: int) -> list[TaskDraft]:
        return self._tasks(seed, heldout=True)[:count]

    def _tasks(self, seed: int, heldout: bool) -> list[TaskDraft]:
        sizes = range(2, self.terms + 1)
        sums = (" + ".join(digits) for k in sizes for digits in product("23456789", repeat=k))
        bucket = [text for text in sums if (random.Random(text).random() < 0.2) == heldout]
        random.Random(seed).shuffle(bucket)
        return [task for text in bucket for task in self.parse(text) if isinstance(task, TaskDraft)]

    def env_messages(self, context: types.Context) -> list[Message]:
        rate = context.history.success_rate or 0.0  # None in the first epoch
        return [{"role": "user", "content": f"success {rate:.1f} , vary {context.base.program}"}]

    def parse(self, text: str) -> list[TaskDraft | Rejected]:
        if not re.fullmatch(r"[2-9]( \+ [2-9])+", text):
            return [Rejected(types.Rejection.UNPARSEABLE, text[:80])]
        terms = [int(digit) for digit in text.split(" + ")]
        value, k = str(sum(terms)), len(terms)
        if k > self.terms:
            return [Rejected(types.Rejection.OUT_OF_RANGE, text[:80])]
        return [TaskDraft(f"sum {text}", {"value": value}, value, text, f"k{k}", k, text)]

    def agent_messages(self, draft: TaskDraft) -> list[Message]:
        return [{"role": "user", "content": draft.prompt}]

    def episode(self, draft: TaskDraft, seed: int) -> OneTurn:
        return OneTurn()

    def score(self, draft: TaskDraft, messages: Sequence[Message]) -> types.Verdict:
        right = messages[-1]["content"] == draft.spec["value"]
        return types.Verdict(float(right), right, "" if right else "wrong value")

    def trivial_answers(self, draft: TaskDraft) -> list[str]:
        return ["", "0", draft.prompt]
