"""A sound toy domain, in chosen tasks of which each of the nine flaws can be planted.

The plants are options, so that the command line can name them: `plants` maps a flaw to the numbers
of its tasks, and `breaks` maps a number to what its trivial answers do: raise, hang or lose the
environment.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from genenv_core.domains.protocol import SolutionTurn
from genenv_core.domains.steps import EnvironmentLost
from genenv_core.domains.tool_calls import written
from genenv_core.play.certificate import CANARIES
from genenv_core.types import Context, Flaw, Message, Observation, TaskDraft, Verdict

HELDOUT = 1000
"""Number of the first held-out task; base tasks begin at 0."""


class Unsolved:
    """Seven times a number, by a tool; nobody says how the task is attempted."""

    name, version = "sevens", "1"
    tools: Sequence[Any] = (
        {"type": "function", "function": {"name": "times", "description": "", "parameters": {}}},
    )

    def __init__(self, options: Mapping[str, Any]) -> None:
        self.plants = {
            int(number): Flaw(flaw)
            for flaw, numbers in options.get("plants", {}).items()
            for number in numbers
        }
        self.breaks = {int(number): how for number, how in options.get("breaks", {}).items()}
        self.calls: Counter[str] = Counter()

    def has(self, draft: TaskDraft, flaw: Flaw) -> bool:
        return self.plants.get(draft.spec["number"]) is flaw

    def base_tasks(self, seed: int, count: int) -> list[TaskDraft]:
        return [self.task(number) for number in range(count)]

    def heldout_tasks(self, seed: int, count: int) -> list[TaskDraft]:
        return [self.task(HELDOUT + number) for number in range(count)]

    def task(self, number: int) -> TaskDraft:
        plant, right = self.plants.get(number), 7 * (number + 11)
        hint = f" It is {right}." if plant is Flaw.LEAKS_ANSWER else ""
        truth = right + (plant is Flaw.REJECTS_GROUND_TRUTH)
        spec: dict[str, Any] = {"number": number, "right": str(right)}
        prompt = f"What is 7 times {number + 11}?{hint}"
        return TaskDraft(prompt, spec, str(truth), str(number), "sevens", 1.0, f"sevens {number}")

    def env_messages(self, context: Context) -> list[Message]:
        return [{"role": "user", "content": "write a number"}]

    def agent_messages(self, draft: TaskDraft) -> list[Message]:
        return [{"role": "user", "content": draft.prompt}]

    def parse(self, text: str) -> list[TaskDraft]:
        return [self.task(int(text))]

    def trivial_answers(self, draft: TaskDraft) -> list[str]:
        how = self.breaks.get(draft.spec["number"])
        if how == "raises":
            raise KeyError("no such number")
        if how == "hangs":
            time.sleep(60)
        if how == "lost":
            raise EnvironmentLost("no answer from http://tools")
        return ["", "ok", draft.prompt]

    def score(self, draft: TaskDraft, messages: Sequence[Message]) -> Verdict:
        self.calls["score"] += 1
        said = [one["content"] for one in messages if one["role"] == "assistant"][-1]
        right = said == draft.spec["right"]
        right |= said == "ok" and self.has(draft, Flaw.ACCEPTS_TRIVIAL)
        right |= said in CANARIES and self.has(draft, Flaw.ACCEPTS_CANARY)
        if right:
            return Verdict(1.0, True)
        drift = self.calls["score"] / 1e6 if self.has(draft, Flaw.UNSTEADY_VERDICT) else 0.0
        return Verdict(drift, False, "wrong")

    def episode(self, draft: TaskDraft, seed: int) -> Sevens:
        self.calls["episode"] += 1
        return Sevens(self, draft, seed)


class Sevens:
    """The tool, and the end of an attempt with its answer."""

    def __init__(self, domain: Unsolved, draft: TaskDraft, seed: int) -> None:
        self.domain, self.draft, self.seed = domain, draft, seed

    def step(self, action: str) -> Observation:
        right, told = self.draft.spec["right"], list[Message]()
        if '"times"' in action or '"multiply"' in action:
            if self.seed % 2 and self.domain.has(self.draft, Flaw.AMBIGUOUS):
                raise OSError("no connection")
            return Observation(({"role": "tool", "content": right},), done=False)
        if self.domain.has(self.draft, Flaw.LEAKS_EARLY):
            told.append({"role": "tool", "content": f"not {right}"})
        return Observation(tuple(told), done=True)


class Answered(Unsolved):
    """The same, with one reference answer, which says no parts."""

    def answer_turns(self, draft: TaskDraft) -> list[str]:
        return [draft.spec["right"]]


class Planted(Unsolved):
    """The same, with a solution of two turns whose tool reveals the answer."""

    def solution(self, draft: TaskDraft) -> list[SolutionTurn]:
        right = int(draft.spec["right"])
        tool = "multiply" if self.has(draft, Flaw.UNKNOWN_TOOL) else "times"
        call = written({"name": tool, "arguments": {"number": right // 7}})
        answer = right + self.has(draft, Flaw.UNREACHABLE)
        return [SolutionTurn(call, (str(right),)), SolutionTurn(str(answer))]


class Played(Planted):
    """The same, judged while it is played."""

    judged_while_played = True
