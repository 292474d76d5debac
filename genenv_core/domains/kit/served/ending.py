"""Sessions whose end a client has to say: a server keeps the others for a long time."""

from __future__ import annotations

import atexit
from concurrent.futures import Future
from concurrent.futures import wait as wait_for
from functools import cache
from typing import Protocol
from weakref import WeakSet

from genenv_core.domains.kit.served.client import END_S


class EndedByCall(Protocol):
    """A session that ends by a call."""

    ending: Future[None] | None
    """The call that ends the session before, until it is answered."""

    def close(self) -> None:
        """End the session, without waiting for it."""
        ...


def ends_with_process(session: EndedByCall) -> None:
    """End a session that is left with the process.

    Called once there is a connection, so that the session ends before it does.
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
