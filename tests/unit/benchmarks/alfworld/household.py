"""A small folder of made-up games, and a process that plays them with the standard library alone.

A game is won by the commands of its walkthrough in their order. `look` changes nothing; `give up`
ends it without success.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from genenv_core.benchmarks.alfworld.games import GameLimits, GameProcess
from genenv_core.benchmarks.alfworld.loading import read_games
from genenv_core.benchmarks.alfworld.pool import Pool
from genenv_core.benchmarks.alfworld.suite import Alfworld

WALK = ["go to desk 1", "take mug 1 from desk 1", "move mug 1 to shelf 2"]
IDS = {"desk_bar_1": "desk 1", "mug_bar_7": "mug 1", "shelf_bar_2": "shelf 2"}
SIMPLE, LIGHT = "pick_and_place_simple", "look_at_obj_in_light"

PROCESS = """
import json, os, sys, time
def say(answer):
    sys.stdout.write(json.dumps(answer) + "\\n")
    sys.stdout.flush()
say({"ready": {}})
seats = {}
for line in sys.stdin:
    asked = json.loads(line)
    seat = asked.pop("seat", 0)
    ((ask, value),) = asked.items()
    if ask == "step":
        game, walk, extra, at, over = seats[seat]
    if ask == "open":
        game = json.load(open(value))
        walk, extra, at, over = game["walkthrough"], game.get("extra", []), 0, False
        said = "Welcome."
        if game.get("broken"):
            say({"error": "SyntaxError: no grammar"})
            continue
    elif value == "hang":
        time.sleep(60)
    elif value == "die":
        sys.stderr.write("first\\nout of luck\\n")
        sys.stderr.flush()
        os._exit(3)
    elif value == "babble":
        print("babble", flush=True)
        continue
    elif value == "no state":
        say({"observation": "", "won": False})
        continue
    elif value == "endless":
        while True:
            sys.stdout.write("x" * 65536)
    elif value == "give up":
        over, said = True, "You give up."
    elif at < len(walk) and value.strip() == walk[at]:
        at, said = at + 1, "Good."
    elif value.strip() in walk + extra + ["look"]:
        said = "You look."
    else:
        said = "Nothing happens."
    won = at == len(walk)
    seats[seat] = game, walk, extra, at, over
    say({"observation": said, "won": won, "done": won or over,
         "admissible": walk + extra + ["look"], "names": game.get("names", {}), "pid": os.getpid()})
"""


def write_game(
    data: Path, place: str, task_type: str = SIMPLE, solvable: Any = True, **more: Any
) -> str:
    """Write a game below the folder of a download and return its id."""
    folder = data / "json_2.1.1" / place
    folder.mkdir(parents=True)
    (folder / "traj_data.json").write_text(json.dumps({"task_type": task_type}))
    game = {"walkthrough": WALK, "names": IDS, "solvable": solvable, **more}
    (folder / "game.tw-pddl").write_text(json.dumps(game))
    return f"{place}/game.tw-pddl"


def household(data: Path, limits: GameLimits | None = None, process: str = PROCESS) -> Alfworld:
    """Return the suite of a folder, whose games play in this module's process, each time anew."""
    script = data.parent / "process.py"
    script.write_text(process)

    def make() -> GameProcess:
        return GameProcess([sys.executable, str(script)], limits)

    return Alfworld(read_games(data)[1], "0" * 64, Pool(make, processes=1, states=0))


def pid(suite: Alfworld) -> int | None:
    """Return the process that plays, None while there is none."""
    return next(iter(suite.pool.pids), None)
