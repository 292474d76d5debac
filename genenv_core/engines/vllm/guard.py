"""Stands between genenv and a server: the server's process group ends when genenv does.

Run as a file, with the standard library alone: `python guard.py COMMAND...`, as the leader of a
process group of its own, its standard input a pipe whose other end only the parent holds. However
the parent ends, the pipe closes, and the guard kills the whole group. It hands SIGTERM on to the
server, and once that has ended, kills what the server left behind.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import threading
from types import FrameType

PR_SET_PDEATHSIG = 1


def main(command: list[str]) -> None:
    """Run the command until it ends, or until the parent does."""

    def die_with_guard() -> None:
        # For the case that the guard itself is killed; Linux only, and elsewhere just not there.
        prctl = getattr(ctypes.CDLL(None), "prctl", None)
        if prctl is not None:
            prctl(PR_SET_PDEATHSIG, signal.SIGKILL)

    server = subprocess.Popen(command, stdin=subprocess.DEVNULL, preexec_fn=die_with_guard)

    def hand_on(number: int, frame: FrameType | None) -> None:
        server.terminate()

    signal.signal(signal.SIGTERM, hand_on)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=watch, daemon=True).start()
    status = server.wait()
    how = f"by signal {-status}" if status < 0 else f"with status {status}"
    print(f"genenv: the server ended {how}", flush=True)
    end_group()


def watch() -> None:
    """Wait for the end of the parent."""
    sys.stdin.buffer.read()
    print("genenv: the parent is gone, so the server ends", flush=True)
    end_group()


def end_group() -> None:
    """Kill every process of the group, this one too."""
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    main(sys.argv[1:])
