"""ALFWorld's games and verdicts on lists of commands."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from genenv_core.benchmarks.alfworld.commands import repaired
from genenv_core.benchmarks.alfworld.games import GameError, Games
from genenv_core.benchmarks.alfworld.loading import GAME, TRAJECTORY, Game, read_games
from genenv_core.benchmarks.files import digest_of
from genenv_core.benchmarks.protocol import Benchmark, Composite, ItemVerdict, Ratio
from genenv_core.types import JsonObject

MODES = {
    "official": "won within 50 commands; case, spaces, `put X in/on Y` and ids are repaired",
    "strict": "won within 50 commands, which the game gets as they are",
}
STEPS = 50
SHOWN = 5
"""Repairs that a verdict shows."""

SHOWN_LETTERS = 100
UNKNOWN = "Nothing happens."
"""What a game says to a command that it does not know in its state."""


class Alfworld:
    """The games of one download; ids are game files' paths below the folders of the splits."""

    composites: Sequence[Composite] = ()

    def __init__(self, games: Mapping[str, Game], digest: str, player: Games) -> None:
        self.digest = digest
        self.games = games
        self.items: Mapping[str, str] = {item: game.split for item, game in games.items()}
        self.player = player
        self._playing = threading.Lock()

    def judge(self, item: str, prediction: Any, mode: str) -> ItemVerdict:
        """Return the verdict on a list of commands, played in the official game.

        `valid` is None where the game could not be played.
        """
        wrong = _wrong_form(prediction)
        if wrong:
            return ItemVerdict(False, reason=wrong)
        commands = cast("list[str]", prediction)
        try:
            with self._playing:
                parts = played(self.player, self.games[item].path, commands, mode == "strict")
        except GameError as error:
            return ItemVerdict(None, reason=str(error))
        won = bool(parts["won"])
        reason = "" if won else f"not won after {parts['steps']} commands"
        return ItemVerdict(won, float(won), reason, parts)

    def measures(self, item: str, verdict: ItemVerdict) -> Mapping[str, Ratio]:
        """Return the success in the game's split, and there in its task type."""
        game, success = self.games[item], (verdict.score, 1.0)
        return {game.split: success, f"{game.split} {game.task_type}": success}


def played(player: Games, path: Path, commands: Sequence[str], strict: bool) -> JsonObject:
    """Return what came of commands in a game, which ends with its end or after 50 of them.

    Raises GameError.
    """
    state = player.open(path)
    names, steps, unknown, repairs = state.names, 0, 0, list[JsonObject]()
    for command in commands[:STEPS]:
        if state.won or state.done:
            break
        given = command if strict else repaired(command, state.admissible, names)
        steps += 1
        if not strict and given != command.strip():
            repairs.append({"step": steps, "given": command[:SHOWN_LETTERS], "played": given})
        state = player.step(given)
        unknown += state.observation.strip() == UNKNOWN
    return {
        "steps": steps,
        "won": state.won,
        "done": state.done,
        "invalid_commands": unknown,
        "repairs": {"count": len(repairs), "first": repairs[:SHOWN]},
        "cut": max(0, len(commands) - STEPS),
    }


def load(data: Path) -> Alfworld:
    """Return the suite of a folder with the official games; nothing is played yet."""
    root, games = read_games(data)
    files = (game.path.with_name(name) for game in games.values() for name in (GAME, TRAJECTORY))
    return Alfworld(games, digest_of(root, files), Games())


def _wrong_form(prediction: Any) -> str:
    if not isinstance(prediction, list):
        return f"the prediction is no list of commands but {type(prediction).__name__}"
    for number, command in enumerate(cast("list[Any]", prediction), 1):
        if not isinstance(command, str):
            return f"command {number} is no text but {type(command).__name__}"
    return ""


BENCHMARK = Benchmark("alfworld", MODES, "the list of commands", load)
