"""ALFWorld's items, verdicts and game process, with a process that plays made-up games.

Invariants: a game counts when it is won, never because it is done; a repair is made where it makes
a command known, and is recorded; strict repairs nothing; 50 commands are played; a game process
that hangs, dies or babbles costs one item its verdict, and the next item has another process.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from genenv_core.benchmarks.alfworld import BENCHMARK
from genenv_core.benchmarks.alfworld.commands import repaired
from genenv_core.benchmarks.alfworld.games import (
    STARTS,
    GameError,
    GameLimits,
    GameProcess,
    interpreter,
)
from genenv_core.benchmarks.alfworld.loading import TASK_TYPES, read_games, walkthrough_of
from genenv_core.benchmarks.alfworld.suite import Alfworld
from genenv_core.benchmarks.predictions import Results, judge_lines
from genenv_core.errors import ConfigError, DataError
from tests.mutations import mutation
from tests.unit.benchmarks.alfworld.household import (
    IDS,
    LIGHT,
    SIMPLE,
    WALK,
    household,
    pid,
    write_game,
)
from tests.unit.benchmarks.data import official

GAMES = "genenv_core/benchmarks/alfworld/games.py"
REPLAY = "genenv_core/benchmarks/alfworld/replay.py"

QUICK = GameLimits(step_s=0.5)


def one(tmp_path: Path, limits: GameLimits | None = None, **more: Any) -> tuple[Alfworld, str]:
    item = write_game(tmp_path / "data", "valid_seen/a/t", **more)
    return household(tmp_path / "data", limits), item


def ended(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


@mutation(
    "a command that no repair makes known is rewritten",
    "genenv_core/benchmarks/alfworld/commands.py", "return command.strip()",
    "return normalized(command)",
)  # fmt: skip
@pytest.mark.parametrize(
    ("said", "played"),
    [
        ("move mug 1 to shelf 2", "move mug 1 to shelf 2"),
        ("  Move  MUG 1 to\tshelf 2\n", "move mug 1 to shelf 2"),
        ("put mug 1 in/on shelf 2", "move mug 1 to shelf 2"),
        ("put mug 1 in shelf 2", "move mug 1 to shelf 2"),
        ("Put mug 1 on shelf 2", "move mug 1 to shelf 2"),
        ("put mug_bar_7 on shelf_bar_2", "move mug 1 to shelf 2"),
        ("move pen 1 to box 1", "put pen 1 in/on box 1"),
        ("put pen 1 on box 1", "put pen 1 in/on box 1"),
        ("put cup 1 in pot 1", "put cup 1 in pot 1"),  # known as it is, though `move` is as well
        ("move hat 1 to bed 1", "put hat 1 on bed 1"),
        ("put mug 2 in/on shelf 2", "put mug 2 in/on shelf 2"),  # no repair makes it known
        ("MOVE mug 2 to shelf 2", "MOVE mug 2 to shelf 2"),
        ("put mug 1 into shelf 2", "put mug 1 into shelf 2"),
        ("put mug 1", "put mug 1"),
        ("go to desk_bar_1", "go to desk 1"),
        ("GO TO desk  1", "go to desk 1"),
        ("", ""),
    ],
)
def test_a_command_becomes_the_one_that_the_game_knows(said: str, played: str) -> None:
    admissible = [
        "move mug 1 to shelf 2", "put pen 1 in/on box 1", "put cup 1 in pot 1",
        "move cup 1 to pot 1", "put hat 1 on bed 1", "go to desk 1",
    ]  # fmt: skip
    assert repaired(said, admissible, IDS) == played


def test_names_with_odd_spelling_are_found() -> None:
    assert repaired("go to tv stand", ["go to TV  Stand"], {}) == "go to TV  Stand"
    assert repaired("go to X_1", ["go to lamp"], {"X_1": "lamp "}) == "go to lamp"


def test_the_walkthrough_wins_and_parts_say_how(tmp_path: Path) -> None:
    suite, item = one(tmp_path)
    for mode in BENCHMARK.modes:
        verdict = suite.judge(item, WALK, mode)
        assert (verdict.valid, verdict.score, verdict.reason) == (True, 1, "")
        assert verdict.parts == {
            "steps": 3,
            "won": True,
            "done": True,
            "invalid_commands": 0,
            "repairs": [],
            "cut": 0,
        }
    verdict = suite.judge(item, WALK[:2], "official")
    assert (verdict.valid, verdict.score) == (False, 0)
    assert verdict.reason == "not won after 2 commands" and not verdict.parts["done"]


@mutation(
    "mode strict repairs commands", REPLAY,
    "given = command if self._strict else repaired", "given = repaired",
)  # fmt: skip
def test_repairs_are_recorded_and_strict_makes_none(tmp_path: Path) -> None:
    suite, item = one(tmp_path)
    loose = [" go to desk 1 ", "Take  mug 1 from desk 1", "dance", "put mug_bar_7 in/on shelf 2"]
    verdict = suite.judge(item, loose, "official")
    assert verdict.valid and verdict.parts == {
        "steps": 4,
        "won": True,
        "done": True,
        "invalid_commands": 1,
        "repairs": [  # the game itself takes space around a command off
            {"step": 2, "given": loose[1], "played": WALK[1]},
            {"step": 4, "given": loose[3], "played": WALK[2]},
        ],
        "cut": 0,
    }
    verdict = suite.judge(item, loose, "strict")
    assert verdict.valid is False and verdict.parts["invalid_commands"] == 3
    assert verdict.parts["repairs"] == []
    many = suite.judge(item, ["LOOK"] * 9, "official").parts["repairs"]
    assert [repair["step"] for repair in many] == [*range(1, 10)]


@mutation("a game goes on after 50 commands", REPLAY, " or self._steps >= STEPS", "")
def test_fifty_commands_are_played(tmp_path: Path) -> None:
    suite, item = one(tmp_path)
    for looks, valid, steps, cut in ((47, True, 50, 0), (48, False, 50, 1), (997, False, 50, 950)):
        verdict = suite.judge(item, ["look"] * looks + WALK, "official")
        assert verdict.valid is valid
        assert (verdict.parts["steps"], verdict.parts["cut"]) == (steps, cut)
    verdict = suite.judge(item, [*WALK, *["die"] * 60], "strict")  # a game that is won is over
    assert verdict.valid and (verdict.parts["steps"], verdict.parts["cut"]) == (3, 13)


@mutation("a game that is over is won", REPLAY, "won = replay.state.won", "won = replay.state.done")
def test_done_is_no_success(tmp_path: Path) -> None:
    suite, item = one(tmp_path)
    verdict = suite.judge(item, [*WALK[:2], "give up", WALK[2]], "official")
    assert (verdict.valid, verdict.score) == (False, 0)
    assert (verdict.parts["steps"], verdict.parts["won"], verdict.parts["done"]) == (3, False, True)


@mutation(
    "a game process that failed plays on", GAMES,
    "        self.close()\n        return GameError", "        return GameError",
)  # fmt: skip
@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("hang", "no answer within 0.5 s"),
        ("die", "it died with status 3; its last words: out of luck"),
        ("babble", "its answer is no JSON"),
        ("no state", "its answer is no state of a game"),
        ("endless", "its answer has no end"),
    ],
)
def test_a_process_that_fails_costs_one_verdict_and_is_replaced(
    tmp_path: Path, fault: str, reason: str
) -> None:
    suite, item = one(tmp_path, QUICK if fault == "hang" else GameLimits())
    assert suite.judge(item, WALK, "official").valid
    first = pid(suite)
    verdict = suite.judge(item, [*WALK[:2], fault, WALK[2]], "official")
    assert (verdict.valid, verdict.score, verdict.parts) == (None, 0, {})
    assert verdict.reason == f"the game process failed: {reason}"
    assert first and ended(first)
    assert suite.judge(item, WALK, "official").valid and pid(suite) not in (None, first)


def test_a_game_that_cannot_be_opened_has_no_verdict(tmp_path: Path) -> None:
    suite, item = one(tmp_path, broken=True)
    verdict = suite.judge(item, WALK, "official")
    assert verdict.valid is None and "it said: SyntaxError: no grammar" in verdict.reason


@mutation(
    "a game process lives for ever", GAMES,
    "self._process.games >= self._limits.games", "self._process.games < 0",
)  # fmt: skip
def test_the_process_is_replaced_after_some_games(tmp_path: Path) -> None:
    suite, item = one(tmp_path, GameLimits(games=3))
    pids: list[int | None] = []
    for _ in range(7):
        assert suite.judge(item, WALK, "official").valid
        pids.append(pid(suite))
    assert [pids.index(pid) for pid in pids] == [0, 0, 0, 3, 3, 3, 6]
    assert all(pid and ended(pid) for pid in pids[:6]) and not ended(pids[6] or 0)
    suite.pool.close()
    assert pid(suite) is None and ended(pids[6] or 0)


@mutation(
    "a fork plays the game of its parent", GAMES,
    "self._process is None or self._process.owner != os.getpid()", "self._process is None",
)  # fmt: skip
def test_the_process_ends_with_who_started_it_and_not_with_a_fork(tmp_path: Path) -> None:
    _, item = one(tmp_path)
    code = f"""
