"""What a run says when code of its own domain lets nothing else work.

Invariants: the line names the innermost place in the domain's files, whatever other threads wait
for, after 30, 60, 120, ... seconds; a beat begins anew; a standstill elsewhere has no line; a
domain of genenv's has no watch; the process that reads ends with its input, and is given the files
of the domain's class, not of genenv's.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from flows.running import standstill
from flows.running.standstill import sources, standstills_said
from flows.running.standstill_watch import standstills
from genenv_core.config.load import resolve
from genenv_core.domains.desk.desk_domain import DeskDomain
from genenv_core.domains.registry import get_domain
from tests.mutations import mutation
from tests.waiting import BOUND_S

WATCH = "flows/running/standstill_watch.py"
OWN = "/home/me/bücher/cal.py"
DUMP = r"""Timeout (0:00:30)!
Thread 0x00007f7199d1c6c0 (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 327 in wait
  File "/work/genenv/tasks/rollout.py", line 20 in compute

Thread 0x00007f719b09db80 (most recent call first):
  File "/usr/lib/python3.11/re/__init__.py", line 166 in match
  File "/home/me/b\xfccher/cal.py", line 62 in _slots
  File "/home/me/b\xfccher/cal.py", line 40 in parse
  File "/work/genenv/genenv_core/play/asked.py", line 9 in asked
""".splitlines()
PLACE = "_slots (cal.py, line 62)"


@mutation(
    "a standstill in a folder with an umlaut has no line", WATCH,
    'escaped = {name.encode("ascii", "backslashreplace").decode(): name for name in files}',
    "escaped = {name: name for name in files}",
)  # fmt: skip
@mutation(
    "a standstill is said again every 30 s", WATCH, "looking = dumps & (dumps - 1) == 0",
    "looking = True",
)  # fmt: skip
@mutation("a beat does not end a standstill", WATCH, 'if line.startswith("beat"):', "if not line:")
def test_the_innermost_place_of_the_domain_is_said_less_and_less_often() -> None:
    found = list(standstills(["beat", *DUMP * 5, "beat", *DUMP], [OWN], 30.0))
    assert found == [(PLACE, 30.0), (PLACE, 60.0), (PLACE, 120.0), (PLACE, 30.0)]
    assert list(standstills(DUMP, ["/home/me/other.py"], 30.0)) == []


SLOW = """
import re
from genenv_core.domains.desk.desk_domain import DeskDomain

class Slow(DeskDomain):
    def match(self, text):
        return re.match(r"(a+)+$", text)
"""


def test_only_files_of_the_domain_itself_are_looked_for(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(SLOW)
    assert sources(get_domain(f"{path}:Slow", {})) == {str(path)}
    assert sources(DeskDomain()) == set()
    parts = [{"name": "arithmetic"}, {"name": f"{path}:Slow"}]
    assert sources(get_domain("several", {"parts": parts})) == {str(path)}


def test_a_domain_of_genenvs_has_no_watch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standstill.subprocess, "Popen", None)  # to call it would raise
    with standstills_said(resolve("tiny")):
        pass


RUN = """
import sys
from flows.running import standstill
from genenv_core.config.load import resolve
from genenv_core.domains.registry import get_domain

name, root = sys.argv[1:]
standstill.STILL_S, standstill.BEAT_S = 0.1, 0.01
fields = {"root": root, "run_id": "r"}
config = resolve("tiny", overrides=[f"domain.name={name}"], fields=fields)
with standstill.standstills_said(config):
    get_domain(name, {}).match("a" * 24 + "b")  # half a second
"""


@mutation(
    "nothing puts down which lines are at work", "flows/running/standstill.py",
    "faulthandler.dump_traceback_later(STILL_S, repeat=True, file=pipe)", "pass",
)  # fmt: skip
@pytest.mark.slow
def test_a_match_that_lets_nothing_else_work_is_named_while_it_does(tmp_path: Path) -> None:
    """In a process of its own: faulthandler has one timer a process, which may be pytest's."""
    (tmp_path / "mine.py").write_text(SLOW)
    (tmp_path / "runs" / "r").mkdir(parents=True)
    done = subprocess.run(
        [sys.executable, "-c", RUN, f"{tmp_path}/mine.py:Slow", str(tmp_path)],
        capture_output=True, text=True, timeout=BOUND_S, check=True,
    )  # fmt: skip
    first = done.stderr.splitlines()[0]
    assert first.startswith("genenv: match (mine.py, line 7) of the run's domain has been at work")
    assert "for 0.1 s and lets nothing else work" in first and "write one that says" in first
    assert first.removeprefix("genenv: ") in (tmp_path / "runs" / "r" / "run.log").read_text()
