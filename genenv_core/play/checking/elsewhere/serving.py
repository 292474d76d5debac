"""Answers questions in a process that plays foreign code; imports no other module of genenv."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any, Protocol


class AnswersRequests(Protocol):
    """Passes requests to foreign code."""

    def answer(self, request: Mapping[str, Any]) -> Any:
        """Return the answer to a request as JSON values; raises whatever the code raises."""
        ...


def serve(begin: Callable[[], AnswersRequests]) -> None:
    """Answer a request a line until there are no more.

    Prints of the code go to standard error, so they are no answers.
    """
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    host = begin()
    for line in sys.stdin:
        try:
            answer: dict[str, Any] = {"is": host.answer(json.loads(line))}
        except (Exception, SystemExit) as error:
            answer = _raised(error)
        out.write(json.dumps(answer, default=repr) + "\n")
        out.flush()


def _raised(error: BaseException) -> dict[str, Any]:
    names = [kind.__name__ for kind in type(error).__mro__]
    return {
        "raised": names[0],
        "said": str(error),
        "lost": "EnvironmentLost" in names,
        "own": "GenenvError" in names,
    }
