"""Plays commands in a game, and judges them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from genenv_core.benchmarks.alfworld.commands import repaired
from genenv_core.benchmarks.alfworld.games import GameError, GameState
from genenv_core.benchmarks.alfworld.pool import Pool
from genenv_core.benchmarks.protocol import ItemVerdict
from genenv_core.types import JsonObject

STEPS = 50
SHOWN_LETTERS = 100
"""Letters of the original command that a repair shows."""

UNKNOWN = "Nothing happens."
"""What a game says to a command that it does not know in its state."""


class Replay:
    """One game as it goes on, after the commands `before`, which the game gets as they are."""

    def __init__(self, pool: Pool, path: Path, *, strict: bool, before: Sequence[str] = ()) -> None:
        """Play the commands `before`; raises GameError."""
        self._pool, self._path, self._strict = pool, path, strict
        opening = pool.after(path)
        self._names = opening.names
        self._played = tuple(before)
        self.state: GameState = pool.after(path, self._played) if before else opening
        self._steps = self._unknown = 0
        self._repairs: tuple[JsonObject, ...] = ()

    @property
    def over(self) -> bool:
        """Whether the game takes no further command."""
        return self.state.won or self.state.done or self._steps >= STEPS

    def play(self, command: str) -> GameState:
        """Play a command; raises GameError, which leaves the game where it was."""
        known = self.state.admissible
        given = command if self._strict else repaired(command, known, self._names)
        self.state = self._pool.after(self._path, (*self._played, given))
        self._played = (*self._played, given)
        self._steps += 1
        self._unknown += self.state.observation.strip() == UNKNOWN
        if not self._strict and given != command.strip():
            shown = {"step": self._steps, "given": command[:SHOWN_LETTERS], "played": given}
            self._repairs += (shown,)
        if self.over:
            self.leave()
        return self.state

    def leave(self) -> None:
        """Give up the game's seat, after its last command."""
        self._pool.leave(self._path, self._played)

    def parts(self) -> JsonObject:
        """Return the result of the commands, for a verdict's parts."""
        return {
            "steps": self._steps,
            "won": self.state.won,
            "done": self.state.done,
            "invalid_commands": self._unknown,
            "repairs": list(self._repairs),
        }


def judged(
    pool: Pool, path: Path, prediction: Any, *, strict: bool, before: Sequence[str] = ()
) -> ItemVerdict:
    """Play the first 50 of a list of commands, after those in `before`; return the verdict.

    `valid` is None where the game does not run.
    """
    wrong = _wrong_form(prediction)
    if wrong:
        return ItemVerdict(False, reason=wrong)
    commands = cast("list[str]", prediction)
    try:
        replay = Replay(pool, path, strict=strict, before=before)
        for command in commands:
            if replay.over:
                break
            replay.play(command)
        replay.leave()
    except GameError as error:
        return ItemVerdict(None, reason=str(error))
    parts = {**replay.parts(), "cut": max(0, len(commands) - STEPS)}
    won = replay.state.won
    reason = "" if won else f"not won after {parts['steps']} commands"
    return ItemVerdict(won, float(won), reason, parts)


def _wrong_form(prediction: Any) -> str:
    if not isinstance(prediction, list):
        return f"the prediction is no list of commands but {type(prediction).__name__}"
    for number, command in enumerate(cast("list[Any]", prediction), 1):
        if not isinstance(command, str):
            return f"command {number} is no text but {type(command).__name__}"
    return ""
