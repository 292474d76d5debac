"""A domain of programs from parts: the author says how to draw, read and judge a program.

`draw`, `read` and `judge` make a whole `ProgramDomain`. `SolvedDomain` also plays the author's
`solve`; then an attempt checks each task, and `bootstrap` can make tiny models. A domain can
override each method. docs/domain.md has an example.
"""

from __future__ import annotations

import json
import random
import re
from abc import ABC, abstractmethod
from collections.abc import Generator, Mapping, Sequence
from typing import Any, Generic, TypeVar, cast

from genenv_core.canonical import NoJson, canonical_json
from genenv_core.domains.kit.answers import marked_answer
from genenv_core.domains.kit.episode import Bounds, ToolEpisode, final_text
from genenv_core.domains.kit.levels import LevelledTasks
from genenv_core.domains.kit.tools import Tools, how_to_call
from genenv_core.domains.parts import (
    AIM,
    TRIES,
    env_request,
    mixed_weights,
    read_options,
    with_rules,
)
from genenv_core.domains.steps import FAILURES, error_line
from genenv_core.errors import ConfigError, DomainError
from genenv_core.ids import seed_from
from genenv_core.record import Record
from genenv_core.types import (
    Context,
    Grammar,
    JsonObject,
    Message,
    Rejected,
    Rejection,
    TaskDraft,
    Verdict,
)

_SHOWN = 80
_READ_FAILED = "read failed"
_DRAWN_TO_SHOW = 8  # of which pi_env's rules show the easiest and the hardest


class Options(Record, use_attribute_docstrings=True):
    """Options of a domain, from `domain.options` of the configuration; a subclass adds its own."""

    explain: bool = True
    """Whether the prompts of both policies open with the rules; false for tiny models that train on
    the domain's examples."""


OptionsT = TypeVar("OptionsT", bound=Options)

Solving = Generator[str, str, str]
"""What `solve` returns: a generator that yields a turn with calls, gets the tools' answers, and
returns the agent's answer."""


def task(
    program: str, prompt: str, answer: str, level: int, *, chance: float = 0.0, **spec: Any
) -> TaskDraft:
    """Return a task of a `ProgramDomain`, of family `k` and its level.

    Args:
        program: its canonical spelling, which `read` reads back to an equal task.
        prompt: the request that the agent reads.
        answer: a right answer, word for word.
        level: the difficulty, 1 to `levels()`.
        chance: the probability that a guess is right; for `judges.choice`, `judges.chance` of
            its options.
        spec: what `judge` and `solve` need; they get it as JSON stores it, so tuples become
            lists, and keys become texts.

    Raises NoJson for a spec with values that JSON does not have.
    """
    try:
        stored = json.loads(canonical_json(spec))  # as storage gives it back: lists, no tuples
    except NoJson as error:
        raise NoJson(f"the task's spec: {error}: keep JSON in it") from error
    return TaskDraft(prompt, stored, answer, program, f"k{level}", float(level), program, chance)


