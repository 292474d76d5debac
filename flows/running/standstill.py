"""Says where code of one's own domain holds up the whole run.

A regular expression at work lets no other thread of its process in. So no thread of a run can say
that `parse` or `score` takes ages on some text, and Python does not see Ctrl-C. `faulthandler`
writes from a thread without Python which lines are at work, and a process beside the run reads it.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import subprocess
import sys
import threading
from collections.abc import Generator
from pathlib import Path
from types import FunctionType
from typing import IO

from genenv_core.config.schema import RunConfig
from genenv_core.domains.protocol import Domain, JoinsDomains
from genenv_core.domains.registry import get_domain, is_built_in
from genenv_core.play.checking.calling import PATTERNS
from genenv_core.storage.store.opening import home_of

STILL_S = 30.0
"""Seconds without a beat before the first line; `genenv domain check` waits as long."""

BEAT_S = 5.0
END_S = 5.0
"""How long the reading process may take to end after its input."""

PROGRAM = Path(__file__).with_name("standstill_watch.py")


@contextlib.contextmanager
def standstills_said(config: RunConfig, domain: Domain | None = None) -> Generator[None]:
    """Print and log a line when the run's own domain keeps all other work waiting.

    `domain` is that domain; None: it is not open yet.
    """
    if is_built_in(config.domain.name, config.domain.options):
        yield
        return
    domain = domain or get_domain(config.domain.name, config.domain.options)
    log = home_of(config.root) / "runs" / str(config.run_id) / "run.log"
    arguments = [str(os.getpid()), str(log), f"{STILL_S:g}", PATTERNS, *sorted(sources(domain))]
    # By its path and without site packages, so that it starts in a moment; in a session of its own,
    # because Ctrl-C is for the run. It ends with its input.
    command = [sys.executable, "-I", "-S", str(PROGRAM), *arguments]
    watch = subprocess.Popen(command, stdin=subprocess.PIPE, bufsize=0, start_new_session=True)
    assert watch.stdin is not None
    over = threading.Event()
    beats = threading.Thread(target=_beat, args=(watch.stdin, over), name="beats", daemon=True)
    beats.start()
    try:
        yield
    finally:
        over.set()
        beats.join()
        faulthandler.cancel_dump_traceback_later()
        with contextlib.suppress(OSError):
            watch.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            watch.wait(END_S)
        watch.kill()
        watch.wait()


def sources(domain: Domain) -> set[str]:
    """Return the files of a domain's class and its base classes, without genenv's own.

    For several domains, returns the files of each.
    """
    if isinstance(domain, JoinsDomains):
        return {file for part in domain.parts for file in sources(part.domain)}
    return {
        function.__code__.co_filename
        for kind in type(domain).__mro__
        if not kind.__module__.startswith("genenv_core.")
        for function in vars(kind).values()
        if isinstance(function, FunctionType)
    }


def _beat(pipe: IO[bytes], over: threading.Event) -> None:
    """Put off the dump again and again, as long as threads of this process run."""
    with contextlib.suppress(OSError):  # the watch is gone
        while True:
            faulthandler.dump_traceback_later(STILL_S, repeat=True, file=pipe)
            pipe.write(b"beat\n")
            if over.wait(BEAT_S):
                return
