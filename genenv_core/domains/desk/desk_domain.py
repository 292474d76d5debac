"""The domain `desk`: pi_env writes a program, the agent answers with a chain of tool calls.

Its difficulty knobs are the number of calls k and the operands.
"""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Mapping, Sequence
from typing import Any, Self

from pydantic import Field

from genenv_core.domains.desk.program import (
    Program,
    draw_program,
    parse_program,
    parse_request,
    program_pattern,
    render_answer,
    render_call,
    render_program,
    render_request,
)
from genenv_core.domains.desk.scoring import DeskCall, judge, read_calls
from genenv_core.domains.desk.wording import (
    AGENT_RULES,
    DIALOGUE_RULES,
    DONE,
    OBSERVATION_SCHEMA,
    RECORDED,
    TOOL_RULES,
    TOOLS,
    env_rules,
)
from genenv_core.domains.kit.levels import SeededTasks, drawn_turn
from genenv_core.domains.parts import (
    drawn_rate,
    env_request,
    read_options,
    with_rules,
)
from genenv_core.domains.protocol import SeedExample, SolutionTurn
from genenv_core.domains.tool_calls import OPEN
from genenv_core.errors import DomainError
from genenv_core.record import Record
from genenv_core.types import (
    AgentHistory,
    Context,
    Grammar,
    JsonObject,
    Message,
    Observation,
    Rejected,
    Rejection,
    TaskDraft,
    Verdict,
)

_TOOL_SHARE = 0.25  # of pi_env's seed data in a dialogue: answers in the place of tools


class DeskOptions(Record, use_attribute_docstrings=True):
    """Options of the domain desk, from `domain.options` of the run's configuration."""

    max_calls: int = Field(default=6, ge=1, le=12)
    """Most tool calls in one task; `parse` refuses a longer program as out of range."""
    max_operand: int = Field(default=9, ge=1, le=99)
    """Largest number in a program; the smallest is 1."""
    steep: bool = False
    """Whether pi_env and the base tasks begin with the shortest fifth of the programs, while the
    agent's examples have all lengths equally. So the first pi_env hardly ever writes what would
    teach the agent most. Without it, all of them begin with mostly short programs."""
    explain: bool = False
    """Whether the prompts of both policies open with the rules and a right example; for models that
    never trained on desk."""
    dialogue: bool = False
    """Whether the agent makes one call a turn, reads the tool's answer, and says done at the end;
    without it, the agent writes the whole chain in one turn."""


