"""The domain `trails`: pi_env writes a trail through a card index, and the agent follows it.

Each look at a card is a turn of its own, and the tool's answer decides the next one: nothing in the
request gives it away. The answer is free text, judged by its similarity to the right one. The
difficulty is the number of looks.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self, cast

from pydantic import Field

from genenv_core.domains.kit.levels import SeededTasks, drawn_turn
from genenv_core.domains.kit.texts.similarity import best_token_f1, normalize_answer
from genenv_core.domains.parts import (
    drawn_rate,
    env_request,
    read_options,
    with_rules,
)
from genenv_core.domains.protocol import SeedExample, SolutionTurn
from genenv_core.domains.tool_calls import OPEN, read_one_call
from genenv_core.domains.trails.cards import (
    FIELDS,
    MOST_LOOKS,
    PEOPLE,
    THINGS,
    Card,
    Trail,
    cards_of,
    draw_trail,
    parse_request,
    parse_trail,
    trail_pattern,
)
from genenv_core.domains.trails.wording import (
    AGENT_RULES,
    NO_CARD,
    OBSERVATION_SCHEMA,
    TOOL,
    TOOL_RULES,
    TOOLS,
    accepted,
    env_rules,
    render_answer,
    render_history,
    render_look,
    tool_answer,
    tool_request,
)
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
    TaskDraft,
    Verdict,
)

SIMILAR = 0.85
"""Least token F1 of a right answer: one wrong word of five gives .8, one word too many .91."""

_TOOL_SHARE = 0.25  # of pi_env's seed data: answers in the place of the tool


class TrailsOptions(Record, use_attribute_docstrings=True):
    """Options of the domain trails, from `domain.options` of the run's configuration."""

    max_looks: int = Field(default=6, ge=1, le=MOST_LOOKS)
    """Most looks at cards in one task; `parse` refuses a longer trail as out of range."""
    steep: bool = False
    """Whether pi_env and the base tasks begin with the shortest fifth of the trails, while the
    agent's examples have all lengths equally. So the first pi_env hardly ever writes what would
    teach the agent most. Without it, all of them begin with mostly short trails."""
    history: int = Field(default=0, ge=0)
    """How many of its last looks the agent reads with the request in each turn: the conversation
    then begins anew after each look. 0: the conversation goes on and holds all looks."""
    explain: bool = False
    """Whether the prompts of both policies open with the rules and an example; for models that
    never trained on trails."""


