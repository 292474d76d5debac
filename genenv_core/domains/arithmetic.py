"""The domain `arithmetic`: pi_env writes `43 + 8 - 4`, and pi_agent answers `47`.

Prompts and answers are a few tokens long, so a pretrained model of 100 M parameters can train on
them without a GPU. The difficulty is the number of signs. Only the first number may have two
digits: with three shots, SmolLM2-135M has P(answer) .69 on sums such as `13 + 8`, and .12 on sums
such as `13 + 18`.
"""

from __future__ import annotations

import random
import re
from dataclasses import replace

from pydantic import Field

from genenv_core.domains.kit import Options, SolvedDomain, judges, task
from genenv_core.domains.parts import env_request, env_weights, with_rules
from genenv_core.types import Context, Grammar, Message, Rejected, Rejection, TaskDraft, Verdict

MOST_TERMS = 8
LARGEST = 99  # two digits, as the pattern has it
DIGIT = 9

_NUMBER = "[1-9][0-9]?"


class ArithmeticOptions(Options):
    """Options of the domain arithmetic, from `domain.options` of the run's configuration."""

    terms: int = Field(default=4, ge=2, le=MOST_TERMS)
    """Most numbers in one task; `read` refuses a task with more as out of range."""
    first: int = Field(default=50, ge=DIGIT, le=LARGEST)
    """Largest first number of a task; with a larger one it is out of range."""
    others: int = Field(default=DIGIT, ge=DIGIT, le=LARGEST)
    """Largest of the numbers after it."""
    minus: bool = True
    """Whether tasks subtract numbers as well as add them; false: `read` refuses a task with a minus
    sign."""


class Arithmetic(SolvedDomain[ArithmeticOptions]):
    """Sums and differences of small whole numbers, worked out from left to right."""

    name = "arithmetic"
    version = "1"
    options_type = ArithmeticOptions
    pattern = f"{_NUMBER}( [+-] {_NUMBER})+"
    agent_rules = "Answer with the number alone."

    def levels(self) -> int:
        """Return the most signs in one task."""
        return self.options.terms - 1

    def draw(self, rng: random.Random, level: int) -> str:
        """Return random numbers with as many random signs between them as the level says."""
        signs = " + ", " - "
        text = str(rng.randint(1, self.options.first))
        for _ in range(level):
            sign = rng.choice(signs) if self.options.minus else signs[0]
            text += f"{sign}{rng.randint(1, self.options.others)}"
        return text

    def read(self, text: str) -> TaskDraft | Rejected:
        """Return the task of a program, or why it is no task.

        No result on the way is below zero. The last result is none of the numbers, so an agent that
        repeats a number of the request has no right answer.
        """
        numbers = [int(number) for number in re.findall("[0-9]+", text)]
        for number, most in zip(numbers, self._most(len(numbers)), strict=True):
            if number > most:
                return Rejected(Rejection.OUT_OF_RANGE, f"{number}, at most {most} there")
        if "-" in text and not self.options.minus:
            return Rejected(Rejection.OUT_OF_RANGE, "a difference, where minus is false")
        results = _running(text)
        value, level = results[-1], len(results) - 1
        if min(results) < 0:
            return Rejected(Rejection.INCONSISTENT, f"{min(results)} on the way, at least 0")
        if value in numbers:
            return Rejected(Rejection.INCONSISTENT, f"the result {value} is one of its numbers")
        made = task(text, f"{text} =", str(value), level)
        return replace(made, family=f"{'minus' if '-' in text else 'plus'}{level}")

    def judge(self, draft: TaskDraft, answer: str) -> Verdict:
        """Return whether the answer is the number and nothing else."""
        return judges.exact(answer, draft.ground_truth)

    def solve(self, draft: TaskDraft) -> str:
        """Return the result of what the request says."""
        return str(_running(draft.prompt.removesuffix(" ="))[-1])

    def answer_turns(self, draft: TaskDraft) -> list[str]:
        """Return the number, which is the only turn."""
        return [draft.ground_truth]

    def example_weights(self) -> list[float]:
        """Return the shares of the levels in the agent's examples; nearly all are of the easiest.

        A model of 100 M parameters learns little from long ones.
        """
        return env_weights(self.highest(), 1.0)

    def env_prompt(self, rate: float | None, base: str) -> list[Message]:
        """Return pi_env's prompt: one sentence on what to write, then the usual request.

        The kit's rules with their example would be longer than most tasks.
        """
        signs = "+ or -" if self.options.minus else "+"
        rules = (
            f"Write 2 to {self.options.terms} numbers with {signs} between them, the first up to "
            f"{self.options.first}, the others up to {self.options.others}."
        )
        return with_rules(rules if self.options.explain else "", env_request(rate, base))

    def _most(self, count: int) -> list[int]:
        """Return the largest value allowed for each of `count` numbers."""
        return [self.options.first, *[self.options.others] * (count - 1)]

    def env_grammar(self, context: Context) -> Grammar:
        """Return a regular expression for programs with as many numbers as the options allow."""
        spelled = f"{_NUMBER}( [{'+-' if self.options.minus else '+'}] {_NUMBER})"
        return Grammar("regex", f"{spelled}{{1,{self.levels()}}}")


def _running(text: str) -> list[int]:
    """Return all results while working out `43 + 8 - 4`; the first one is its first number."""
    first, *rest = text.split()
    results = [int(first)]
    for sign, number in zip(rest[::2], rest[1::2], strict=True):
        results.append(results[-1] + (int(number) if sign == "+" else -int(number)))
    return results
