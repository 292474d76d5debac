"""ALFWorld's games and verdicts on lists of commands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from genenv_core.benchmarks.alfworld.loading import GAME, TRAJECTORY, Game, read_games
from genenv_core.benchmarks.alfworld.playing import Household
from genenv_core.benchmarks.alfworld.pool import Pool
from genenv_core.benchmarks.alfworld.replay import STEPS, judged
from genenv_core.benchmarks.files import digest_of
from genenv_core.benchmarks.protocol import AttemptLimits, Benchmark, Composite, ItemVerdict, Ratio

MODES = {
    "official": "won within 50 commands; case, spaces, `put X in/on Y` and ids are repaired",
    "strict": "won within 50 commands, which the game gets as they are",
}


class Alfworld:
    """The games of one download; ids are game files' paths, which begin with the split's folder."""

    composites: Sequence[Composite] = ()

    def __init__(self, games: Mapping[str, Game], digest: str, pool: Pool) -> None:
        self.digest = digest
        self.games = games
        self.items: Mapping[str, str] = {item: game.split for item, game in games.items()}
        self.pool = pool

    def judge(self, item: str, prediction: Any, mode: str) -> ItemVerdict:
        """Play a list of commands in the official game, and return the verdict.

        `valid` is None where the game does not run.
        """
        return judged(self.pool, self.games[item].path, prediction, strict=mode == "strict")

    def playable(
        self,
        item: str,
        *,
        strict: bool = False,
        admissible: bool = False,
        before: Sequence[str] | None = None,
    ) -> Household:
        """Return a game that a model can play.

        Args:
            item: its id.
            strict: whether the game gets the model's commands as they are.
            admissible: whether the model reads which commands the game knows.
            before: None for the benchmark's own game; in a training game, the commands, as the game
                shows them, that it carries out before the model begins.
        """
        return Household(self.pool, self.games[item].path, strict, admissible, before)

    def measures(self, item: str, verdict: ItemVerdict) -> Mapping[str, Ratio]:
        """Return the success in the game's split, and there in its task type."""
        game, success = self.games[item], (verdict.score, 1.0)
        return {game.split: success, f"{game.split} {game.task_type}": success}


def load(data: Path) -> Alfworld:
    """Return the suite of a folder with the official games, without playing any."""
    root, games = read_games(data)
    files = (game.path.with_name(name) for game in games.values() for name in (GAME, TRAJECTORY))
    return Alfworld(games, digest_of(root, files), Pool())


BENCHMARK = Benchmark(
    "alfworld",
    MODES,
    "the list of commands",
    load,
    limits=AttemptLimits(turns=STEPS, turn_tokens=1024, tokens=32_768, seconds=3600),
    headline="unseen",
)
