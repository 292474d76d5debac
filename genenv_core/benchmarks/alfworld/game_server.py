"""Plays ALFWorld's text games in a process of their own, one in each of its seats.

The Python of `make alfworld`, which has `alfworld` and `textworld` and not genenv, runs this file.
So it imports only these and the standard library. A line of JSON on standard input is a request:
`{"open": PATH}` begins a game and `{"step": COMMAND}` plays a command, in seat 0 or, with
`"seat": NUMBER`, in that seat. Each has one line of JSON on standard output as its answer:
`observation`, `won`, `done`, `admissible`, and for `open` also `names`, the name of each object by
its id in the game file; or `error`. The first line says `ready` with the packages' versions. The
end of standard input ends the process, also in the middle of a game.
"""

from __future__ import annotations

import json
import os
import queue
import tempfile
import threading
from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.metadata import version
from typing import Any

PACKAGES = ("alfworld", "textworld", "fast-downward-textworld")


class ServedGames:
    """One environment a game, with the official wrapper that names objects as `mug 1`."""

    def __init__(self) -> None:
        os.environ["ALFWORLD_DATA"] = tempfile.gettempdir()  # importing alfworld makes this folder
        self._textworld: Any = import_module("textworld")
        self._demangler: Any = import_module(
            "alfworld.agents.environment.alfred_tw_env"
        ).AlfredDemangler
        self._environments: dict[int, Any] = {}

    def open(self, seat: int, path: str) -> dict[str, Any]:
        """Begin a game; the one before in this seat ends."""
        if before := self._environments.pop(seat, None):
            before.close()
        infos = self._textworld.EnvInfos(won=True, admissible_commands=True)
        environment = self._textworld.start(path, infos, wrappers=[self._demangler])
        shown = self._shown(environment.reset(), done=False)
        objects: dict[str, Any] = environment._entity_infos
        self._environments[seat] = environment
        return shown | {"names": {name: str(one.name) for name, one in objects.items()}}

    def step(self, seat: int, command: str) -> dict[str, Any]:
        """Play one command as it is."""
        if seat not in self._environments:
            raise ValueError("no game is open")
        state, _, done = self._environments[seat].step(command)
        return self._shown(state, done)

    def _shown(self, state: Any, done: bool) -> dict[str, Any]:
        return {
            "observation": str(state["feedback"]),
            "won": bool(state["won"]),
            "done": bool(done),
            "admissible": [str(command) for command in state["admissible_commands"]],
        }


def main() -> None:
    """Answer requests until standard input ends."""
    # What the packages and their C++ library print must not come between the answers.
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 1)

    def say(answer: dict[str, Any]) -> None:
        out.write(json.dumps(answer) + "\n")
        out.flush()

    requests: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(requests,), daemon=True).start()
    games = ServedGames()
    say({"ready": {name: version(name) for name in PACKAGES}})
    for request in _each(requests):
        say(_answered(games, request))


def _answered(games: ServedGames, request: bytes) -> dict[str, Any]:
    try:
        asked: dict[str, Any] = json.loads(request)
        seat = int(asked.pop("seat", 0))
        actions: dict[str, Callable[[int, str], dict[str, Any]]]
        actions = {"open": games.open, "step": games.step}
        ((name, value),) = asked.items()
        return actions[name](seat, value)
    except Exception as error:  # one game's fault; the process goes on with the next
        return {"error": f"{type(error).__name__}: {error}"}


def _listen(requests: queue.SimpleQueue[bytes]) -> None:
    # Not sys.stdin: its lock, held by a thread that waits, aborts a process that ends by itself.
    begun: list[bytes] = []
    while got := os.read(0, 2**16):
        *lines, rest = got.split(b"\n")
        for line in lines:
            requests.put(b"".join([*begun, line]))
            begun = []
        begun.append(rest)
    os._exit(0)  # the parent has ended or needs no more, whatever the game is doing


def _each(requests: queue.SimpleQueue[bytes]) -> Iterator[bytes]:
    while True:
        yield requests.get()


if __name__ == "__main__":
    main()
