"""What a helper process prints when its parent is killed before it has said what to do.

Invariants: Python's own helper prints a traceback then, ours nothing; while the parent lives, an
error of a helper is still told.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

PARENT = """
import os, subprocess, sys, time
from multiprocessing import spawn
from genenv_core.training.processes.orphans import silence_orphans
if "silent" in sys.argv:
    silence_orphans()
read, write = os.pipe()
helper = subprocess.Popen(
    spawn.get_command_line(tracker_fd=read, pipe_handle=read), pass_fds=[read]
)
if "lives" in sys.argv:
    os.close(write)
    helper.wait()
os._exit(0)
"""


@pytest.mark.parametrize(
    ("words", "told"), [((), True), (("silent",), False), (("silent", "lives"), True)]
)
def test_a_helper_without_a_parent_is_silent(words: tuple[str, ...], told: bool) -> None:
    command = [sys.executable, "-c", PARENT, *words]
    # Returns once the helper has closed its standard error as well.
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert ("EOFError" in done.stderr) is told
    assert bool(done.stderr) is told
