"""BFCL's multi-turn items as a model plays them, on fresh instances of the simulated classes.

A user's turn is over when the model answers without a call. As officially (bfcl-eval 2026.3.23,
`model_handler/base_handler.py`), a model that calls in more than `MOST_STEPS` messages of one turn
has to stop there: turns that were still to come are missing from its prediction, which is wrong.
A call that cannot be read is answered with an error here and counts as a step; officially it ends
the user's turn.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from genenv_core.benchmarks.bfcl.categories import Language
from genenv_core.benchmarks.bfcl.playing import opened
from genenv_core.benchmarks.bfcl.tools import tools_of
from genenv_core.benchmarks.bfcl.turns.backends import Absent, Side, backends
from genenv_core.benchmarks.bfcl.turns.checks import MOST_CALLS, MOST_CHARACTERS, Turns
from genenv_core.benchmarks.bfcl.turns.rows import DOCS, TurnsRow
from genenv_core.benchmarks.bfcl.turns.spelling import spelled
from genenv_core.benchmarks.protocol import ItemVerdict, PlayableSuite
from genenv_core.errors import ConfigError
from genenv_core.types import JsonObject, Message, Observation, Said

MOST_STEPS = 20
"""Messages with calls in one turn; the official harness lets one more run and then stops."""

MOST_RESULTS = 4_000_000
"""Most characters of the tools' answers in one attempt, far more than any model reads."""

LONGEST_NAME = 64
"""Most characters of a called name that an answer repeats."""

RULES = (
    "You serve a user over several turns with the functions that you have. In each turn, call "
    "functions until what the user asks for is done; you see what each call returns before you go "
    "on. Take values from what the user and the functions say. When the turn is done, answer "
    "without a call: then the user goes on. If no function can do what is asked, or a value is "
    "missing that nobody has said, say so without a call: the user may help."
)

MORE = "I have updated some more functions you can choose from. What about now?"
"""The user's words in a turn that adds functions (bfcl-eval's own words)."""


class ManyTurns:
    """An item as a model plays it.

    `docs` are the described functions by class; `suite` judges.
    """

    def __init__(
        self, row: TurnsRow, docs: Mapping[str, Sequence[JsonObject]], suite: PlayableSuite
    ) -> None:
        self.row = row
        self._docs = docs
        self._suite = suite

    @property
    def messages(self) -> Sequence[Message]:
        """Return our rules and the user's first turn."""
        return opened(RULES, self.row.turns[0])

    @property
    def tools(self) -> Sequence[JsonObject]:
        """Return the classes' functions without those kept back.

        Raises ConfigError when the download does not describe them.
        """
        return self._first_tools

    @cached_property
    def _first_tools(self) -> list[JsonObject]:
        kept = {name for names in self.row.missed.values() for name in names}
        return [one for one in self._all_tools if one["function"]["name"] not in kept]

    @cached_property
    def _all_tools(self) -> list[JsonObject]:
        for name in self.row.classes:
            if name not in self._docs:
                raise ConfigError(
                    f"--data: {DOCS}/ has no functions of {name}; copy the folder {DOCS} of "
                    "bfcl-eval beside question/ (docs/benchmarks/bfcl.md)"
                )
        functions = [one for name in self.row.classes for one in self._docs[name]]
        return tools_of(functions, Language.PYTHON)

    def turn(self, number: int) -> list[Message]:
        """Return the messages that open a turn, with the functions that it brings."""
        names = self.row.missed.get(number, ())
        if not names:
            return list(self.row.turns[number])
        brought = [one for one in self._all_tools if one["function"]["name"] in names]
        return [{"role": "user", "content": f"{json.dumps(brought)}\n{MORE}"}]

    def begin(self, seed: int) -> TurnsAttempt:
        """Return an attempt, in which nothing is random.

        Raises ConfigError when the back ends are not installed; it says how to install them.
        """
        return TurnsAttempt(self)

    def prediction(self, said: Sequence[Said]) -> Turns:
        """Return the calls by turn and step; a turn that was not brought to its end is left out."""
        turns: Turns = []
        steps: list[list[str]] = []
        for one in said:
            if len(turns) == len(self.row.gold):
                break
            if is_step(one):
                steps.append([spelled(call) for call in one.calls])
            if not is_step(one) or len(steps) > MOST_STEPS:
                turns.append(steps)
                if len(steps) > MOST_STEPS:
                    break
                steps = []
        return turns

    def judge(self, prediction: Any, mode: str) -> ItemVerdict:
        """Return the suite's verdict."""
        return self._suite.judge(self.row.id, prediction, mode)


def is_step(said: Said) -> bool:
    """Return whether a message calls, or tries to."""
    return bool(said.calls or said.malformed)


class TurnsAttempt:
    """One attempt; its instances are given up when it ends."""

    def __init__(self, item: ManyTurns) -> None:
        """Make fresh instances; raises ConfigError without the back ends."""
        found = backends()
        if isinstance(found, Absent):
            raise ConfigError(str(found))
        row = item.row
        self._item = item
        self._backends = found
        with found.fresh():
            side = found.side(row.classes, row.config, row.long, f"model_{row.id}")
            self._side: Side | None = side
            self._left = found.left()
        self._turn = self._steps = self._calls = self._written = self._said = 0

    def answer(self, said: Said) -> Observation:
        """Return what the calls return, or the user's next turn."""
        side = self._side
        if side is None:
            return Observation(done=True)
        if not is_step(said):
            self._turn, self._steps = self._turn + 1, 0
            if self._turn >= len(self._item.row.gold):
                return self._ended()
            return Observation(tuple(self._item.turn(self._turn)), done=False)
        texts = [spelled(call) for call in said.calls]
        self._steps += 1
        self._calls += len(texts)
        self._written += sum(map(len, texts))
        # The verdict says the same of so many calls.
        if self._calls > MOST_CALLS or self._written > MOST_CHARACTERS:
            return self._ended()
        answers: list[Message] = []
        with self._backends.resumed(self._left):
            for call, text in zip(said.calls, texts, strict=True):
                known = call.name in side.methods
                answers.append(_answer(call.name, side.run(text) if known else _unknown(call.name)))
                self._said += len(answers[-1]["content"])
                if self._said > MOST_RESULTS:
                    return self._ended()
            self._left = self._backends.left()
        answers += [_answer("", MALFORMED) for _ in said.malformed]
        if self._steps > MOST_STEPS:
            return self._ended(*answers)
        return Observation(tuple(answers), done=False)

    def _ended(self, *messages: Message) -> Observation:
        self._side = None
        return Observation(messages, done=True)


MALFORMED = (
    'error: the call cannot be read; write it as JSON with the fields "name" and "arguments", an '
    "object, and close it"
)


def _unknown(name: str) -> str:
    return (
        f"error: there is no function {name[:LONGEST_NAME]!r}; call one of your tools by its name"
    )


def _answer(name: str, content: str) -> Message:
    # Half of a surrogate pair cannot be stored.
    message: Message = {"role": "tool", "content": _storable(content)}
    if name:
        message["name"] = _storable(name[:LONGEST_NAME])
    return message


def _storable(text: str) -> str:
    return text.encode(errors="replace").decode()
