"""The domain of an exported folder, which another process plays.

What certifies the tasks stays here: the folder's code can answer what it is asked, and nothing
else. Only JSON goes between the two.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import IO, Any, cast

from genenv_core.domains.protocol import Domain, Episode, SolutionTurn
from genenv_core.domains.steps import EnvironmentLost
from genenv_core.errors import DataError, DomainError, one_line
from genenv_core.play.checking import folder_child
from genenv_core.types import Cause, JsonObject, Message, Observation, TaskDraft, Verdict

SAID = 300
"""Characters of what a process said before it ended."""


class FolderFault(Exception):
    """Whatever the folder's code raised; each has the name of its class there."""


class FolderDomain:
    """A domain whose methods another process carries out.

    It has those methods that attempts and verdicts need, and of the optional ones those that the
    folder's domain has. It draws no tasks: the folder holds them.
    """

    def __init__(self, ask: FolderProcess) -> None:
        """Ask the process what the domain is."""
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
        """Return the verdict on a transcript; its fields are whatever the folder's code gave."""
        return Verdict(*self._ask("score", draft=asdict(draft), messages=list(messages)))

    def episode(self, draft: TaskDraft, seed: int) -> Episode:
        """Begin an attempt."""
        return FolderEpisode(self._ask, self._ask("episode", draft=asdict(draft), seed=seed))

    @contextmanager
    def clock_ahead(self) -> Generator[None]:
        """Let the clock of the other process be ahead for a while."""
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
    """An attempt that goes on in the other process."""

    def __init__(self, ask: FolderProcess, number: int) -> None:
        """Remember which one it is."""
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
        )


class FolderProcess:
    """Asks the process, one question after the other."""

    def __init__(self, child: subprocess.Popen[str], errors: IO[bytes]) -> None:
        self._child, self._errors = child, errors

    def __call__(self, do: str, **given: Any) -> Any:
        """Return the answer.

        Raises what the folder's code raised: EnvironmentLost for one of that name and for a process
        that ended, DomainError for one of genenv's own errors, and else a FolderFault.
        """
        if self._child.stdin is None or self._child.stdout is None:
            raise EnvironmentLost("the process of the folder's code has no pipes")
        try:
            self._child.stdin.write(json.dumps({"do": do, **given}) + "\n")
            self._child.stdin.flush()
            line = self._child.stdout.readline()
        except OSError:
            line = ""
        if not line:
            raise EnvironmentLost(f"the folder's code ended its process: {self.last_words()}")
        answer = cast("dict[str, Any]", json.loads(line))
        if "is" in answer:
            return answer["is"]
        if answer["lost"]:
            raise EnvironmentLost(answer["said"])
        kind = DomainError if answer["own"] else FolderFault
        raise type(answer["raised"], (kind,), {})(answer["said"])

    def last_words(self) -> str:
        """Return the last line that the process said."""
        self._child.kill()
        self._child.wait()
        self._errors.seek(0)
        said = self._errors.read().decode(errors="replace").strip().splitlines()
        return one_line(said[-1], SAID) if said else "it said nothing"


@contextmanager
def folder_domain(folder: Path, package: str) -> Generator[Domain]:
    """Start the process that plays a folder's domain, and end it afterwards.

    It sees no module beside the folder's package and what is installed for this Python, and no
    compiled file of the folder, of which the statement says nothing. Raises DataError where the
    folder's code does not begin.
    """
    with tempfile.TemporaryDirectory() as empty, tempfile.TemporaryFile() as errors:
        script = Path(folder_child.__file__)
        child = subprocess.Popen(
            [sys.executable, "-P", str(script), package, str(folder.resolve())],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors,
            text=True, encoding="utf-8", cwd=empty,
            env={**os.environ, "PYTHONPATH": "", "PYTHONPYCACHEPREFIX": empty},
        )  # fmt: skip
        try:
            yield cast(Domain, _begun(FolderProcess(child, errors)))
        finally:
            child.kill()
            child.communicate()


def _begun(ask: FolderProcess) -> FolderDomain:
    try:
        return FolderDomain(ask)
    except (EnvironmentLost, FolderFault, DomainError) as error:
        raise DataError(
            f"the folder's code does not run here: {one_line(error, SAID)}: install what its "
            "pyproject.toml names beside genenv, or ask who made it"
        ) from error
