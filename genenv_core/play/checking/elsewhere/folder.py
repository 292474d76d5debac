"""The domain of an exported folder, which another process plays.

The checks that certify the tasks stay in this process. The folder's code can only answer requests,
and the two processes exchange nothing but JSON.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, cast

from genenv_core.domains.protocol import Domain, Episode, SolutionTurn
from genenv_core.domains.steps import EnvironmentLost
from genenv_core.errors import DataError, DomainError, one_line
from genenv_core.play.checking.elsewhere import folder_child
from genenv_core.play.checking.elsewhere.process import (
    SAID,
    AskedProcess,
    ForeignFault,
    asked_process,
)
from genenv_core.types import Cause, JsonObject, Message, Observation, TaskDraft, Verdict

Made = TypeVar("Made")


class FolderDomain:
    """A domain whose methods another process carries out.

    It has those methods that attempts and verdicts need, and of the optional ones those that the
    folder's domain has. It draws no tasks: the folder holds them.
    """

    def __init__(self, ask: AskedProcess) -> None:
        """Ask the process for the domain's attributes and methods."""
        self._ask = ask
        about = ask("about")
        self.name, self.version = str(about["name"]), str(about["version"])
        self.tools: Sequence[JsonObject] = about["tools"]
        optional: dict[str, Any] = {
            "solution": self._solution,
            **{name: partial(self._texts, name) for name in ("answer_turns", "leaks", "tools_of")},
        }
        for name in about["has"]:
            setattr(self, name, optional[name])
        for name, value in about["says"].items():
            setattr(self, name, bool(value))

    def agent_messages(self, draft: TaskDraft) -> list[Message]:
        """Return the messages that open an attempt."""
        return self._texts("agent_messages", draft)

    def trivial_answers(self, draft: TaskDraft) -> list[str]:
        """Return answers that no sound task accepts."""
        return self._texts("trivial_answers", draft)

    def score(self, draft: TaskDraft, messages: Sequence[Message]) -> Verdict:
        """Return the verdict on a transcript, with whatever fields the folder's code gave it."""
        return Verdict(*self._ask("score", draft=asdict(draft), messages=list(messages)))

    def episode(self, draft: TaskDraft, seed: int) -> Episode:
        """Begin an attempt."""
        return FolderEpisode(self._ask, self._ask("episode", draft=asdict(draft), seed=seed))

    @contextmanager
    def clock_ahead(self) -> Generator[None]:
        """Set the clock of the other process ahead inside of the block."""
        self._ask("clock", ahead=True)
        try:
            yield
        finally:
            self._ask("clock", ahead=False)

    def _solution(self, draft: TaskDraft) -> list[SolutionTurn]:
        turns = self._ask("solution", draft=asdict(draft))
        return [SolutionTurn(says, tuple(reveals)) for says, reveals in turns]

    def _texts(self, name: str, draft: TaskDraft) -> Any:
        return self._ask(name, draft=asdict(draft))


class FolderEpisode:
    """An attempt in the other process."""

    def __init__(self, ask: AskedProcess, number: int) -> None:
        """Keep the attempt's number in that process."""
        self._ask, self._number = ask, number

    def step(self, action: str) -> Observation:
        """Take a turn; raises what the folder's code raises."""
        seen = self._ask("step", number=self._number, action=action)
        return Observation(
            tuple(seen["messages"]),
            done=seen["done"],
            simulated=seen["simulated"],
            failed=seen["failed"],
            cause=Cause(seen["cause"]),
            anew=seen["anew"],
        )


@contextmanager
def folder_process(
    folder: Path, package: str, *, limit_s: float | None = None
) -> Generator[AskedProcess]:
    """Start the process that plays a folder, and end it afterwards, or after `limit_s` seconds.

    It sees only the folder's package and the modules installed for this Python. It sees no compiled
    file of the folder, because the folder's statement does not cover such files.
    """
    script = Path(folder_child.__file__)
    command = [sys.executable, "-P", script, package, folder.resolve()]
    with asked_process(command, "the folder's code", limit_s=limit_s) as ask:
        yield ask


@contextmanager
def folder_domain(folder: Path, package: str) -> Generator[Domain]:
    """Start the process that plays a folder's domain, and end it afterwards.

    Raises DataError where the folder's code does not start.
    """
    with folder_process(folder, package) as ask:
        yield cast(Domain, begun(ask, FolderDomain))


def begun(ask: AskedProcess, make: Callable[[AskedProcess], Made]) -> Made:
    """Return what `make` makes of a folder's process.

    Raises DataError where the folder's code fails to start.
    """
    try:
        return make(ask)
    except (EnvironmentLost, ForeignFault, DomainError) as error:
        raise DataError(
            f"the folder's code does not run here: {one_line(error, SAID)}: install what its "
            "pyproject.toml names beside genenv, or ask who made it"
        ) from error
