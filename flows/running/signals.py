"""Ends a run early on Ctrl-C, SIGTERM and SIGHUP.

Ctrl-C ends it at once, training workers included. After SIGTERM, as Kubernetes sends it, and after
SIGHUP, which a closing terminal sends, the work goes on to a point where it can continue later: the
end of a shard, of an optimizer step, of a short stage.
"""

from __future__ import annotations

import contextvars
import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from types import FrameType
from typing import TypeVar

Result = TypeVar("Result")

SOFT_S = 15.0
"""After SIGTERM, how long training may take to reach the end of a step; Kubernetes gives 30 s."""

HARD_S = 8.0
"""After SIGTERM, how long the stages have to end once their workers have ended."""

POLL_S = 0.2
"""How often the main thread wakes. Polars handles SIGINT with SA_RESTART, so Ctrl-C does not
interrupt an endless wait: Python would see it only after the run."""


_came: signal.Signals | None = None
"""The SIGTERM or SIGHUP that has come; `heed_ends` begins anew."""

_terminal: list[int] = []
"""The standard streams that `heed_ends` found to be a terminal."""


class Terminated(BaseException):
    """SIGTERM or SIGHUP has come; the message names the stages that the next run continues."""

    def __init__(self, place: str = "", number: int = signal.SIGTERM) -> None:
        super().__init__(place)
        self.number = signal.Signals(number)


def heed_ends() -> None:
    """Turn the first SIGTERM or SIGHUP into `Terminated`, raised in the main thread.

    Python drops exceptions of a signal handler while it runs a finalizer; `supervise` raises them
    again. Later signals do nothing. Without this function the first process of a container would
    ignore SIGTERM. Under `nohup` SIGHUP stays ignored. After SIGHUP, writes to the closed terminal
    go nowhere: the first failed one would end the work before it can continue later.
    """
    global _came
    _came = None
    _terminal[:] = [number for number in (0, 1, 2) if _is_terminal(number)]
    signal.signal(signal.SIGTERM, _on_end)
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
        signal.signal(signal.SIGHUP, _on_end)


def heeds_ends() -> bool:
    """Return whether this process has called `heed_ends`, so that its stages end in time."""
    return signal.getsignal(signal.SIGTERM) is _on_end


def _on_end(number: int, frame: FrameType | None) -> None:
    global _came
    if _came is None:
        _came = signal.Signals(number)
        if number == signal.SIGHUP:
            for one in _terminal:
                discard(one)
        raise Terminated(number=number)


def _is_terminal(number: int) -> bool:
    try:
        return os.isatty(number)
    except OSError:
        return False


def discard(number: int) -> None:
    """Let a file descriptor write to nowhere, and read nothing."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    if nowhere != number:
        os.dup2(nowhere, number)
        os.close(nowhere)


def supervise(work: Callable[[], Result], soft: type[BaseException] = Terminated) -> Result:
    """Return what `work` returns; raises KeyboardInterrupt, Terminated or `soft` after ending it.

    `work` runs in a thread, so that a signal never interrupts Prefect's own bookkeeping. Prefect
    handles SIGTERM only in main threads, so this function handles it.
    """
    done: Future[Result] = Future()
    context = contextvars.copy_context()

    def carry_out() -> None:
        try:
            done.set_result(context.run(work))
        except BaseException as error:
            done.set_exception(error)

    threading.Thread(target=carry_out, name="run", daemon=True).start()
    try:
        while not wait([done], POLL_S).done:
            if _came is not None:
                raise Terminated(number=_came)
        return done.result()
    except KeyboardInterrupt:
        # Only a second Ctrl-C ends this process meanwhile.
        _end(done, soft_s=0, hard_s=SOFT_S + HARD_S)
        raise
    except (soft, Terminated):
        _end(done, soft_s=SOFT_S, hard_s=HARD_S)
        raise


def _end(done: Future[Result], soft_s: float, hard_s: float) -> None:
    """Ask all work to end, end the workers if it takes too long, and wait a little."""
    from tasks.policies import trainer as services
    from tasks.stage import progress

    progress.cancel()
    services.request_stop()
    wait([done], soft_s)
    services.close()
    wait([done], hard_s)
