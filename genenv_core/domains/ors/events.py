"""Reads a stream of events from a server of ORS: a result in pieces, or an error."""

from __future__ import annotations

import re
from collections.abc import Iterator

from genenv_core.domains.kit.served.client import SHOWN, RefusedByServer
from genenv_core.domains.steps import EnvironmentLost, storable
from genenv_core.errors import one_line

FAILED = "EXECUTION_ERROR"
"""The code of an error that the environment raised."""

_LINE = re.compile(r"\r\n|\r|\n")


def events(text: str) -> Iterator[tuple[str, str]]:
    """Yield name and data of each complete event in a stream."""
    name, data = "", list[str]()
    for line in _LINE.split(text):
        if not line:
            if name or data:
                yield name, "\n".join(data)
            name, data = "", []
            continue
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if field == "event":
            name = value
        elif field == "data":
            data.append(value)


def result_of(text: str, where: str) -> str:
    """Return the result of a stream, joined from its pieces.

    Raises RefusedByServer for a stream with an error, and EnvironmentLost for one without an end.
    """
    pieces: list[str] = []
    for name, data in events(text):
        if name == "error":
            raise RefusedByServer(FAILED, one_line(storable(data), SHOWN))
        if name in ("chunk", "end"):
            pieces.append(data)
        if name == "end":
            return "".join(pieces)
    raise EnvironmentLost(f"{where} stopped in the middle of its answer")


def session_of(text: str, where: str) -> str:
    """Return the id of a new session; raises EnvironmentLost where the stream names none."""
    for name, data in events(text):
        if name == "task_id" and data.strip():
            return data.strip()
    raise EnvironmentLost(f"{where} names no session: {one_line(text, SHOWN)}")
