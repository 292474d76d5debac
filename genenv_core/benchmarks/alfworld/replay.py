"""Commands played in a game, and the verdict on them."""

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
"""Letters that a repair shows of the command as it was given."""

UNKNOWN = "Nothing happens."
"""What a game says to a command that it does not know in its state."""


class Replay:
    """One game as it goes on, after the commands `before`, which are played as they are."""

    def __init__(self, pool: Pool, path: Path, *, strict: bool, before: Sequence[str] = ()) -> None:
        """Play what comes before; raises GameError."""
        self._pool, self._path, self._strict = pool, path, strict
        opening = pool.after(path)
        self._names = opening.names
        self._played = tuple(before)
        self.state: GameState = pool.after(path, self._played) if before else opening
        self._steps = self._unknown = 0
        self._repairs: tuple[JsonObject, ...] = ()

    @property
    def over(self) -> bool:
        """Whether no command is played any more."""
        return self.state.won or self.state.done or self._steps >= STEPS

    def play(self, command: str) -> GameState:
        """Play a command; raises GameError, and is then where it was."""
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
        """Say that nothing more will be played."""
        self._pool.leave(self._path, self._played)

    def parts(self) -> JsonObject:
        """Return what came of the commands."""
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
    """Return the verdict on a list of commands, of which 50 are played after those in `before`.

    `valid` is None where the game could not be played.
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
