"""Ends sessions that need a call to end: otherwise the server keeps them for a long time."""

from __future__ import annotations

import atexit
from concurrent.futures import Future
from concurrent.futures import wait as wait_for
from functools import cache
from typing import Protocol
from weakref import WeakSet

from genenv_core.domains.kit.served.client import END_S


class EndedByCall(Protocol):
    """A session that the client ends by a call."""

    ending: Future[None] | None
    """The unfinished call that ends the previous session, if any."""

    def close(self) -> None:
        """End the session, without waiting for it."""
        ...


def ends_with_process(session: EndedByCall) -> None:
    """Let a session end when the process does, if it is still open then.

    Call it once there is a connection, so that the session ends before the connection does.
    """
    _sessions.add(session)
    _end_at_exit()


_sessions: WeakSet[EndedByCall] = WeakSet()


@cache
def _end_at_exit() -> None:
    atexit.register(_end_all)


def _end_all() -> None:
    for session in list(_sessions):
        session.close()
    wait_for([one.ending for one in list(_sessions) if one.ending is not None], END_S)
