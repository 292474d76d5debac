"""Keeps helper processes silent once their parent is gone.

A helper that multiprocessing spawns reads its work from its parent. When somebody kills the parent
meanwhile, Python prints a traceback of that into the terminal, at the prompt of whatever comes
next. Only the helper's command line runs before all of that reading.

multiprocessing's resource tracker is a helper too. When somebody kills it, Python starts a new one
with one line of warning, and the new one prints a traceback for each semaphore that it never heard
of.
"""

from __future__ import annotations

import os
import threading
from multiprocessing import spawn, util
from typing import Any

# The parent's files close a moment before its children see that it has ended.
_MOMENT_S = 0.2

_SILENCE = """\
import os, sys, time
def silence(write, seen=[]):
    def heard(text):
        if not seen and os.getppid() == {parent}:
            seen.append(time.sleep({moment}))
        return write(text) if os.getppid() == {parent} else len(text)
    return heard
if sys.stderr is not None:
    sys.stderr.write = silence(sys.stderr.write)
"""

_TRACKER = "from multiprocessing.resource_tracker import main"
_UNHEARD_OF = """\
import sys
sys.excepthook = lambda kind, *rest: kind is KeyError or sys.__excepthook__(kind, *rest)
"""

_lock = threading.Lock()
_plain = spawn.get_command_line
_spawn = util.spawnv_passfds


def silence_orphans() -> None:
    """Keep the helpers that this process spawns from now on from printing after its end."""
    with _lock:
        spawn.get_command_line = _command_line
        util.spawnv_passfds = _spawn_tracker


def _command_line(**named: Any) -> list[str]:
    """Return the command of a helper, which looks for its parent before it prints."""
    words = list(_plain(**named))
    if "-c" in words:
        place = words.index("-c") + 1
        words[place] = _SILENCE.format(parent=os.getpid(), moment=_MOMENT_S) + words[place]
    return words


def _spawn_tracker(path: Any, args: Any, passfds: Any) -> int:
    """Start a helper; a resource tracker does not report what it never heard of."""
    words = [_UNHEARD_OF + word if str(word).startswith(_TRACKER) else word for word in args]
    return _spawn(path, words, passfds)
