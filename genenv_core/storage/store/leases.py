"""Leases with a heartbeat: they say who computes a stage, so that nobody else does it meanwhile.

They only save work. Commits are idempotent, so a lost or wrongly taken lease costs a second
computation and nothing else.

A holder counts up its lease's beats. A waiter takes a lease over when the count has not changed for
`ttl_s` seconds of the waiter's own monotonic clock. So no machine compares its clock with another
one's, and clocks may jump. If the holder ran on this machine and its process has ended, a waiter
takes the lease over at once.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Generator
from typing import TypeVar

from genenv_core.errors import IntegrityError, NotFound, StorageError
from genenv_core.storage import paths
from genenv_core.storage.seal import SealedRecord
from genenv_core.storage.store.process import has_ended, identity
from genenv_core.storage.store.protocol import Store

log = logging.getLogger("genenv.storage")

TTL_S = 60.0
"""How long a silent holder on another machine counts as alive."""

BEATS_PER_TTL = 5
POLL_S = 0.2

T = TypeVar("T")


class Lease(SealedRecord):
    """Names who computes a stage; `token` tells two leases of one process apart, `beats` counts up.

    `doing` says how far the stage was at the last beat, or is ''.
    """

    host: str
    pid: int
    process: str
    token: str
    beats: int = 0
    doing: str = ""


class Leases:
    """The leases of one process in one store; its threads may share it, and want the same lease."""

    def __init__(self, store: Store, ttl_s: float = TTL_S) -> None:
        """Hold leases in this store; every process that uses it needs the same `ttl_s`."""
        self._store = store
        self._ttl_s = ttl_s
        self._held: dict[str, tuple[str, Lease]] = {}
        self._doing: dict[str, str] = {}
        self._lock = threading.Lock()
        self._heart: threading.Thread | None = None

    @contextlib.contextmanager
    def hold(
        self,
        stage: str,
        key: str,
        finished: Callable[[], T | None],
        *,
        waiting: Callable[[str], None] = lambda holder: None,
        check: Callable[[], None] = lambda: None,
    ) -> Generator[T | None]:
        """Wait for the lease of a stage, and hold it inside the block; yields `finished()`.

        Args:
            stage: Name of the stage.
            key: Its key.
            finished: Returns the stage's output when somebody finished it, else None.
            waiting: Gets the name of each other holder, once, while this process waits.
            check: Runs at every look of the wait; an error that it raises ends the wait.
        """
        path = paths.lease(stage, key)
        token = self._take(path, paths.manifest(stage, key), waiting, check)
        try:
            yield finished()
        finally:
            self._release(path, token)

    def tell(self, stage: str, key: str, doing: str) -> None:
        """Note how far a stage of this process is; the next beat writes it into the lease."""
        self._doing[paths.lease(stage, key)] = doing

    def _take(
        self, path: str, result: str, waiting: Callable[[str], None], check: Callable[[], None]
    ) -> str:
        """Return the token of the lease, or '' when `result` appears or changes meanwhile."""
        own = os.getpid()
        mine = Lease(
            host=socket.gethostname(), pid=own, process=identity(own), token=uuid.uuid4().hex
        )
        before = self._store.size(result)
        seen, since = b"", time.monotonic()
        named = ""
        while True:
            current = self._read(path)
            if current is not None and current != seen:
                seen, since = current, time.monotonic()
            silent = time.monotonic() - since > self._ttl_s
            if current is None or self._is_over(path, current, silent):
                if self._store.swap(path, current, mine.to_bytes()):
                    self._keep(path, mine)
                    return mine.token
                continue
            if self._store.size(result) != before:
                return ""
            holder = _holder(current)
            if holder != named:
                waiting(holder)
                named = holder
            check()
            time.sleep(POLL_S)

    def _is_over(self, path: str, current: bytes, silent: bool) -> bool:
        """Return whether the holder of a lease is dead or `silent`, or the lease is damaged."""
        try:
            lease = Lease.from_bytes(current)
        except IntegrityError as error:
            log.warning("lease=%s is damaged and taken over: %s", path, error)
            return True
        if has_ended(lease.pid, lease.process):
            log.info("lease=%s taken over: %s has ended", path, _holder(current))
            return True
        if silent:
            log.warning(
                "lease=%s taken over: no heartbeat of %s for %.0f s",
                path, _holder(current), self._ttl_s,
            )  # fmt: skip
        return silent

    def _read(self, path: str) -> bytes | None:
        try:
            return self._store.read(path)
        except NotFound:
            return None

    def _keep(self, path: str, lease: Lease) -> None:
        with self._lock:
            self._held[lease.token] = (path, lease)
            if self._heart is None:
                self._heart = threading.Thread(target=self._beat, name="leases", daemon=True)
                self._heart.start()

    def _beat(self) -> None:
        """Count up every held lease, until this process holds no lease."""
        while True:
            time.sleep(self._ttl_s / BEATS_PER_TTL)
            with self._lock:
                if not self._held:
                    self._heart = None
                    return
                for path, lease in list(self._held.values()):
                    self._renew(path, lease)

    def _renew(self, path: str, lease: Lease) -> None:
        doing = self._doing.get(path, "")
        again = lease.model_copy(update={"beats": lease.beats + 1, "doing": doing})
        try:
            if self._store.swap(path, lease.to_bytes(), again.to_bytes()):
                self._held[lease.token] = (path, again)
                return
        except StorageError as error:  # it may work the next time
            log.warning("lease=%s has missed a beat: %s", path, error)
            return
        log.warning("lease=%s was taken over; this stage may be computed twice", path)
        del self._held[lease.token]

    def _release(self, path: str, token: str) -> None:
        """Remove a lease unless somebody took it over."""
        with self._lock:
            _, lease = self._held.pop(token, ("", None))
            self._doing.pop(path, None)
            if lease is None:
                return
            try:
                if self._read(path) == lease.to_bytes():
                    self._store.delete(path)
            except StorageError as error:  # how the stage itself ended matters more
                log.warning("lease=%s stays behind: %s", path, error)


def _holder(data: bytes) -> str:
    lease = Lease.from_bytes(data)
    return f"{lease.host} pid {lease.pid}"


def doing(store: Store, stage: str, key: str) -> str:
    """Return how far a stage is, as its lease says; '' without a readable lease."""
    try:
        return Lease.from_bytes(store.read(paths.lease(stage, key))).doing
    except (NotFound, IntegrityError):
        return ""
