"""Plays the official games in a process beside this one.

The packages `alfworld` and `textworld` have an environment of their own (`make alfworld`), and this
process imports neither. The game process starts with the first game. `GameProcess` replaces it when
it does not answer a request within a limit, and after some games, as it leaks about 4 MB a game. It
has numbered seats, each with a game of its own.
It ends with `close`, with the last reference to its `GameProcess`, and with this process, however
that ends.
"""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import sys
import tempfile
import time
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, cast

from genenv_core.errors import GenenvError, one_line

PYTHON_VARIABLE = "GENENV_ALFWORLD_PYTHON"
ENVIRONMENT = ".venv-alfworld"
SERVER = Path(__file__).with_name("game_server.py")
HANDED_ON = ("PATH", "HOME", "TMPDIR", "LANG", "LD_LIBRARY_PATH")
"""Variables that the game process gets, where they are set."""

STARTS = 3
"""Failed starts in a row after which genenv stops trying."""

LONGEST_ANSWER = 2**22
"""Most bytes of an answer; official games answer with some 10 kB."""

QUOTED_BYTES, QUOTED_LETTERS = 4096, 200


class GameError(GenenvError):
    """A game does not run: no packages, a hang, or a process that died."""


@dataclass(frozen=True, slots=True)
class GameState:
    """The state of a game after a command, or at its beginning.

    `done` without `won` is no success. `names` are the objects' names by their id in the game file.
    """

    observation: str
    won: bool
    done: bool
    admissible: tuple[str, ...]
    names: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True)
class GameLimits:
    """Seconds for an answer, and games of one process."""

    start_s: float = 120.0
    open_s: float = 120.0
    step_s: float = 30.0
    games: int = 120


@dataclass(slots=True)
class _Process:
    popen: subprocess.Popen[bytes]
    errors: IO[bytes]
    owner: int = field(default_factory=os.getpid)
    games: int = 0


