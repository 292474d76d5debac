"""Reads the games of a download that the official loader takes.

The rules are those of `AlfredTWEnv.collect_game_files` (alfworld 0.4.2): no movable receptacles, no
sliced objects, one of six task types, a game file marked as solvable. The official order is that of
the file system; here it is that of the names.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from genenv_core.benchmarks.files import read_json, required
from genenv_core.errors import ConfigError, DataError

SPLITS = {"valid_seen": "seen", "valid_unseen": "unseen", "train": "train"}
"""Names of the official folders, and the group of their games."""

TASK_TYPES = (
    "pick_and_place_simple",
    "look_at_obj_in_light",
    "pick_clean_then_place_in_recep",
    "pick_heat_then_place_in_recep",
    "pick_cool_then_place_in_recep",
    "pick_two_obj_and_place",
)
GAME, TRAJECTORY = "game.tw-pddl", "traj_data.json"
INSIDE = "json_2.1.1"
"""The folder of the official download that holds the splits' folders."""

_GOAL = re.compile(r'"(Your task is to: [^"]*)"')


@dataclass(frozen=True, slots=True)
class Game:
    """A game file, its group and its task type."""

    path: Path
    split: str
    task_type: str


def read_games(data: Path) -> tuple[Path, dict[str, Game]]:
    """Return the folder above the splits' folders, and the games by their path below it.

    Raises ConfigError without a folder of a split, DataError for a broken file.
    """
    root = data / INSIDE if (data / INSIDE).is_dir() else data
    if not any((root / split).is_dir() for split in SPLITS):
        required(data, INSIDE)
        raise ConfigError(
            f"--data {data}: {INSIDE} has none of {', '.join(SPLITS)}; "
            "docs/benchmarks says what it needs"
        )
    games = {
        game.path.relative_to(root).as_posix(): game
        for folder, split in SPLITS.items()
        for game in _of_split(root, root / folder, split)
    }
    if not games:
        raise DataError(f"{root}: no folder of a split has a {GAME}; download the tw-pddl files")
    return root, games


def walkthrough_of(path: Path) -> list[str]:
    """Return the commands that win a game, according to its file; some use objects' ids."""
    game = _read_object(path)
    given = game.get("walkthrough")
    commands = cast("list[Any]", given) if isinstance(given, list) else [None]
    if not all(isinstance(command, str) for command in commands):
        raise DataError(f"{path}: its walkthrough is no list of texts; download the file again")
    return cast("list[str]", commands)


def goal_of(path: Path) -> str:
    """Return the sentence that states a game's goal, "" where the file has none."""
    found = _GOAL.search(str(_read_object(path).get("grammar", "")))
    return found[1] if found else ""


def problem_of(path: Path) -> str:
    """Return a game's objects, first state and goal in PDDL, without the name of the trial."""
    problem = str(_read_object(path).get("pddl_problem", ""))
    return " ".join(problem[max(0, problem.find("(:objects")) :].split())


def _of_split(root: Path, folder: Path, split: str) -> Iterator[Game]:
    for trajectory in sorted(folder.glob(f"*/*/{TRAJECTORY}")):
        place = trajectory.parent
        below = place.relative_to(root).as_posix()
        path = place / GAME
        if "movable" in below or "Sliced" in below or not path.is_file():
            continue
        task_type = _read_object(trajectory).get("task_type")
        if task_type in TASK_TYPES and _read_object(path).get("solvable"):
            yield Game(path, split, str(task_type))


def _read_object(path: Path) -> dict[str, Any]:
    value = read_json(path)
    if not isinstance(value, dict):
        raise DataError(f"{path}: no JSON object but {type(value).__name__}")
    return cast("dict[str, Any]", value)
