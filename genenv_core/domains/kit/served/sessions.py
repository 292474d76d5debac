"""The sessions that episodes share: a server has room for a few, and attempts are many.

An episode keeps its session from step to step while there is room. Without room, an episode that
waits for its agent loses its session to another one. It repeats its actions when its turn comes, so
only repeatable environments share sessions in this way.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

from genenv_core.domains.kit.served.client import (
    CAPACITY,
    PAUSE_S,
    Patience,
    RefusedByServer,
    ServerSession,
)
from genenv_core.domains.kit.served.keys import AccessRefused
from genenv_core.domains.steps import EnvironmentLost

Result = TypeVar("Result")

LOOK_S = 0.05

REST_S = 2.0
"""Seconds for which an unused session stays open: others may wait for room."""


@dataclass(eq=False, slots=True)
class Seat:
    """A session, and the episode in progress in it, if it is still wanted."""

    session: ServerSession
    owner: weakref.ref[object] | None = None
    busy: bool = False
    used: float = 0.0

    @property
    def free(self) -> bool:
        """Return whether no episode is in progress in it."""
        return not self.busy and (self.owner is None or self.owner() is None)


class Seats:
    """Sessions with one server, at most `most` at once.

    Args:
        connect: opens a session.
        most: most sessions at once; fewer where the server says that it is full.
        wait_s: longest wait in seconds for a session that others use, or for a lost server.
        patience: how long all callers together wait for a lost server.
    """

    def __init__(
        self,
        connect: Callable[[], ServerSession],
        most: int,
        wait_s: float,
        patience: Patience,
    ) -> None:
        self._connect, self._most, self._wait_s = connect, most, wait_s
        self._patience = patience
        self._seats: list[Seat] = []
        self._opening = 0
        self._tidying = False
        self._changed = threading.Condition()

    def asked(
        self,
        owner: object,
        ask: Callable[[ServerSession, bool], Result],
        *,
        shared: bool,
        final: Callable[[], bool] = lambda: False,
    ) -> Result:
        """Return what `ask` returns; it gets a session, and whether the owner's episode is in it.

        While the server is lost or full, call `ask` again, until the wait is over or `final`
        returns true. Raises EnvironmentLost then, and RefusedByServer for any other error of the
        server.
        """
        deadline = time.monotonic() + self._wait_s
        while True:
            try:
                with self._held(owner, shared) as (session, own):
                    found = ask(session, own)
                self._patience.answered()
                return found
            except AccessRefused:
                raise
            except EnvironmentLost:
                if self._patience.over() or time.monotonic() > deadline or final():
                    raise
            except RefusedByServer as error:
                if error.code != CAPACITY:
                    raise
                if time.monotonic() > deadline:
                    raise EnvironmentLost(f"the server is full: {error.message}") from error
                self._full()
            time.sleep(PAUSE_S)

    @contextmanager
    def _held(self, owner: object, shared: bool) -> Generator[tuple[ServerSession, bool]]:
        """Yield a session, and whether the owner's episode is in progress in it.

        It drops the session where the work inside loses the server. Raises EnvironmentLost where
        others keep all sessions for too long. `shared` allows it to take a session from another
        episode.
        """
        seat, own = self._take(owner, shared)
        kept = False
        try:
            yield seat.session, own
            kept = True
        except RefusedByServer as error:
            kept = error.code != CAPACITY
            raise
        finally:
            with self._changed:
                seat.busy, seat.used = False, time.monotonic()
                if not kept:
                    self._seats.remove(seat)
                    seat.session.close()
                self._changed.notify_all()

    def leave(self, owner: object) -> None:
        """Free the session of an episode that has ended."""
        with self._changed:
            for seat in self._seats:
                if seat.owner is not None and seat.owner() is owner:
                    seat.owner = None
            self._changed.notify_all()

    def _full(self) -> None:
        """Note that the server has no room for more sessions than are open now."""
        with self._changed:
            self._most = max(1, len(self._seats) + self._opening)

    def _tidy(self) -> None:
        """Close sessions that no episode has needed for `REST_S`, until none is left."""
        while True:
            time.sleep(REST_S)
            with self._changed:
                before = time.monotonic() - REST_S
                for seat in [one for one in self._seats if one.free and one.used < before]:
                    self._seats.remove(seat)
                    seat.session.close()
                if not self._seats and not self._opening:
                    self._tidying = False
                    return

    def _take(self, owner: object, shared: bool) -> tuple[Seat, bool]:
        deadline = time.monotonic() + self._wait_s
        with self._changed:
            while True:
                found = self._own(owner) or self._other(shared)
                if found is not None:
                    own = found.owner is not None and found.owner() is owner
                    found.busy, found.owner = True, weakref.ref(owner)
                    return found, own
                if len(self._seats) + self._opening < self._most:
                    break
                if time.monotonic() > deadline:
                    raise EnvironmentLost(
                        f"the server has room for {self._most} sessions, and all are in use: raise "
                        "domain.options.sessions and what the server takes (of OpenEnv "
                        "max_concurrent_envs), or lower execution.open_attempts"
                    )
                self._changed.wait(LOOK_S)
            self._opening += 1
            if not self._tidying:
                self._tidying = True
                threading.Thread(target=self._tidy, name="genenv-served-rest", daemon=True).start()
        opened: list[Seat] = []
        try:
            opened.append(Seat(self._connect(), weakref.ref(owner), busy=True))
        finally:
            with self._changed:
                self._opening -= 1
                self._seats += opened
        return opened[0], False

    def _own(self, owner: object) -> Seat | None:
        found = (one for one in self._seats if one.owner is not None and one.owner() is owner)
        return next(found, None)

    def _other(self, shared: bool) -> Seat | None:
        """Return a free session; with `shared` and no room, the longest unused one."""
        free = next((seat for seat in self._seats if seat.free), None)
        room = len(self._seats) + self._opening < self._most
        if free is not None or room or not shared:
            return free
        resting = [seat for seat in self._seats if not seat.busy]
        return min(resting, key=lambda seat: seat.used, default=None)
