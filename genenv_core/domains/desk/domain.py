"""The domain `desk`: pi_env writes a program, the agent answers with a chain of tool calls.

Its difficulty knobs are the number of calls k and the operands.
"""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Callable, Mapping, Sequence
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
from genenv_core.domains.parts import (
    by_weight,
    distinct,
    draw_open,
    drawn_rate,
    env_request,
    env_weights,
    even_weights,
    in_turn,
    mixed_weights,
    read_options,
    skewed_weights,
    steep_weights,
    with_rules,
)
from genenv_core.domains.protocol import SeedExample, SolutionTurn
from genenv_core.domains.tool_calls import OPEN
from genenv_core.errors import DomainError
from genenv_core.ids import seed_from
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
    """Most tool calls in one task; a longer program is out of range."""
    max_operand: int = Field(default=9, ge=1, le=99)
    """Largest number in a program; the smallest is 1."""
    steep: bool = False
    """Whether pi_env and the base tasks begin with the shortest fifth of the programs, while the
    agent knows a little of every length: what could teach it most, the first pi_env hardly writes.
    Else all of them begin with mostly short programs."""
    explain: bool = False
    """Whether the prompts of both policies open with the rules, each with an example that is right;
    for models that were never trained on desk."""
    dialogue: bool = False
    """Whether the agent makes one call a turn, reads what the tool answers, and says done at the
    end; else it writes the whole chain in one turn."""