class ProgramDomain(LevelledTasks, ABC, Generic[OptionsT]):
    """A domain in which pi_env writes a program, and pi_agent answers the request behind it."""

    name: str
    version: str
    options_type: type[OptionsT] = cast("type[OptionsT]", Options)
    """The class of the options; a domain that sets none has the option `explain` alone."""
    pattern = ""
    """A regular expression of Python's `re` for whole programs; '' for any text. For
    `generation.structured` it must have no look-around and no backreferences."""
    toolbox = Tools()
    """The tools of the agent."""
    bounds = Bounds()
    """Most turns of an attempt, and most calls of a turn."""
    agent_rules = ""
    """Rules that the agent reads before a request, where `explain` is set. The kit adds which tools
    there are and how to write calls."""
    env_rules = ""
    """Rules for pi_env on what a program is, where `explain` is set. The kit adds its aim and an
    example."""

    def __init__(self, options: Mapping[str, Any] | None = None) -> None:
        """Make the domain with options from a configuration.

        Raises ConfigError on bad ones, and DomainError for an invalid pattern.
        """
        self.options = read_options(self.options_type, options or {}, self.name)
        try:
            re.compile(self.pattern or "")
        except (re.error, TypeError) as error:
            why = f"pattern {self.pattern!r:.{_SHOWN}} is no regular expression ({error})"
            raise DomainError(
                f"{self.name}: {why}: mend it, or leave it '' for any text"
            ) from error
        self.tools: Sequence[JsonObject] = self.toolbox.schemas

    @abstractmethod
    def draw(self, rng: random.Random, level: int) -> str:
        """Return a random program of a level in its canonical spelling.

        The caller draws again where `read` refuses the program.
        """

    @abstractmethod
    def read(self, text: str) -> TaskDraft | Rejected:
        """Return the task that a program spells, made by `task`, or why it spells no task.

        The caller has checked that the text fits `pattern`, without blanks around. Reasons are
        UNPARSEABLE for a wrong spelling, OUT_OF_RANGE for values beyond the options, INCONSISTENT
        for nonsense.
        """

    @abstractmethod
    def judge(self, draft: TaskDraft, answer: str) -> Verdict:
        """Return the verdict on an answer; pure. The module `judges` has ready ones."""

    def levels(self) -> int:
        """Return the highest level of difficulty, from 1; `parse` refuses a task above it."""
        return 1

    def highest(self) -> int:
        """Return `levels()`; raises DomainError unless that is a whole number from 1."""
        levels: Any = self.levels()
        if isinstance(levels, bool) or not isinstance(levels, int) or levels < 1:
            raise DomainError(
                f"{self.name}: levels returned {levels!r:.{_SHOWN}}: return the highest level, a "
                "whole number from 1"
            )
        return levels

    def extract(self, text: str) -> str:
        """Return the answer in the agent's last turn; the module `answers` has other ways."""
        return marked_answer(text)

    def state(self, draft: TaskDraft, seed: int) -> Any:
        """Return a fresh state for the tools of one attempt, of the type that `toolbox` names."""
        return None

    def env_messages(self, context: Context) -> list[Message]:
        """Return pi_env's prompt: the agent's success in tenths and a program to vary."""
        return self.env_prompt(context.history.success_rate, context.base.program)

    def env_prompt(self, rate: float | None, base: str) -> list[Message]:
        """Return pi_env's prompt; its rules end with an example of two drawn programs."""
        rules = self.env_rules if self.options.explain else ""
        if rules:
            rng = random.Random(seed_from(self.name, "shown"))
            weights = mixed_weights(self.highest())
            drawn = [self.draw_open(rng, weights) for _ in range(_DRAWN_TO_SHOW)]
            easy, *_, hard = sorted(drawn, key=lambda draft: draft.difficulty)
            rules = f"{rules}\n{AIM}\n{env_request(0.9, easy.program)}\n{hard.program}"
        return with_rules(rules, env_request(rate, base))

    def env_grammar(self, context: Context) -> Grammar:
        """Return `pattern` as the grammar that `generation.structured` holds pi_env to.

        Raises ConfigError for a domain without one.
        """
        del context
        if not self.pattern:
            raise ConfigError(
                f"generation.structured: the domain {self.name} has no pattern, the regular "
                "expression of its programs: add one, or set it to false"
            )
        return Grammar("regex", self.pattern)

    def parse(self, text: str) -> list[TaskDraft | Rejected]:
        """Return the task that the text spells, or why it spells no task; never raises."""
        text = text.strip()
        if self.pattern and not re.fullmatch(self.pattern, text):
            return [Rejected(Rejection.UNPARSEABLE, f"no program: {text[:_SHOWN]!a}")]
        try:
            found = self.read(text)
        except FAILURES as error:
            found = Rejected(Rejection.UNPARSEABLE, f"{_READ_FAILED}: {error_line(error)}")
        if not isinstance(cast(object, found), TaskDraft | Rejected):
            why = f"read returned {found!r:.{_SHOWN}}, no TaskDraft and no Rejected"
            return [Rejected(Rejection.UNPARSEABLE, why)]
        if isinstance(found, TaskDraft) and found.difficulty > self.levels():
            why = f"level {found.difficulty:g}, at most {self.levels()}"
            return [Rejected(Rejection.OUT_OF_RANGE, why)]
        return [found]

    def agent_messages(self, draft: TaskDraft) -> list[Message]:
        """Return the request, after the rules where `explain` is set."""
        parts = (self.agent_rules, self.toolbox.described(), how_to_call(self.tools))
        rules = "\n".join(filter(None, parts)) if self.options.explain else ""
        return with_rules(rules, draft.prompt)

    def episode(self, draft: TaskDraft, seed: int) -> ToolEpisode:
        """Return a fresh attempt; raises DomainError where `state` returns another type."""
        return self.begun(draft, seed)[0]

    def begun(self, draft: TaskDraft, seed: int) -> tuple[ToolEpisode, Any]:
        """Return a fresh attempt and the state that its tools share; raises as `episode`."""
        state, declared = self.state(draft, seed), self.toolbox.state
        if declared is not None and not isinstance(state, declared):
            raise DomainError(
                f"{self.name}: state returned {type(state).__name__}; the tools take "
                f"{declared.__name__}"
            )
        return ToolEpisode(self.toolbox, state, self.bounds), state

    def score(self, draft: TaskDraft, messages: Sequence[Message]) -> Verdict:
        """Return the verdict on the last turn's answer; a transcript without one earns nothing."""
        text = final_text(messages)
        if text is None:
            return Verdict(0.0, False, "no_answer")
        return self.judge(draft, self.extract(text))

    def trivial_answers(self, draft: TaskDraft) -> list[str]:
        """Return an empty answer, a constant, and echoes of request and program."""
        return ["", "ok", draft.prompt, draft.program]

    def limited_by(self) -> str:
        """Return the options and their values, without `explain`, as text."""
        own = self.options.model_dump(exclude={"explain"})
        return ", ".join(f"{key} {value}" for key, value in own.items()) or "no options"

    def draw_task(self, rng: random.Random, level: int) -> TaskDraft:
        """Return the task that `draw` and `read` make at a level.

        Raises DomainError where they make none, or where the spelling is not the canonical one.
        """
        refused = "draw made nothing"
        for _ in range(TRIES):
            program = self.draw(rng, level)
            if not isinstance(cast(object, program), str):
                raise DomainError(
                    f"{self.name}: draw returned {program!r:.{_SHOWN}} for level {level}: return "
                    "a program, which is a text"
                )
            found = self.parse(program)[0]
            if isinstance(found, TaskDraft):
                return self._canonical(program, found)
            refused = self._why_refused(program, found)
        raise DomainError(f"{self.name}: at level {level}, {refused}")

    def _why_refused(self, program: str, found: Rejected) -> str:
        """Return why `read` refuses a drawn program, and what to mend."""
        drawn = f"{program[:_SHOWN]!r}"
        if self.pattern and not re.fullmatch(self.pattern, program.strip()):
            own = f"{self.pattern!r:.{2 * _SHOWN}}"
            return f"draw made {drawn}, which does not fit pattern {own}: mend one of the two"
        if found.detail.startswith(_READ_FAILED):
            return f"{found.detail}; it was to read {drawn}, which draw made: mend read"
        return (
            f"draw made {drawn}, which read refuses as {found.reason}: {found.detail}: draw what "
            "read takes"
        )

    def _canonical(self, program: str, found: TaskDraft) -> TaskDraft:
        if found.program != program:
            raise DomainError(
                f"{self.name}: draw made {program[:_SHOWN]!r}, which read spells "
                f"{found.program[:_SHOWN]!r}: draw the canonical spelling"
            )
        return found
