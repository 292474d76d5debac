"""A game as a model plays it: one command a turn with the tool `act`, until it is won or 50 turns.

An invalid call gets an answer that says what is wrong, and its turn counts. Of several calls in a
turn the attempt plays the first valid one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy
from pathlib import Path
from typing import Any

from genenv_core.benchmarks.alfworld.games import GameError
from genenv_core.benchmarks.alfworld.pool import LONGEST, Pool
from genenv_core.benchmarks.alfworld.replay import STEPS, Replay, judged
from genenv_core.benchmarks.protocol import ItemVerdict
from genenv_core.types import Call, JsonObject, Message, Observation, Said

ACT = "act"
TOOLS: Sequence[JsonObject] = (
    {
        "type": "function",
        "function": {
            "name": ACT,
            "description": "Carry out one command in the house, and see what happens.",
            "parameters": {
                "type": "object",
                "properties": {
                    "command": {
                        "type": "string",
                        "description": "The command, such as: go to desk 1",
                        "maxLength": LONGEST,
                    }
                },
                "required": ["command"],
                "additionalProperties": False,
            },
        },
    },
)

RULES = (
    f"You are in a house and have a task there. Call the tool {ACT} with one command in each turn, "
    f"and read what happens; you have {STEPS} turns. Commands are: go to RECEPTACLE, open "
    "RECEPTACLE, close RECEPTACLE, take OBJECT from RECEPTACLE, move OBJECT to RECEPTACLE, use "
    "OBJECT, heat OBJECT with RECEPTACLE, cool OBJECT with RECEPTACLE, clean OBJECT with "
    "RECEPTACLE, examine THING, look, inventory. Name things with their numbers, such as: take "
    'mug 1 from desk 2. "Nothing happens." means that the command cannot be carried out now.'
)
ASKED = f"Call the tool {ACT} with one command."
NOT_PLAYED = f"Error: not carried out. Make one call of {ACT} in a turn."
DONE_BEFORE = "These commands were already carried out for you:"
"""The line before the commands and answers with which a training game begins."""


class Household:
    """A game file to play, as `Playable`.

    In a training game (`before` is not None), a first turn with several valid calls is a whole
    plan: the attempt plays all of them, and ends. So one turn can hold a right answer.
    """

    def __init__(
        self,
        pool: Pool,
        path: Path,
        strict: bool,
        admissible: bool,
        before: Sequence[str] | None = None,
    ) -> None:
        """Play nothing yet."""
        self._pool, self._path, self._strict = pool, path, strict
        self._admissible = admissible
        self._before = tuple(before or ())
        self._plans = before is not None

    @property
    def messages(self) -> Sequence[Message]:
        """The rules, and the game's text at its beginning; raises GameError."""
        state = self._pool.after(self._path)
        shown = [state.observation.strip()]
        for number, command in enumerate(self._before, 1):
            state = self._pool.after(self._path, self._before[:number])
            shown += [DONE_BEFORE] if number == 1 else []
            shown += [f"> {command}", state.observation.strip()]
        if self._admissible:
            shown.append(_listed(state.admissible))
        return (
            {"role": "system", "content": RULES},
            {"role": "user", "content": "\n\n".join(shown)},
        )

    @property
    def tools(self) -> Sequence[JsonObject]:
        """The one tool."""
        return TOOLS

    def begin(self, seed: int) -> HouseholdPlaying:
        """Return a fresh attempt; nothing in it is random. Raises GameError."""
        replay = Replay(self._pool, self._path, strict=self._strict, before=self._before)
        return HouseholdPlaying(replay, self._admissible, self._plans)

    def prediction(self, said: Sequence[Said]) -> list[str]:
        """Return the commands of the turns."""
        plan = _plan(said[0]) if self._plans and said else []
        if plan:
            return plan
        return [command for turn in said[:STEPS] for command in list(_commands(turn))[:1]]

    def judge(self, prediction: Any, mode: str) -> ItemVerdict:
        """Return the verdict on a list of commands."""
        strict = mode == "strict"
        return judged(self._pool, self._path, prediction, strict=strict, before=self._before)


class HouseholdPlaying:
    """One attempt at a game."""

    def __init__(self, replay: Replay, admissible: bool, plans: bool) -> None:
        """Take a game that no other attempt plays."""
        self._replay, self._admissible = replay, admissible
        self._plans = plans
        self._turns = 0

    def answer(self, said: Said) -> Observation:
        """Return the game's answers; raises GameError, which leaves the attempt as it was."""
        plan = _plan(said) if self._plans and not self._turns else []
        over = self._replay.over or self._turns >= STEPS
        before = copy(self._replay)
        try:
            messages = [] if over else list(self._answers(said, plan))
        except GameError:
            self._replay = before
            raise
        self._turns += 1
        ended = bool(plan) or self._replay.over or self._turns >= STEPS
        if ended:
            self._replay.leave()
        if not messages:
            messages = [Message(role="user", content=ASKED)] if not ended else []
        return Observation(tuple(messages), done=ended)

    def _answers(self, said: Said, plan: Sequence[str]) -> Iterator[Message]:
        commands, played = plan or list(_commands(said))[:1], 0
        for call in said.calls:
            wrong = _wrong(call)
            if wrong:
                yield _told(wrong)
            elif played >= len(commands) or self._replay.over:
                yield _told(NOT_PLAYED)
            else:
                yield _told(self._shown(commands[played]))
                played += 1
        for _ in said.malformed:
            yield _told(f'Error: the call is no JSON object with "name" and "arguments". {ASKED}')

    def _shown(self, command: str) -> str:
        state = self._replay.play(command)
        shown = state.observation.strip()
        if self._admissible and not self._replay.over:
            return f"{shown}\n\n{_listed(state.admissible)}"
        return shown


def _told(content: str) -> Message:
    return {"role": "tool", "name": ACT, "content": content}


def _listed(admissible: Sequence[str]) -> str:
    return f"Commands that can be carried out now: {', '.join(admissible)}."


def _wrong(call: Call) -> str:
    """Return what is wrong with a call, '' for a valid one."""
    if call.name != ACT:
        return f"Error: there is no tool {call.name[:60]!r}. {ASKED}"
    command = call.arguments.get("command")
    if not isinstance(command, str) or len(call.arguments) > 1:
        return f'Error: {ACT} has one argument, "command", which is a text.'
    if len(command) > LONGEST:
        return f"Error: a command has at most {LONGEST} letters."
    return ""


def _commands(said: Said) -> Iterator[str]:
    """Yield the commands of a turn's valid calls."""
    return (str(call.arguments["command"]) for call in said.calls if not _wrong(call))


def _plan(said: Said) -> list[str]:
    """Return the commands of a turn with several valid calls, [] for any other turn."""
    commands = list(_commands(said))[:STEPS]
    return commands if len(commands) > 1 else []