class GameProcess:
    """One process and the games in its seats; not for several threads at once.

    `command` starts the game process; None: `game_server.py` under the environment's interpreter.
    """

    def __init__(
        self, command: Sequence[str] | None = None, limits: GameLimits | None = None
    ) -> None:
        self._command = command
        self._limits = limits or GameLimits()
        self._process: _Process | None = None
        self._end: weakref.finalize[..., GameProcess] | None = None
        self._failed_starts = 0
        self._refusal = ""

    @property
    def pid(self) -> int | None:
        """The pid of the game process, None without one."""
        return self._process.popen.pid if self._process else None

    def open(self, path: Path, seat: int = 0) -> GameState:
        """Begin a game of a game file in a seat; raises GameError.

        If that replaces the process, the games in all seats are gone.
        """
        if self._process and (
            self._process.owner != os.getpid()  # two owners would read each other's answers
            or self._process.games >= self._limits.games
        ):
            self.close()
        process = self._process or self._start()
        process.games += 1
        return self._asked({"open": str(path.resolve()), "seat": seat}, self._limits.open_s)

    def step(self, command: str, seat: int = 0) -> GameState:
        """Play a command in the newest game of a seat; raises GameError."""
        return self._asked({"step": command, "seat": seat}, self._limits.step_s)

    def close(self) -> None:
        """End the process; the next game starts another."""
        if self._end:
            self._end()
        self._process = self._end = None

    def _start(self) -> _Process:
        if self._refusal:
            raise GameError(self._refusal)
        command = self._command or [interpreter(), "-I", str(SERVER)]
        errors = tempfile.TemporaryFile()  # noqa: SIM115, _stop closes it
        environment = {name: os.environ[name] for name in HANDED_ON if name in os.environ}
        try:
            popen = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, bufsize=0,
                env=environment | {"OPENBLAS_NUM_THREADS": "1"}, start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            errors.close()
            raise GameError(f"{command[0]} does not start: {error.strerror}") from error
        self._process = _Process(popen, errors)
        self._end = weakref.finalize(self, _stop, self._process)
        for pipe in (popen.stdin, popen.stdout):
            assert pipe
            os.set_blocking(pipe.fileno(), False)
        try:
            if "ready" not in self._exchanged(b"", self._limits.start_s):
                raise self._failed("it is no game process")
        except GameError as error:
            self._failed_starts += 1
            if self._failed_starts >= STARTS:
                self._refusal = f"{error} ({STARTS} starts failed, and no more are tried)"
            raise
        self._failed_starts = 0
        return self._process

    def _asked(self, request: Mapping[str, str | int], limit_s: float) -> GameState:
        answer = self._exchanged(json.dumps(request).encode() + b"\n", limit_s)
        if "error" in answer:
            raise self._failed(f"it said: {answer['error']}")
        try:
            return GameState(
                observation=str(answer["observation"]),
                won=answer["won"] is True,
                done=answer["done"] is True,
                admissible=tuple(str(command) for command in answer["admissible"]),
                names={str(name): str(shown) for name, shown in answer.get("names", {}).items()},
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise self._failed("its answer is no state of a game") from error

    def _exchanged(self, request: bytes, limit_s: float) -> dict[str, Any]:
        """Send bytes and return the next answer; the process may fail at any time."""
        if self._process is None or self._process.owner != os.getpid():
            raise GameError("no game is open")
        popen = self._process.popen
        assert popen.stdin and popen.stdout
        deadline, answer = time.monotonic() + limit_s, b""
        try:
            with selectors.DefaultSelector() as ready:
                ready.register(popen.stdout, selectors.EVENT_READ)
                if request:
                    ready.register(popen.stdin, selectors.EVENT_WRITE)
                while not answer.endswith(b"\n"):
                    events = ready.select(max(0.0, deadline - time.monotonic()))
                    if not events or time.monotonic() > deadline:
                        raise self._failed(f"no answer within {limit_s:g} s")
                    for key, _ in events:
                        if key.fileobj is popen.stdout:
                            got = popen.stdout.read(2**16)
                            if not got or len(answer) > LONGEST_ANSWER:
                                raise self._failed("its answer has no end" if got else "it died")
                            answer += got
                        elif request := request[popen.stdin.write(request) or 0 :]:
                            continue
                        else:
                            ready.unregister(popen.stdin)
        except OSError as error:
            raise self._failed("it died") from error
        except KeyboardInterrupt:  # else its answer would pass for that to the next request
            self.close()
            raise
        try:
            read = json.loads(answer)
        except (ValueError, RecursionError) as error:
            raise self._failed("its answer is no JSON") from error
        return cast("dict[str, Any]", read) if isinstance(read, dict) else {}

    def _failed(self, what: str) -> GameError:
        """End the process, and return the error with its last words."""
        said = ""
        if self._process:
            if what == "it died":
                what = f"it died with status {_status(self._process.popen)}"
            errors = self._process.errors
            errors.seek(max(0, errors.seek(0, os.SEEK_END) - QUOTED_BYTES))
            lines = errors.read().decode(errors="replace").strip().splitlines()
            said = f"; its last words: {one_line(lines[-1], QUOTED_LETTERS)}" if lines else ""
        self.close()
        return GameError(f"the game process failed: {one_line(what, QUOTED_LETTERS)}{said}")


def interpreter() -> str:
    """Return the Python with the packages of the games; raises GameError without one."""
    named = os.environ.get(PYTHON_VARIABLE)
    place = Path(named) if named else Path(sys.prefix).parent / ENVIRONMENT / "bin" / "python"
    if place.is_file() and os.access(place, os.X_OK):
        return str(place)
    where = f"{PYTHON_VARIABLE} {str(place)!r} is no program" if named else f"there is no {place}"
    raise GameError(
        f"no game can be played: {where}; `make alfworld` builds the environment of the games, "
        f"and {PYTHON_VARIABLE} names the Python of one elsewhere"
    )


def _status(popen: subprocess.Popen[bytes]) -> int | None:
    try:
        return popen.wait(5)
    except subprocess.TimeoutExpired:
        return None


def _stop(process: _Process) -> None:
    process.popen.kill()  # does nothing in a fork, whose child it is not
    process.popen.wait()
    for pipe in (process.popen.stdin, process.popen.stdout, process.errors):
        assert pipe
        pipe.close()
