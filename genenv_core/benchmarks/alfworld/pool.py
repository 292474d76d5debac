"""Plays many games side by side in a few processes; its file and its commands name a game.

No caller holds a game. A caller asks by file and commands for a game's state. A process that has
played a beginning of the commands goes on from there; any other one plays them from the start. So
processes and games have bounds, an abandoned attempt leaves no game behind, and no attempt ever
waits for another one to end. Games are deterministic, so the pool remembers states instead of
playing them again.
"""

from __future__ import annotations

import itertools
import os
import random
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from genenv_core.benchmarks.alfworld.games import GameProcess, GameState

PROCESSES = 4
SEATS = 80
"""Games that one process keeps open; each takes about 4 MB. All 274 games of the two splits fit."""

STATES, OPENINGS = 16_384, 1024
"""States after commands, and before any, that a pool remembers: those of 274 attempts and more.
States share the texts of their commands, so one takes about 1 kB, and an opening 10."""

LONGEST = 1000
"""Most letters of a command whose state a pool remembers."""

Place = tuple[Path, tuple[str, ...]]
"""A game file, and the commands played in it."""


class Pool:
    """Plays games in up to `processes` processes; for any number of threads."""

    def __init__(
        self,
        make: Callable[[], GameProcess] = GameProcess,
        processes: int = PROCESSES,
        seats: int = SEATS,
        states: int = STATES,
    ) -> None:
        """Start no process yet; `make` returns one that plays games."""
        self._most = {True: states, False: min(states, OPENINGS)}
        self._hosts = [_Host(make(), seats) for _ in range(processes)]
        self._lock = threading.Lock()
        self._states: OrderedDict[Place, GameState] = OrderedDict()
        self._openings: OrderedDict[Place, GameState] = OrderedDict()

    @property
    def pids(self) -> list[int]:
        """The processes that play now."""
        return [host.games.pid for host in self._hosts if host.games.pid]

    def after(self, path: Path, commands: Sequence[str] = ()) -> GameState:
        """Return the state of a game after these commands as they are; raises GameError."""
        place, shown = (path, tuple(commands)), GameState("", False, False, ())
        with self._lock:
            seen = self._seen(place)
            if seen:
                return seen
            host = min(self._hosts, key=lambda host: host.cost(place))
            host.waiting += 1
        try:
            with host.lock:
                for at, shown in host.play(place):
                    self._remember(at, shown)
        finally:
            with self._lock:
                host.waiting -= 1
        return shown

    def leave(self, path: Path, commands: Sequence[str]) -> None:
        """Give up the seat of the game with exactly these commands, if any."""
        for host in self._hosts:
            with host.lock:
                host.leave((path, tuple(commands)))

    def close(self) -> None:
        """End all processes; the next game starts another."""
        for host in self._hosts:
            with host.lock:
                host.games.close()

    def _seen(self, place: Place) -> GameState | None:
        states = self._states if place[1] else self._openings
        if place in states:
            states.move_to_end(place)
        return states.get(place)

    def _remember(self, place: Place, state: GameState) -> None:
        if any(len(command) > LONGEST for command in place[1]):
            return
        state = replace(state, admissible=tuple(map(sys.intern, state.admissible)))
        with self._lock:
            states = self._states if place[1] else self._openings
            states[place] = state
            if len(states) > self._most[bool(place[1])]:
                states.popitem(last=False)


_CLOCK = itertools.count(1)


class _Host:
    """A process and the game in each of its seats.

    A lot decides which game makes room. Attempts that take turns ask for their games in a circle,
    so the least recently used game would be the very one that they want next.
    """

    def __init__(self, games: GameProcess, seats: int) -> None:
        self.games = games
        self.lock = threading.Lock()  # held during a request to the process
        self.waiting = 0
        self._most = seats
        self._seats: dict[int, Place] = {}
        self._opened = 0  # when the newest game here began
        self._rng = random.Random(0)
        self._process: tuple[int, int | None] = (os.getpid(), None)

    def cost(self, place: Place) -> tuple[int, int, int, int]:
        """Return the cost of playing here; an estimate, as others may play meanwhile."""
        played = max((_begun(seat, place) for seat in [*self._seats.values()]), default=-1)
        full = len(self._seats) >= self._most
        return -played, self.waiting, len(self._seats), self._opened if full else 0

    def play(self, place: Place) -> Iterator[tuple[Place, GameState]]:
        """Play the remaining commands, and yield each new state; raises GameError."""
        path, commands = place
        self._look()
        seat = max(self._seats, key=lambda seat: _begun(self._seats[seat], place), default=None)
        played = -1 if seat is None else _begun(self._seats[seat], place)
        if seat is None or played < 0:
            seat, played = self._free(), 0
            state = self.games.open(path, seat)
            self._opened = next(_CLOCK)
            self._look()  # the process may be another one now
            yield (path, ()), state
        else:
            del self._seats[seat]  # a game that fails half-way has no seat
        for number in range(played, len(commands)):
            state = self.games.step(commands[number], seat)
            yield (path, commands[: number + 1]), state
        self._seats[seat] = place

    def leave(self, place: Place) -> None:
        """Give up the seats that hold this game."""
        for seat in [seat for seat, held in self._seats.items() if held == place]:
            del self._seats[seat]

    def _free(self) -> int:
        """Return a free seat; take one away from a game if all are full."""
        if len(self._seats) >= self._most:
            seat = self._rng.choice([*self._seats])
            del self._seats[seat]
            return seat
        return next(seat for seat in range(self._most) if seat not in self._seats)

    def _look(self) -> None:
        """Forget the games of a process that has ended, or is another's since a fork."""
        process = os.getpid(), self.games.pid
        if process != self._process:
            self._seats.clear()
            self._process = process


def _begun(held: Place, wanted: Place) -> int:
    """Return how many of the wanted commands a game has played, -1 if it cannot go on with them.

    It cannot after other commands, nor after all of them: only playing the last one shows the
    wanted state.
    """
    path, commands = held
    if path != wanted[0] or len(commands) >= len(wanted[1]):
        return -1
    return len(commands) if wanted[1][: len(commands)] == commands else -1
