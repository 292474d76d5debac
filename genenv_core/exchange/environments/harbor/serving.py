"""The environment's part of a task of Harbor: it answers an agent's turns, and judges them later.

This module travels in the folder and runs in the container, as a user that the agent is not:

| in the container | what it is |
|---|---|
| `CODE` | the package of the copied code, for that user alone |
| `TASK` | the task as far as its environment needs it, for that user alone |
| `TURNS` | what the agent said and what it got as answers, a turn a line, for that user alone |
| `SOCKET` | where the agent's command `attempt` says turns |
| `TESTS` | the whole task, in another container of this image, where Harbor also puts `TURNS` |

`judge` says the turns again to the whole task: no answer in `TURNS` counts for the verdict.
"""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from genenv_core.domains.steps import EnvironmentLost, storable
from genenv_core.exchange.environments.playing import ExportedTasks, read_tasks
from genenv_core.types import JsonObject, Message, Verdict

HOME = Path("/opt/attempt")
CODE = HOME / "code"
TASK = HOME / "task"
TURNS = HOME / "turns.jsonl"
SOCKET = HOME / "socket"
TESTS = Path("/tests")
VERIFIER = Path("/logs/verifier")

SEED = 0
"""Seed of the environment's own chance: it is the same in the container and in the verdict."""

WAIT_S = 10.0
"""Longest time for a request to arrive."""

OVER = "The attempt is over."
CLOSED = "The attempt is over: it is being judged."
LOST = "The attempt is over: the environment itself failed, which is no fault of yours."


@dataclass(frozen=True, slots=True)
class SaidTurn:
    """What the agent said in a turn, and what the environment answered, as texts.

    `lost` says that the environment itself failed, which ends the attempt.
    """

    said: str
    answers: tuple[str, ...] = ()
    lost: bool = False

    @property
    def line(self) -> str:
        """Return it as a line of `TURNS`."""
        return json.dumps(asdict(self)) + "\n"


class ServedTask:
    """The only attempt at a task; a file keeps its turns for the next process."""

    def __init__(self, tasks: ExportedTasks, turns: Path, tests: Path = TESTS) -> None:
        """Begin, or go on after the turns in the file `turns`.

        Once the folder `tests` holds anything, the attempt is closed.
        """
        self._tests, self._file = tests, turns
        self._attempt = tasks.attempt(0, SEED)
        self._opening = self._attempt.opening()
        self._turns = read_turns(turns)
        for turn in self._turns:
            self._answer(turn.said)

    def asked(self, request: Any) -> JsonObject:
        """Return the answer to a request of the command `attempt`."""
        match request:
            case {"say": str(text)}:
                return self._say(storable(text))
            case {"show": True}:
                return {"text": "\n".join(self._shown())}
            case _:
                return {"failed": "Nobody can read that: say a turn by the command `attempt`."}

    def _say(self, text: str) -> JsonObject:
        if self._tests.is_dir() and any(self._tests.iterdir()):
            return {"failed": CLOSED}  # a Harbor that judges where the agent was shows the answer
        if self._attempt.done or any(turn.lost for turn in self._turns):
            return {"failed": OVER}
        turn = self._answer(text)
        self._turns.append(turn)
        with self._file.open("a", encoding="utf-8") as out:
            out.write(turn.line)
        if turn.lost:
            return {"failed": LOST}
        said = "\n".join(turn.answers)
        if self._attempt.done:
            return {"text": f"{said}\n{OVER}" if said else OVER}
        return {"text": said or "(no answer)"}

    def _answer(self, text: str) -> SaidTurn:
        try:
            answers = self._attempt.say(text)
        except EnvironmentLost:
            return SaidTurn(text, lost=True)
        return SaidTurn(text, _texts(answers))

    def _shown(self) -> list[str]:
        shown = [self._opening]
        for turn in self._turns:
            shown += ["", "You said:", turn.said, "", "The environment:", *turn.answers]
        return [*shown, "", OVER] if self._attempt.done else shown


def read_turns(file: Path) -> list[SaidTurn]:
    """Return the turns of an attempt; [] where nobody said anything."""
    if not file.exists():
        return []
    rows = map(json.loads, file.read_text(encoding="utf-8").splitlines())
    return [SaidTurn(row["said"], tuple(row["answers"]), row["lost"]) for row in rows]


def judged(tasks: ExportedTasks, turns: Sequence[SaidTurn]) -> tuple[Verdict, list[Any]]:
    """Return the verdict on the turns of an attempt at the one task, and the whole conversation.

    An attempt without a turn earns nothing. Neither does one with answers that the whole task would
    not have given, or with turns after the end: it was at something else. Raises EnvironmentLost
    where the environment itself fails, which says nothing about the agent.
    """
    if any(turn.lost for turn in turns):
        raise EnvironmentLost("the environment failed while the agent had the task")
    attempt = tasks.attempt(0, SEED)
    if not turns:
        return Verdict(0.0, False, "nothing_said"), list(attempt.messages)
    for turn in turns:
        over = attempt.done
        if over or _texts(attempt.say(turn.said)) != turn.answers:
            return Verdict(0.0, False, "other_answers"), list(attempt.messages)
    return attempt.verdict(), list(attempt.messages)


def judge(tests: Path, turns: Path, verifier: Path) -> None:
    """Write what an attempt earned, as Harbor reads it, and why, as people do.

    Args:
        tests: the folder with the whole task.
        turns: the file of the attempt.
        verifier: folder for `reward.json` and `verdict.json`; made where it is missing.
    """
    verdict, messages = judged(read_tasks(tests), read_turns(turns))
    verifier.mkdir(parents=True, exist_ok=True)
    why = {"reward": verdict.reward, "success": verdict.success, "failure": verdict.failure}
    (verifier / "verdict.json").write_text(
        json.dumps({**why, "messages": messages}, indent=1, ensure_ascii=False), encoding="utf-8"
    )
    (verifier / "reward.json").write_text(json.dumps({"reward": verdict.reward}), encoding="utf-8")


def _texts(messages: Sequence[Message]) -> tuple[str, ...]:
    return tuple(message["content"] for message in messages)


def serve() -> None:
    """Answer the agent in a process of its own; return once it listens, or if one does already."""
    with socket.socket(socket.AF_UNIX) as there:
        if there.connect_ex(str(SOCKET)) == 0:
            return
    TURNS.touch(0o600)
    task = ServedTask(read_tasks(TASK), TURNS)
    SOCKET.unlink(missing_ok=True)
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(SOCKET))
    SOCKET.chmod(0o666)
    listening.listen()
    if os.fork():
        return
    os.setsid()
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nothing, stream)
    while True:
        _answer(task, listening.accept()[0])


def _answer(task: ServedTask, connection: socket.socket) -> None:
    """Answer one request; whatever an agent sends, and however it goes away, ends no attempt."""
    connection.settimeout(WAIT_S)
    with suppress(OSError, ValueError, RecursionError), connection:
        with connection.makefile("rb") as asking:
            request = json.loads(asking.readline())
        connection.sendall(json.dumps(task.asked(request)).encode() + b"\n")


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["serve"]:
            serve()
        case ["judge"]:
            judge(TESTS, TURNS, VERIFIER)
        case other:
            sys.exit(f"{other}: expected serve or judge")