class TrailsDomain(SeededTasks):
    """Questions over a card index, answered in a sentence after several looks."""

    name = "trails"
    version = "1"

    def __init__(self, options: TrailsOptions | None = None) -> None:
        """Make the domain with these options (None: the defaults)."""
        self.options = options or TrailsOptions()
        self.steep = self.options.steep
        self.tools: Sequence[JsonObject] = TOOLS
        self.observation_schema = OBSERVATION_SCHEMA

    @classmethod
    def from_options(cls, options: Mapping[str, Any]) -> Self:
        """Return the domain with options from a configuration; raises ConfigError on bad ones."""
        return cls(read_options(TrailsOptions, options, cls.name))

    def highest(self) -> int:
        """Return the most looks at cards in one task."""
        return self.options.max_looks

    def draw_task(self, rng: random.Random, level: int) -> TaskDraft:
        """Return the task of a random trail with this many looks."""
        return _draft(draw_trail(rng, level))

    def limited_by(self) -> str:
        """Return the option that bounds how many trails there are."""
        return f"max_looks {self.options.max_looks}"

    def env_messages(self, context: Context) -> list[Message]:
        """Return pi_env's prompt: the agent's success in tenths and the base task's program."""
        return self.asked_of_env(context.history, context.base)

    def env_grammar(self, context: Context) -> Grammar:
        """Return the spelling of every trail in range, the same for each context."""
        return Grammar("regex", trail_pattern(max_looks=self.options.max_looks))

    def parse(self, text: str) -> list[TaskDraft | Rejected]:
        """Return the one task that the text spells, or why it spells no task."""
        trail = parse_trail(text, max_looks=self.options.max_looks)
        return [trail if isinstance(trail, Rejected) else _draft(trail)]

    def agent_messages(self, draft: TaskDraft) -> list[Message]:
        """Return the request as one user message, after the rules where the options set them."""
        return self._with_rules(AGENT_RULES, draft.prompt)

    def episode(self, draft: TaskDraft, seed: int) -> TrailsEpisode:
        """Return a fresh attempt; nothing in it is random."""
        return TrailsEpisode(_cards(draft), self._begun_anew(draft))

    @property
    def begins_anew(self) -> bool:
        """Whether each turn has a prompt of its own."""
        return self.options.history > 0

    def _begun_anew(self, draft: TaskDraft) -> Callable[[Sequence[str]], list[Message]] | None:
        """Return a function from looks to a new prompt; None where the conversation goes on."""
        most = self.options.history
        if not most:
            return None
        return lambda looks: self._with_rules(
            AGENT_RULES, render_history(draft.prompt, looks[-most:])
        )

    def tool_messages(self, draft: TaskDraft, messages: Sequence[Message]) -> list[Message] | None:
        """Return pi_env's prompt for the tool's answer: the card, and the field to read.

        None after a turn without a call. Raises DomainError on a bad call, as the tool itself does.
        """
        said = messages[-1]["content"]
        if OPEN not in said:
            return None
        person, field = read_look(said)
        return self._with_rules(TOOL_RULES, tool_request(person, _cards(draft).get(person), field))

    def score(self, draft: TaskDraft, messages: Sequence[Message]) -> Verdict:
        """Return the verdict on the agent's last text: its similarity to the right answer.

        A text that names no value of the field, or several, earns nothing: without this rule a
        sentence without a value would earn more than one with a wrong value.
        """
        person, field, value = _asked(draft)
        said = messages[-1]["content"] if messages[-1]["role"] == "assistant" else OPEN
        named = set(normalize_answer(said)) & set(THINGS[field])
        if OPEN in said or not named:
            return Verdict(0.0, False, "no_answer")
        if len(named) > 1:
            return Verdict(0.0, False, "several_answers")
        near = best_token_f1(said, accepted(person, field, value))
        if named != {value}:
            return Verdict(near, False, "wrong_value")
        return Verdict(near, near >= SIMILAR, "" if near >= SIMILAR else "wrong_words")

    def solution(self, draft: TaskDraft) -> list[SolutionTurn]:
        """Return the looks that the request asks for, and the answer.

        Each look reveals the next person, and the last look the value. Where the request has other
        words than `Trail.request` writes, the program decides.
        """
        text = parse_request(draft.prompt) or draft.program.rpartition(" ")[0]
        person, *links, field = text.split()
        cards, turns = _cards(draft), list[SolutionTurn]()
        for link in links:
            following = cards[person][link]
            turns.append(SolutionTurn(render_look(person, link), (following,)))
            person = following
        value = cards[person][field]
        turns.append(SolutionTurn(render_look(person, field), (value,)))
        return [*turns, SolutionTurn(render_answer(person, field, value))]

    def trivial_answers(self, draft: TaskDraft) -> list[str]:
        """Return an empty answer, constant ones, one without its value, and echoes."""
        person, field, _ = _asked(draft)
        return ["", "ok", NO_CARD, render_answer(person, field, ""), draft.prompt, draft.program]

    def one_turn(self, draft: TaskDraft, rng: random.Random) -> SeedExample:
        """Return one turn of a right attempt: the messages before it, and the agent's text."""
        return drawn_turn(self, draft, rng)

    def one_writing(
        self, rng: random.Random, base_weights: Sequence[float], weights: Sequence[float]
    ) -> SeedExample:
        """Return a program that pi_env could write, or its answer as the tool."""
        base = self.draw_open(rng, base_weights)
        if rng.random() < _TOOL_SHARE:
            return self._tool_example(base, rng)
        history = AgentHistory(success_rate=drawn_rate(rng))
        return self.asked_of_env(history, base), self.draw_open(rng, weights).program

    def _tool_example(self, draft: TaskDraft, rng: random.Random) -> SeedExample:
        """Return a card and the tool's answer on one of its fields, as pi_env would write it."""
        cards = _cards(draft)
        nobody = rng.choice([name for name in PEOPLE if name not in cards])
        person, card = rng.choice([*cards.items(), (nobody, None)])
        field = rng.choice(FIELDS)
        content = NO_CARD if card is None else card[field]
        prompt = self._with_rules(TOOL_RULES, tool_request(person, card, field))
        return prompt, tool_answer(content)

    def asked_of_env(self, history: AgentHistory, base: TaskDraft) -> list[Message]:
        """Return pi_env's prompt: the agent's success in tenths and a program to vary."""
        request = env_request(history.success_rate, base.program)
        return self._with_rules(env_rules(self.options.max_looks), request)

    def _with_rules(self, rules: str, content: str) -> list[Message]:
        return with_rules(rules if self.options.explain else "", content)