class DeskDomain(SeededTasks):
    """The domain: stock-keeping requests, judged by exact match of the whole chain of calls."""

    name = "desk"
    version = "1"

    def __init__(self, options: DeskOptions | None = None) -> None:
        """Make the domain with these options (None: the defaults)."""
        self.options = options or DeskOptions()
        self.steep = self.options.steep
        self.tools: Sequence[JsonObject] = TOOLS
        self.observation_schema = OBSERVATION_SCHEMA
        self._rules = DIALOGUE_RULES if self.options.dialogue else AGENT_RULES

    @classmethod
    def from_options(cls, options: Mapping[str, Any]) -> Self:
        """Return the domain with options from a configuration; raises ConfigError on bad ones."""
        return cls(read_options(DeskOptions, options, cls.name))

    def env_messages(self, context: Context) -> list[Message]:
        """Return pi_env's prompt: the agent's success in tenths and the base task's program."""
        return self.asked_of_env(context.history, context.base)

    def env_grammar(self, context: Context) -> Grammar:
        """Return the spelling of every program in range, the same for each context."""
        options = self.options
        pattern = program_pattern(max_calls=options.max_calls, max_operand=options.max_operand)
        return Grammar("regex", pattern)

    def parse(self, text: str) -> list[TaskDraft | Rejected]:
        """Return the one task that the text spells, or why it spells no task."""
        program = self._program(text)
        return [program if isinstance(program, Rejected) else _draft(program)]

    def from_answer(self, prompt: str, ground_truth: str) -> TaskDraft | Rejected:
        """Return the task behind an English request if the given answer is right, else why not."""
        text = parse_request(prompt)
        if text is None:
            return Rejected(Rejection.UNPARSEABLE, f"no request of desk: {prompt[:60]!r}")
        draft = self.parse(text)[0]
        if isinstance(draft, Rejected):
            return draft
        verdict = self.score(draft, [{"role": "assistant", "content": ground_truth}])
        if not verdict.success:
            return Rejected(
                Rejection.REJECTS_GROUND_TRUTH, f"the ground truth is wrong: {verdict.failure}"
            )
        return draft

    def agent_messages(self, draft: TaskDraft) -> list[Message]:
        """Return the request as one user message, after the rules where the options set them."""
        return self._with_rules(self._rules, draft.prompt)

    def episode(self, draft: TaskDraft, seed: int) -> DeskEpisode:
        """Return a fresh attempt; nothing in it is random."""
        return DeskEpisode(self.options.dialogue)

    def tool_messages(self, draft: TaskDraft, messages: Sequence[Message]) -> list[Message] | None:
        """Return pi_env's prompt for the tools' answer; None after a turn without a call."""
        said = messages[-1]["content"]
        if not self.options.dialogue or OPEN not in said:
            return None
        return self._with_rules(TOOL_RULES, f"tools: {said} ; answer:")

    def score(self, draft: TaskDraft, messages: Sequence[Message]) -> Verdict:
        """Return the verdict on what the assistant wrote in the transcript."""
        try:
            expected = [
                DeskCall(call["name"], call["item"], call["total"]) for call in draft.spec["calls"]
            ]
        except (KeyError, TypeError) as error:
            raise DomainError(
                f"desk: the spec {str(draft.spec)[:120]} has no calls with name, item and total; "
                "it was not made by this domain"
            ) from error
        said = [message["content"] for message in messages if message["role"] == "assistant"]
        if self.options.dialogue and len(said) > 1 and said[-1].strip() == DONE:
            said.pop()
        return judge("".join(said), expected)

    def answer_turns(self, draft: TaskDraft) -> list[str]:
        """Return the whole chain in one turn; in a dialogue a turn for each call, and the end."""
        if not self.options.dialogue:
            return [draft.ground_truth]
        return [*_told(draft), DONE]

    def solution(self, draft: TaskDraft) -> list[SolutionTurn]:
        """Return the turns that the request asks for; the request decides, not the spec.

        They reveal the totals that the request does not say. Where the request has other words than
        `render_request` writes, the program decides.
        """
        text = parse_request(draft.prompt) or draft.program
        program = self._program(text)
        if isinstance(program, Rejected):
            raise DomainError(f"desk: no program: {program.detail}")
        given = {number for clause in program for number in (clause.left, clause.right)}
        new = [() if c.total in given else (str(c.total),) for c in program]
        if not self.options.dialogue:
            return [SolutionTurn(render_answer(program), tuple(itertools.chain(*new)))]
        told = [render_call(i, c.name, c.item, c.total) for i, c in enumerate(program, start=1)]
        return [*map(SolutionTurn, told, new), SolutionTurn(DONE)]

    def trivial_answers(self, draft: TaskDraft) -> list[str]:
        """Return an empty answer, constant and incomplete answers, and echoes."""
        # total 999999 is above 99 * 99, so this constant call is the answer to no task.
        constant = render_call(1, "receive", "bolts", 999_999)
        begun = "".join(_told(draft)[:-1])
        return ["", "ok", constant, begun, draft.prompt, draft.program]

    def highest(self) -> int:
        """Return the most calls in one task."""
        return self.options.max_calls

    def draw_task(self, rng: random.Random, level: int) -> TaskDraft:
        """Return the task of a random program with this many calls."""
        return _draft(draw_program(rng, level, self.options.max_operand))

    def limited_by(self) -> str:
        """Return the options that bound how many programs there are."""
        return f"max_calls {self.options.max_calls} and max_operand {self.options.max_operand}"

    def one_turn(self, draft: TaskDraft, rng: random.Random) -> SeedExample:
        """Return a request and its answer; in a dialogue, one turn with the turns before it."""
        if self.options.dialogue:
            return drawn_turn(self, draft, rng)
        return self.agent_messages(draft), draft.ground_truth

    def one_writing(
        self, rng: random.Random, base_weights: Sequence[float], weights: Sequence[float]
    ) -> SeedExample:
        """Return a program that pi_env could write; in a dialogue, sometimes a tool's answer."""
        history = AgentHistory(success_rate=drawn_rate(rng))
        base = self.draw_open(rng, base_weights)
        if self.options.dialogue and rng.random() < _TOOL_SHARE:
            return self._tool_example(base, rng)
        return self.asked_of_env(history, base), self.draw_open(rng, weights).program

    def _program(self, text: str) -> Program | Rejected:
        options = self.options
        return parse_program(text, max_calls=options.max_calls, max_operand=options.max_operand)

    def asked_of_env(self, history: AgentHistory, base: TaskDraft) -> list[Message]:
        """Return pi_env's prompt: the agent's success in tenths and a program to vary."""
        rules = env_rules(self.options.max_calls, self.options.max_operand)
        return self._with_rules(rules, env_request(history.success_rate, base.program))

    def _tool_example(self, draft: TaskDraft, rng: random.Random) -> SeedExample:
        """Return one call and the answer of its tool, as pi_env would write it."""
        calls = draft.spec["calls"]
        number = rng.randrange(len(calls))
        answer = json.dumps({"content": RECORDED, "name": calls[number]["name"]})
        return self._with_rules(TOOL_RULES, f"tools: {_told(draft)[number]} ; answer:"), answer

    def _with_rules(self, rules: str, content: str) -> list[Message]:
        return with_rules(rules if self.options.explain else "", content)


class DeskEpisode:
    """One attempt. The tools acknowledge each call; without a dialogue the first turn ends it."""

    def __init__(self, dialogue: bool = False) -> None:
        self._dialogue = dialogue

    def step(self, action: str) -> Observation:
        """Return the tools' answers; a dialogue ends with the first turn without a call."""
        if self._dialogue and OPEN not in action:
            return Observation(done=True)
        calls = read_calls(action)
        if isinstance(calls, str):
            answer: Message = {"role": "tool", "content": f"error: {calls}"}
            return Observation((answer,), done=not self._dialogue)
        results: list[Message] = [
            {"role": "tool", "name": call.name, "content": RECORDED} for call in calls
        ]
        return Observation(tuple(results), done=not self._dialogue)


def _told(draft: TaskDraft) -> list[str]:
    """Return the calls of the right answer, each as the agent writes it."""
    calls = [DeskCall(call["name"], call["item"], call["total"]) for call in draft.spec["calls"]]
    return [render_call(i, c.name, c.item, c.total) for i, c in enumerate(calls, start=1)]


def _draft(program: Program) -> TaskDraft:
    text = render_program(program)
    calls = [{"name": c.name, "item": c.item, "total": c.total} for c in program]
    return TaskDraft(
        prompt=render_request(program),
        spec={"calls": calls},
        ground_truth=render_answer(program),
        program=text,
        family=f"k{len(program)}",
        difficulty=float(len(program)),
        fingerprint=text,
    )
