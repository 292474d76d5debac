"""A process that answers questions, so that foreign code runs outside of this one.

Questions and answers are lines of JSON. Other output of the process goes to a file, and errors
quote its last line.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import threading
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, cast

from genenv_core.domains.steps import EnvironmentLost
from genenv_core.errors import DomainError, one_line

SAID = 300
"""Most characters of a process's last output that an error quotes."""


class ProcessEnded(EnvironmentLost):
    """The process ended before it answered; `words` is the last line of its output."""

    def __init__(self, who: str, words: str) -> None:
        """Keep the last line."""
        self.words = words
        super().__init__(f"{who} ended its process: {words}")


class ProcessTooLong(ProcessEnded):
    """The process had no time left, so `AskedProcess.end` ended it."""


class ForeignFault(Exception):
    """An error that the process's code raised; its class has the name of the class there."""


class AskedProcess:
    """Asks the process, one question after the other; errors call its code `who`.

    Several threads may ask: each waits for its turn.
    """

    def __init__(self, child: subprocess.Popen[str], errors: IO[bytes], who: str) -> None:
        self._child, self._errors, self._who = child, errors, who
        self._over, self._asking = False, threading.Lock()

    def end(self) -> None:
        """End the process because its time is over."""
        self._over = True
        self._child.kill()

    def __call__(self, do: str, **given: Any) -> Any:
        """Return the answer to a question.

        Raises ProcessEnded for a process that ended, and ProcessTooLong where its time was over. An
        error of its code becomes EnvironmentLost if it has that name, DomainError if it is one of
        genenv's own, and ForeignFault otherwise.
        """
        if self._child.stdin is None or self._child.stdout is None:
            raise ProcessEnded(self._who, "it has no pipes")
        question = json.dumps({"do": do, **given}) + "\n"
        try:
            with self._asking:
                self._child.stdin.write(question)
                self._child.stdin.flush()
                line = self._child.stdout.readline()
        except OSError:
            line = ""
        if not line:
            kind = ProcessTooLong if self._over else ProcessEnded
            raise kind(self._who, self.last_words())
        answer = cast("dict[str, Any]", json.loads(line))
        if "is" in answer:
            return answer["is"]
        if answer["lost"]:
            raise EnvironmentLost(answer["said"])
        kind = DomainError if answer["own"] else ForeignFault
        raise type(answer["raised"], (kind,), {})(answer["said"])

    def last_words(self) -> str:
        """End the process, and return the last line of its output."""
        self._child.kill()
        self._child.wait()
        self._errors.seek(0)
        said = self._errors.read().decode(errors="replace").strip().splitlines()
        return one_line(said[-1], SAID) if said else "it said nothing"


@contextmanager
def asked_process(
    command: Sequence[str | Path], who: str, *, limit_s: float | None = None
) -> Generator[AskedProcess]:
    """Start a process, and end it afterwards, or after `limit_s` seconds.

    It begins in an empty folder, sees no module of this process's PYTHONPATH, and reads no compiled
    file that it did not write.
    """
    with tempfile.TemporaryDirectory() as empty, tempfile.TemporaryFile() as errors:
        child = subprocess.Popen(
            [str(word) for word in command],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors,
            text=True, encoding="utf-8", cwd=empty,
            env={**os.environ, "PYTHONPATH": "", "PYTHONPYCACHEPREFIX": empty},
        )  # fmt: skip
        ask = AskedProcess(child, errors, who)
        timer = threading.Timer(limit_s or 0, ask.end)
        if limit_s is not None:
            timer.start()
        try:
            yield ask
        finally:
            timer.cancel()
            child.kill()
            child.communicate()
