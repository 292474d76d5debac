"""What a helper process prints when its parent is killed before it has said what to do.

Invariants: Python's own helper prints a traceback then, ours nothing; while the parent lives, an
error of a helper is still told; a resource tracker that took the place of a killed one prints no
traceback.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.mutations import mutation

ORPHANS = "genenv_core/training/processes/orphans.py"

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


TRACKED = """
import os, signal, sys
from multiprocessing import get_context, resource_tracker
from genenv_core.training.processes.orphans import silence_orphans
if "silent" in sys.argv:
    silence_orphans()
event = get_context("spawn").Event()
os.kill(resource_tracker._resource_tracker._pid, signal.SIGKILL)
os.waitpid(resource_tracker._resource_tracker._pid, 0)
del event
resource_tracker._resource_tracker._stop()
"""


@mutation(
    "a new resource tracker prints what it never heard of", ORPHANS,
    "_UNHEARD_OF + word if", "word if",
)  # fmt: skip
@pytest.mark.parametrize("words", [(), ("silent",)])
def test_a_new_resource_tracker_prints_no_traceback(words: tuple[str, ...]) -> None:
    command = [sys.executable, "-W", "default", "-c", TRACKED, *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert "process died unexpectedly, relaunching" in done.stderr
    assert ("KeyError" in done.stderr) is (not words)
