"""Helper processes that say nothing once their parent is gone.

A helper that multiprocessing spawns reads from its parent what it is to do. When the parent is
killed meanwhile, Python prints a traceback of that into the terminal, at the prompt of whatever
comes next. The one place before all of that reading is the helper's command line.
"""

from __future__ import annotations

import os
import threading
from multiprocessing import spawn
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

_lock = threading.Lock()
_plain = spawn.get_command_line


def silence_orphans() -> None:
    """Let the helpers that this process spawns from now on print nothing after its end."""
    with _lock:
        spawn.get_command_line = _command_line


def _command_line(**named: Any) -> list[str]:
    """Return the command of a helper, which looks for its parent before it prints."""
    words = list(_plain(**named))
    if "-c" in words:
        place = words.index("-c") + 1
        words[place] = _SILENCE.format(parent=os.getpid(), moment=_MOMENT_S) + words[place]
    return words
