"""The official games, played by the official packages (the suite `alfworld`).

Invariants: every walkthrough wins in both modes, in capitals and with `put` in mode official; none
of it wins with a step left out or backwards; the game process stays small.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from genenv_core.benchmarks.alfworld import BENCHMARK
from genenv_core.benchmarks.alfworld.games import GameLimits, GameProcess
from genenv_core.benchmarks.alfworld.loading import read_games, walkthrough_of
from genenv_core.benchmarks.alfworld.replay import UNKNOWN
from genenv_core.benchmarks.alfworld.suite import Alfworld
from tests.examples import many, spread
from tests.unit.benchmarks.data import official

pytestmark = pytest.mark.slow
MEGABYTE = 2**20


@pytest.fixture(scope="module")
def suite() -> Iterator[Alfworld]:
    """Load the official games, and end their process."""
    if not os.environ.get("GENENV_ALFWORLD_PYTHON"):
        pytest.skip("no packages here: `make test-suites NAMES=alfworld` installs them")
    found = BENCHMARK.load(official("alfworld"))
    assert isinstance(found, Alfworld)
    yield found
    found.pool.close()


@pytest.fixture(scope="module")
def walks(suite: Alfworld) -> dict[str, list[str]]:
    """Return walkthroughs of games in the objects' names, which takes opening each game."""
    found: dict[str, list[str]] = {}
    for item, game in spread(list(suite.games.items()), 8):
        names = suite.pool.after(game.path).names
        walk = walkthrough_of(game.path)
        found[item] = [
            " ".join(" ".join(names.get(word, word) for word in command.split()).split())
            for command in walk
        ]
    return found


def test_all_walkthroughs_win(suite: Alfworld, walks: dict[str, list[str]]) -> None:
    assert len(suite.games) == 24
    for item, walk in walks.items():
        raw = walkthrough_of(suite.games[item].path)
        strict = suite.judge(item, walk, "strict")
        assert strict.valid and strict.parts["steps"] == len(walk), strict
        assert strict.parts["invalid_commands"] == len(strict.parts["repairs"]) == 0
        verdict = suite.judge(item, raw, "official")
        assert verdict.valid and verdict.parts["invalid_commands"] == 0, verdict
        with_ids = suite.games[item].split == "unseen"  # their walkthroughs name objects so
        assert with_ids == (raw != walk)
        if with_ids:
            assert verdict.parts["repairs"]
            assert suite.judge(item, raw, "strict").valid is False


def test_other_spellings_win_in_mode_official_alone(
    suite: Alfworld, walks: dict[str, list[str]]
) -> None:
    rng = random.Random(0)
    for item, walk in rng.sample(sorted(walks.items()), many(8, usual=4)):
        forms = ("put {} in/on {}", "Put {} in {}", "put  {} on {}")
        spelled = [
            rng.choice(forms).format(*command[5:].split(" to "))
            if command.startswith("move ")
            else f" {command.upper()}"
            for command in walk
        ]
        verdict = suite.judge(item, spelled, "official")
        assert verdict.valid
        assert [repair["played"] for repair in verdict.parts["repairs"]] == walk
        strict = suite.judge(item, spelled, "strict")
        assert strict.valid is False and strict.parts["invalid_commands"] == len(walk)


def test_what_is_no_solution_does_not_win(suite: Alfworld, walks: dict[str, list[str]]) -> None:
    rng = random.Random(1)
    for item, walk in rng.sample(sorted(walks.items()), many(6, usual=3)):
        needed = [n for n, command in enumerate(walk) if not command.startswith(("go", "open"))]
        for wrong in (walk[:-1], walk[::-1], [], [c for c in walk if c != walk[needed[0]]]):
            verdict = suite.judge(item, wrong, "official")
            assert verdict.valid is False and not verdict.parts["done"], (wrong, verdict)
    assert suite.judge(item, ["look"] * 46 + walk[:4], "official").parts["steps"] == 50
    late = suite.judge(item, ["look"] * (51 - len(walk)) + walk, "official")
    assert late.valid is False and late.parts["cut"] == 1
    assert suite.judge(item, ["inventory"] * (50 - len(walk)) + walk, "official").valid


def test_an_unknown_command_changes_nothing(suite: Alfworld) -> None:
    item, game = next(iter(suite.games.items()))
    before = suite.pool.after(game.path)
    for command in ("dance", "", "\n", "go to nowhere 7", "\ud800", "é" * 100_000):
        after = suite.pool.after(game.path, [command])
        assert after.observation == UNKNOWN and not after.done
        assert after.admissible == before.admissible
    verdict = suite.judge(item, ["dance", *walkthrough_of(game.path)], "strict")
    assert verdict.valid and verdict.parts["invalid_commands"] == 1


def test_a_file_that_is_no_game_costs_one_game(suite: Alfworld, tmp_path: Path) -> None:
    item, game = next(iter(suite.games.items()))
    broken = tmp_path / "game.tw-pddl"
    broken.write_text(game.path.read_text().replace("(:init", "(:nothing"))
    other = Alfworld({"x": type(game)(broken, "seen", game.task_type)}, "0" * 64, suite.pool)
    verdict = other.judge("x", ["look"], "official")
    assert verdict.valid is None and "the game process failed" in verdict.reason
    assert suite.judge(item, walkthrough_of(game.path), "official").valid


def test_the_process_stays_small() -> None:
    limits = GameLimits(games=5)
    games, pids, most = GameProcess(limits=limits), set[int](), 0
    files = [game.path for game in read_games(official("alfworld"))[1].values()]
    for number in range(15):
        games.open(files[number % 4])
        assert games.pid
        pids.add(games.pid)
        most = max(most, psutil.Process(games.pid).memory_info().rss)
    games.close()
    assert len(pids) == 3 and most < 200 * MEGABYTE
    print(f"at most {most / MEGABYTE:.0f} MB with {limits.games} games a process")