import os, sys
from pathlib import Path
from genenv_core.benchmarks.alfworld.games import GameError, GameProcess
path = Path({str(tmp_path / "data/json_2.1.1" / item)!r})
games = GameProcess([sys.executable, {str(tmp_path / "process.py")!r}])
games.open(path)
first = games.pid
if not os.fork():
    try:
        games.step("look")
    except GameError:
        games.open(path)
        sys.exit(0 if games.pid != first else "it talks to the process of its parent")
    sys.exit("it plays the game of its parent")
assert os.wait()[1] == 0
assert games.step("look").observation == "You look."
print(games.pid, flush=True)
sys.argv[1] == "killed" and os.kill(os.getpid(), 9)
"""
    for how in ("normally", "killed"):
        done = subprocess.run(
            [sys.executable, "-c", code, how], capture_output=True, text=True, timeout=60
        )
        assert done.returncode == (0 if how == "normally" else -9), done.stderr
        pid, until = int(done.stdout.split()[0]), time.monotonic() + 10
        while not ended(pid) and time.monotonic() < until:
            time.sleep(0.02)
        assert ended(pid)


def test_starts_that_fail_are_given_up(tmp_path: Path) -> None:
    item = write_game(tmp_path / "data", "valid_seen/a/t")
    begun = tmp_path / "begun"
    script = f"open({str(begun)!r}, 'a').write('x'); raise SystemExit('no module textworld')"
    suite = household(tmp_path / "data", process=script)
    reasons = [suite.judge(item, WALK, "official").reason for _ in range(STARTS + 2)]
    assert len(begun.read_text()) == STARTS
    assert all("last words: no module textworld" in reason for reason in reasons)
    assert "3 starts failed" in reasons[-1] and "3 starts failed" not in reasons[0]
    suite = household(tmp_path / "data", process="print('{}'); input()")
    assert "it is no game process" in suite.judge(item, WALK, "official").reason
    with pytest.raises(GameError, match="/nowhere/python does not start"):
        GameProcess(["/nowhere/python"]).open(tmp_path)
    with pytest.raises(GameError, match="no game is open"):
        GameProcess().step("look")


def test_without_the_environment_no_game_has_a_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    item = write_game(tmp_path / "data", "valid_seen/a/t")
    monkeypatch.setenv("GENENV_ALFWORLD_PYTHON", "/nowhere/python")
    suite = BENCHMARK.load(tmp_path / "data")
    verdict = suite.judge(item, WALK, "official")
    assert verdict.valid is None and "GENENV_ALFWORLD_PYTHON '/nowhere/python'" in verdict.reason
    monkeypatch.delenv("GENENV_ALFWORLD_PYTHON")
    monkeypatch.setattr(sys, "prefix", str(tmp_path / ".venv"))
    verdict = suite.judge(item, WALK, "official")
    assert verdict.valid is None and "`make alfworld`" in verdict.reason
    assert suite.judge(item, "no list", "official").valid is False
    beside = tmp_path / ".venv-alfworld" / "bin" / "python"
    beside.parent.mkdir(parents=True)
    beside.symlink_to(sys.executable)
    assert interpreter() == str(beside)
    monkeypatch.setenv("GENENV_ALFWORLD_PYTHON", sys.executable)
    assert interpreter() == sys.executable  # which has no textworld
    reason = suite.judge(item, WALK, "official").reason
    assert "it died with status 1; its last words: ModuleNotFoundError: No module" in reason


@pytest.mark.parametrize(
    "prediction",
    [None, 1, 1.5, True, {}, "go to desk 1", [None], [1], [["go to desk 1"]], [{}], [*WALK, 1],
     [], [""], ["\0"], ["\ud800"], ["\n"], ['{"open": "x"}'], ["x" * 3_000_000] * 2,
     ["put " * 40_000], ["put a in " * 20_000], ["move " + "to " * 40_000], ["ǅ İ ß \u2028"],
     WALK[:2], WALK[::-1], [" ".join(WALK)], ["\n".join(WALK)], ["look"] * 100_000],
    ids=lambda value: repr(value)[:20],
)  # fmt: skip
def test_no_prediction_raises_and_none_of_these_wins(tmp_path: Path, prediction: Any) -> None:
    suite, item = one(tmp_path)
    for mode in BENCHMARK.modes:
        verdict = suite.judge(item, prediction, mode)
        assert verdict.valid is False, verdict.reason
        json.dumps(verdict.parts)
    assert suite.judge(item, WALK, "official").valid


def test_a_wrong_form_says_what_is_wrong(tmp_path: Path) -> None:
    suite, item = one(tmp_path)
    reason = suite.judge(item, {"commands": WALK}, "official").reason
    assert reason == "the prediction is no list of commands but dict"
    assert suite.judge(item, ["look", 7], "strict").reason == "command 2 is no text but int"
    assert pid(suite) is None


@mutation(
    "games with sliced objects are items", "genenv_core/benchmarks/alfworld/loading.py",
    ' or "Sliced" in below', "",
)  # fmt: skip
def test_items_are_the_games_that_the_official_loader_takes(tmp_path: Path) -> None:
    for place in ("train/b/t", "valid_unseen/c/t2", "valid_unseen/c/t1", "valid_seen/a/t"):
        write_game(tmp_path, place, LIGHT if "unseen" in place else SIMPLE)
    write_game(tmp_path, "valid_seen/pick_and_place_with_movable_recep-Spoon-Cup-Sink-6/t")
    write_game(tmp_path, "valid_seen/pick_and_place_simple-AppleSliced-None-Fridge-1/t")
    write_game(tmp_path, "valid_seen/d/t", "pick_and_place_with_movable_recep")
    write_game(tmp_path, "valid_seen/e/t", solvable=False)
    write_game(tmp_path, "valid_seen/g/t", solvable=None)
    unplayable = write_game(tmp_path, "valid_seen/f/t")
    (tmp_path / "json_2.1.1" / unplayable).unlink()
    write_game(tmp_path, "valid_train/h/t")
    suite = BENCHMARK.load(tmp_path)
    assert dict(suite.items) == {
        "valid_seen/a/t/game.tw-pddl": "seen",
        "valid_unseen/c/t1/game.tw-pddl": "unseen",
        "valid_unseen/c/t2/game.tw-pddl": "unseen",
        "train/b/t/game.tw-pddl": "train",
    }
    assert dict(BENCHMARK.load(tmp_path / "json_2.1.1").items) == dict(suite.items)
    for name in ("game.tw-pddl", "traj_data.json"):
        file = tmp_path / "json_2.1.1" / "train/b/t" / name
        file.write_bytes(file.read_bytes() + b" ")
        assert BENCHMARK.load(tmp_path).digest != suite.digest


def test_a_download_that_is_another_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"it has no json_2\.1\.1"):
        BENCHMARK.load(tmp_path)
    with pytest.raises(ConfigError, match="no such folder"):
        BENCHMARK.load(tmp_path / "none")
    (tmp_path / "json_2.1.1").mkdir()
    with pytest.raises(ConfigError, match="has none of valid_seen, valid_unseen, train"):
        BENCHMARK.load(tmp_path)
    (tmp_path / "json_2.1.1" / "train").mkdir()
    with pytest.raises(DataError, match=r"no folder of a split has a game\.tw-pddl"):
        BENCHMARK.load(tmp_path)
    item = write_game(tmp_path, "train/a/t", walkthrough="go")
    with pytest.raises(DataError, match="walkthrough is no list of texts"):
        walkthrough_of(tmp_path / "json_2.1.1" / item)
    for text, problem in (("{", "no JSON"), ("[]", "no JSON object but list")):
        for name in ("game.tw-pddl", "traj_data.json"):
            file = tmp_path / "json_2.1.1/train/a/t" / name
            whole = file.read_bytes()
            file.write_text(text)
            with pytest.raises(DataError, match=f"{name}: {problem}"):
                BENCHMARK.load(tmp_path)
            file.write_bytes(whole)


def test_success_is_by_split_and_task_type(tmp_path: Path) -> None:
    items = [
        write_game(tmp_path / "data", place, kind)
        for place, kind in (
            ("valid_seen/a/t", SIMPLE),
            ("valid_seen/b/t", LIGHT),
            ("valid_unseen/a/t", LIGHT),
            ("valid_unseen/b/t", LIGHT),
            ("train/a/t", SIMPLE),
        )
    ]
    suite = household(tmp_path / "data")
    results = Results(suite)
    for item, commands in zip(items, (WALK, ["look"], ["x"], ["die"]), strict=False):
        line = json.dumps({"id": item, "key": "k", "prediction": commands})
        results.add(*judge_lines([line.encode()], suite, "official"))
    (result,) = results.of_keys()
    assert {metric.name: (metric.value, metric.items) for metric in result.metrics} == {
        "seen": (0.5, 2),
        f"seen {SIMPLE}": (1, 1),
        f"seen {LIGHT}": (0, 1),
        "unseen": (0, 1),
        f"unseen {LIGHT}": (0, 1),
    }
    assert result.not_run == {"unseen": 1, "train": 1}


def test_the_official_games_are_listed() -> None:
    data = official("alfworld")
    games = read_games(data)[1]
    index = json.loads((data / "index_valid_274.json").read_text())
    known = {one["gamefile"]: one["task_type"] for one in index}
    assert len(games) == 24 and games.keys() <= known.keys()
    assert all(game.task_type == known[item] for item, game in games.items())
    for split in ("seen", "unseen"):
        kinds = [game.task_type for game in games.values() if game.split == split]
        assert sorted(kinds) == sorted([*TASK_TYPES, *TASK_TYPES])


def test_the_game_process_needs_nothing_of_genenv(tmp_path: Path) -> None:
    server = Path(sys.modules[GameProcess.__module__].__file__ or "").with_name("game_server.py")
    alone = tmp_path / "alone.py"
    shutil.copyfile(server, alone)
    packages = tmp_path / "packages"
    (packages / "alfworld/agents/environment").mkdir(parents=True)
    (packages / "alfworld/agents/environment/alfred_tw_env.py").write_text("AlfredDemangler = 0")
    (packages / "textworld.py").write_text(
        "print('noise')\n"
        "class EnvInfos:\n    def __init__(self, **asked): pass\n"
        "class Game:\n"
        "    _entity_infos = {}\n"
        "    def seen(self, said): return dict(feedback=said, won=False, admissible_commands=[])\n"
        "    def reset(self): return self.seen('Welcome.')\n"
        "    def step(self, said): return self.seen(str(1 / len(said))), 0, True\n"
        "    def close(self): print('more noise')\n"
        "def start(path, infos, wrappers): return Game()\n"
    )
    for name in ("alfworld", "textworld", "fast_downward_textworld"):
        (packages / f"{name}-1.0.dist-info").mkdir()
        (packages / f"{name}-1.0.dist-info/METADATA").write_text(f"Name: {name}\nVersion: 1.0\n")
    code = (
        f"import sys, runpy; sys.path.insert(0, {str(packages)!r}); "
        "sys.modules['genenv_core'] = None; "  # importing it fails
        f"runpy.run_path({str(alone)!r}, run_name='__main__')"
    )
    games = GameProcess([sys.executable, "-I", "-c", code])
    assert games.open(tmp_path).observation == "Welcome."
    state = games.step("look")
    assert (state.observation, state.won, state.done) == ("0.25", False, True)
    games.open(tmp_path)
    assert games.step("x" * 3_000_000).observation == str(1 / 3_000_000)
    pid = games.pid
    with pytest.raises(GameError, match="it said: ZeroDivisionError"):
        games.step("")
    assert pid and ended(pid)