class TrailsEpisode:
    """One attempt: the tool reads cards until the agent's first turn without a call."""

    def __init__(
        self,
        cards: Mapping[str, Card],
        begun_anew: Callable[[Sequence[str]], list[Message]] | None = None,
    ) -> None:
        """Begin an attempt; `begun_anew` makes the next prompt from the looks, if not None."""
        self._cards, self._begun_anew = cards, begun_anew
        self._looks: list[str] = []

    def step(self, action: str) -> Observation:
        """Return the value of the field in a call; raises DomainError on a bad call."""
        if OPEN not in action:
            return Observation(done=True)
        person, field = read_look(action)
        card = self._cards.get(person)
        content = card[field] if card else NO_CARD
        if self._begun_anew is not None:
            self._looks.append(f"{person} {field} {content}")
            return Observation(tuple(self._begun_anew(self._looks)), done=False, anew=True)
        answer: Message = {"role": "tool", "name": TOOL, "content": content}
        return Observation((answer,), done=False)


def read_look(text: str) -> tuple[str, str]:
    """Return the person and the field in a turn's call; raises DomainError on a bad call."""
    call = read_one_call(text)
    given = call.get("arguments")
    if call.get("name") != TOOL or not isinstance(given, dict):
        raise DomainError(f"there is one tool, {TOOL}, with card and field")
    arguments = cast(JsonObject, given)
    person, field = arguments.get("card"), arguments.get("field")
    if not isinstance(person, str) or field not in FIELDS:
        raise DomainError(f"card should be a name, field one of {', '.join(FIELDS)}")
    return person.strip().casefold(), field


def _draft(trail: Trail) -> TaskDraft:
    cards = cards_of(trail)
    person, card = list(cards.items())[-1]
    field = trail.fields[-1]
    return TaskDraft(
        prompt=trail.request,
        spec={
            "cards": {name: dict(held) for name, held in cards.items()},
            "asked": {"person": person, "field": field, "value": card[field]},
        },
        ground_truth=render_answer(person, field, card[field]),
        program=trail.program,
        family=f"k{trail.looks}",
        difficulty=float(trail.looks),
        fingerprint=trail.program,
    )


def _cards(draft: TaskDraft) -> dict[str, Card]:
    return _of(draft, "cards")


def _asked(draft: TaskDraft) -> tuple[str, str, str]:
    asked = _of(draft, "asked")
    return asked["person"], asked["field"], asked["value"]


def _of(draft: TaskDraft, name: str) -> dict[str, Any]:
    try:
        return draft.spec[name]
    except KeyError as error:
        raise DomainError(
            f"trails: the spec {str(draft.spec)[:120]} has no {name}; it was not made by this "
            "domain"
        ) from error