class DeskDomain:
    """Stock-keeping requests, judged by exact match of the whole chain of calls."""

    name = "desk"
    version = "1"

    def __init__(self, options: DeskOptions | None = None) -> None:
        """Make the domain with these options (None: the defaults)."""
        self.options = options or DeskOptions()
        self.tools: Sequence[JsonObject] = TOOLS
        self.observation_schema = OBSERVATION_SCHEMA
        self._rules = DIALOGUE_RULES if self.options.dialogue else AGENT_RULES

    @classmethod
    def from_options(cls, options: Mapping[str, Any]) -> Self:
        """Return the domain with options out of a configuration; raises ConfigError on bad ones."""
        return cls(read_options(DeskOptions, options, cls.name))

    def base_tasks(self, seed: int, count: int) -> list[TaskDraft]:
        """Return `count` distinct base tasks, easy and mixed, none from the held-out bucket."""
        rng = random.Random(seed_from("desk", "base", seed))
        return self._distinct(rng, count, by_weight(rng, self._base_weights), heldout=False)

    def heldout_tasks(self, seed: int, count: int) -> list[TaskDraft]:
        """Return `count` distinct tasks of the held-out bucket, lengths in equal shares."""
        rng = random.Random(seed_from("desk", "heldout", seed))
        drafts = self._distinct(rng, count, in_turn(), heldout=True)
        rng.shuffle(drafts)
        return drafts

    def env_messages(self, context: Context) -> list[Message]:
        """Return pi_env's prompt: the agent's success in tenths and the base task's program."""
        return self._env_prompt(context.history, context.base.program)

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
        """Return the task behind an English request, if the answer given for it is right."""
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
        """Return the request as one user message, after the rules where they are asked for."""
        return self._with_rules(self._rules, draft.prompt)

    def episode(self, draft: TaskDraft, seed: int) -> DeskEpisode:
        """Return a fresh attempt; nothing in it is random."""
        return DeskEpisode(self.options.dialogue)

    def tool_messages(self, draft: TaskDraft, messages: Sequence[Message]) -> list[Message] | None:
        """Return pi_env's prompt for what the tools answer; None where no call was made."""
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
        """Return the whole chain in one turn, or in a dialogue a turn for each call and the end."""
        if not self.options.dialogue:
            return [draft.ground_truth]
        return [*_told(draft), DONE]

    def solution(self, draft: TaskDraft) -> list[SolutionTurn]:
        """Return the turns that the request asks for, whatever the spec says.

        They reveal the totals that are no number of the request. A request with other words in it
        counts as the program's.
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
        """Return the empty answer, constant and incomplete ones, and echoes."""
        # total 999999 is above 99 * 99, so this constant call is the answer to no task.
        constant = render_call(1, "receive", "bolts", 999_999)
        begun = "".join(_told(draft)[:-1])
        return ["", "ok", constant, begun, draft.prompt, draft.program]

    def agent_examples(self, seed: int, count: int) -> list[SeedExample]:
        """Return `count` requests with their right answers.

        Few of them are long, unless the desk is steep: then all lengths have equal shares.
        """
        rng = random.Random(seed_from("desk", "agent_examples", seed))
        most = self.options.max_calls
        weights = even_weights(most) if self.options.steep else mixed_weights(most)
        examples: list[SeedExample] = []
        while len(examples) < count:
            program = self._draw_open(rng, weights)
            prompt = self._with_rules(self._rules, render_request(program))
            if self.options.dialogue:
                examples.append(_one_turn(prompt, program, rng.randint(0, len(program))))
            else:
                examples.append((prompt, render_answer(program)))
        return examples

    def env_examples(self, seed: int, count: int, easy_skew: float) -> list[SeedExample]:
        """Return `count` prompts of pi_env, each with a program independent of it."""
        rng = random.Random(seed_from("desk", "env_examples", seed))
        most, base_weights = self.options.max_calls, self._base_weights
        if self.options.steep:
            weights = skewed_weights(steep_weights(most), easy_skew)
        else:
            weights = env_weights(most, easy_skew)
        examples: list[SeedExample] = []
        while len(examples) < count:
            rate = drawn_rate(rng)
            base_program = self._draw_open(rng, base_weights)
            if self.options.dialogue and rng.random() < _TOOL_SHARE:
                examples.append(self._tool_example(base_program, rng))
                continue
            prompt = self._env_prompt(AgentHistory(success_rate=rate), render_program(base_program))
            examples.append((prompt, render_program(self._draw_open(rng, weights))))
        return examples

    @property
    def _base_weights(self) -> list[float]:
        most = self.options.max_calls
        return steep_weights(most) if self.options.steep else mixed_weights(most)

    def _distinct(
        self,
        rng: random.Random,
        count: int,
        pick: Callable[[Sequence[int]], int],
        *,
        heldout: bool,
    ) -> list[TaskDraft]:
        options = self.options

        def draw(calls: int) -> TaskDraft:
            return _draft(draw_program(rng, calls, options.max_operand))

        bounds = f"max_calls {options.max_calls} and max_operand {options.max_operand}"
        return distinct(
            count,
            options.max_calls,
            pick,
            draw,
            heldout=heldout,
            domain=self.name,
            bounds=bounds,
        )

    def _program(self, text: str) -> Program | Rejected:
        options = self.options
        return parse_program(text, max_calls=options.max_calls, max_operand=options.max_operand)

    def _draw_open(self, rng: random.Random, weights: Sequence[float]) -> Program:
        most = self.options.max_operand
        return draw_open(rng, weights, lambda calls: draw_program(rng, calls, most), render_program)

    def _env_prompt(self, history: AgentHistory, base: str) -> list[Message]:
        rules = env_rules(self.options.max_calls, self.options.max_operand)
        return self._with_rules(rules, env_request(history.success_rate, base))

    def _tool_example(self, program: Program, rng: random.Random) -> SeedExample:
        """Return one call and what a tool answers to it, as pi_env would write it."""
        number = rng.randrange(len(program))
        clause = program[number]
        call = render_call(number + 1, clause.name, clause.item, clause.total)
        answer = json.dumps({"content": RECORDED, "name": clause.name})
        return self._with_rules(TOOL_RULES, f"tools: {call} ; answer:"), answer

    def _with_rules(self, rules: str, content: str) -> list[Message]:
        return with_rules(rules if self.options.explain else "", content)


class DeskEpisode:
    """One attempt. Its tool calls are acknowledged; without a dialogue it is a single turn."""

    def __init__(self, dialogue: bool = False) -> None:
        self._dialogue = dialogue

    def step(self, action: str) -> Observation:
        """Return the tools' answers to the calls; a dialogue ends with the first text without."""
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


def _one_turn(prompt: list[Message], program: Program, turn: int) -> SeedExample:
    """Return a conversation up to one of its turns, and what the agent says there."""
    messages = list(prompt)
    for number, clause in enumerate(program):
        call = render_call(number + 1, clause.name, clause.item, clause.total)
        if number == turn:
            return messages, call
        messages.append({"role": "assistant", "content": call})
        messages.append({"role": "tool", "name": clause.name, "content": RECORDED})
    return messages, DONE


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
