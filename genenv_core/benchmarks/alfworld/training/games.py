"""The games of ALFWorld's train split as tasks to train on.

A game's name is its id without the parts that all ids share. A hash of the name holds out one game
in five. A task is a game, and how many commands of its walkthrough genenv plays before the agent
begins.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Callable, Iterator, Sequence
from functools import cache, cached_property
from pathlib import Path
from typing import Any, cast

from genenv_core.benchmarks.alfworld.loading import goal_of, problem_of, walkthrough_of
from genenv_core.benchmarks.alfworld.playing import ACT
from genenv_core.benchmarks.alfworld.suite import Alfworld
from genenv_core.benchmarks.training.generations import read_object
from genenv_core.domains.parts import in_heldout
from genenv_core.domains.tool_calls import written
from genenv_core.errors import DomainError
from genenv_core.types import Call, JsonObject, Rejected, Rejection, TaskDraft

TRAIN, END = "train/", "/game.tw-pddl"
FIELDS = frozenset(("game", "done"))
"""The fields of a generation."""

IDS = "_bar_"
"""A command with this text names objects by the ids of the game file."""


class TrainGames:
    """The train split of a download."""

    def __init__(self, suite: Alfworld) -> None:
        """Take a suite, and open no game yet."""
        self._suite = suite

    @cached_property
    def open(self) -> list[str]:
        """The names of the games that are not held out."""
        return [game for game in self._all() if not in_heldout(game)]

    @cached_property
    def heldout(self) -> list[str]:
        """The names of the games that are held out."""
        return [game for game in self._all() if in_heldout(game)]

    def knows(self, game: str) -> bool:
        """Return whether the download has a game of this name."""
        return id_of(game) in self._suite.items

    def path(self, game: str) -> Path:
        """Return a game's file; raises DomainError for a game that the download lacks."""
        if not self.knows(game):
            raise DomainError(f"alfworld: the download has no game {game[:200]}; was it replaced?")
        return self._suite.games[id_of(game)].path

    def length(self, game: str) -> int:
        """Return the number of commands in a game's walkthrough."""
        return len(walkthrough_of(self.path(game)))

    def walk(self, game: str) -> list[str]:
        """Return a game's walkthrough, with the names of objects that a player sees.

        A walkthrough with ids asks the running game for these names; raises GameError where it
        fails.
        """
        path = self.path(game)
        walk = walkthrough_of(path)
        if not any(IDS in command for command in walk):
            return walk
        names = self._suite.pool.after(path).names
        named = (" ".join(names.get(word, word) for word in command.split()) for command in walk)
        return [" ".join(command.split()) for command in named]

    def shown(self, game: str) -> str:
        """Return a game on one line, as pi_env reads it."""
        return f"{game}: {goal_of(self.path(game))} {self.length(game)} commands."

    def task(self, game: str, done: int) -> TaskDraft:
        """Return the task that begins after `done` commands; raises GameError as `walk`."""
        walk = self.walk(game)
        before = f" {done} commands are already carried out." if done else ""
        return TaskDraft(
            prompt=f"{goal_of(self.path(game))}{before}",
            spec={"game": game, "before": walk[:done], "left": walk[done:]},
            ground_truth="".join(map(call_of, walk[done:])),
            program=program_of(game, done),
            family=self._suite.games[id_of(game)].task_type,
            difficulty=float(len(walk) - done),
            fingerprint=f"alfworld {game} {done}",
        )

    def tasks(
        self,
        rng: random.Random,
        games: Sequence[str],
        admits: Callable[[TaskDraft], bool],
        *,
        whole: bool,
    ) -> Iterator[TaskDraft]:
        """Yield one admitted task of each game in turn, then another one of each, to the last.

        A game's first task begins with no command done; without `whole`, only every second game's
        does.
        """
        order = list(games)
        rng.shuffle(order)
        left: list[tuple[str, list[int]]] = []
        for number, game in enumerate(order):
            if not self.length(game):
                continue
            more = list(range(1, self.length(game)))
            rng.shuffle(more)
            starts = [0, *more] if whole or number % 2 == 0 else [*more, 0]
            left.append((game, starts[1:]))
            task = self.task(game, starts[0])
            if admits(task):
                yield task
        while left := [(game, starts) for game, starts in left if starts]:
            for game, starts in left:
                task = self.task(game, starts.pop(0))
                if admits(task):
                    yield task

    def _all(self) -> list[str]:
        ids = [item for item, group in self._suite.items.items() if group == "train"]
        return [item.removeprefix(TRAIN).removesuffix(END) for item in ids]


def id_of(game: str) -> str:
    """Return the id of a train game."""
    return f"{TRAIN}{game}{END}"


def call_of(command: str) -> str:
    """Return a command as the agent writes its call."""
    return written({"name": ACT, "arguments": {"command": command}})


def calls(commands: Sequence[str]) -> list[Call]:
    """Return commands as calls."""
    return [Call(ACT, {"command": command}) for command in commands]


def program_of(game: str, done: int) -> str:
    """Return a task as pi_env writes it."""
    return json.dumps({"game": game, "done": done})


def read_spec(spec: JsonObject) -> tuple[str, list[str], list[str]]:
    """Return a task's game, the commands before the agent begins, and those that win the game then.

    Raises DomainError for a spec without these fields.
    """
    game, before, left = (spec.get(name) for name in ("game", "before", "left"))
    if not isinstance(game, str) or not isinstance(before, list) or not isinstance(left, list):
        raise DomainError(
            f"alfworld: the spec {str(spec)[:120]} has no game, before and left; it was not made "
            "by this domain"
        )
    commands = [cast("list[Any]", before), cast("list[Any]", left)]
    done, to_do = ([str(command) for command in some] for some in commands)
    return game, done, to_do


def chosen(text: str) -> tuple[str, int] | Rejected:
    """Return the game and the number of commands in a generation, or why it chooses nothing."""
    choice = read_object(text, FIELDS)
    if isinstance(choice, Rejected):
        return choice
    game, done = choice["game"], choice["done"]
    if not isinstance(game, str):
        return Rejected(Rejection.UNPARSEABLE, f"game is no text but {type(game).__name__}")
    if not isinstance(done, int) or isinstance(done, bool):
        return Rejected(Rejection.UNPARSEABLE, f"done is no whole number but {type(done).__name__}")
    return game, done


@cache
def world_of(path: Path) -> str:
    """Return the digest of a game's house and goal; trials of one game share it."""
    return hashlib.sha256(problem_of(path).encode()).hexdigest()
