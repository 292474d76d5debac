"""Plays suites with pytest: those without servers side by side, a served one by itself."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.proof.changes import REPOSITORY
from tests.proof.noting import NOTES
from tests.proof.table import Suite, suite_of

FAILED = 1
"""pytest's exit status when tests failed; it has others for what kept it from playing them."""

MOST_AGAIN = 5
"""More failures than these in a served suite are no accident, and none is played again."""

ENVIRONMENTS = {
    "GENENV_ALFWORLD_PYTHON": REPOSITORY / ".venv-alfworld" / "bin" / "python",
    "GENENV_INSPECT_PYTHON": REPOSITORY / ".venv-inspect" / "bin" / "python",
}
"""Interpreters of their own that some suites use, and the variables that name them."""


@dataclass(slots=True)
class Played:
    """What came of tests: whether all passed in the end, and how long each took, in seconds.

    `busy` are the seconds of processors that they and their processes took: as many as `seconds`
    keep one core busy. `flaky` are the node ids that failed and passed when they were played once
    more.
    """

    passed: bool
    seconds: float
    busy: float = 0.0
    by_test: Counter[str] = field(default_factory=Counter[str])
    flaky: tuple[str, ...] = ()

    @property
    def by_file(self) -> Counter[str]:
        """Return how long the tests of each file took, in seconds."""
        found = Counter[str]()
        for test, seconds in self.by_test.items():
            found[_file(test)] += seconds
        return found

    @property
    def tests(self) -> Counter[str]:
        """Return how many tests of each file were played."""
        return Counter(map(_file, self.by_test))


def play(
    paths: Sequence[str], *, again: bool = False, workers: int = 0, root: Path = REPOSITORY
) -> Played:
    """Play the slow tests of files below `root`; with `again`, what failed once more, alone."""
    tests = [*paths, "-m", "slow"]
    tests += ["-n", str(workers), "--dist", "loadfile"] if workers else []
    status, played, failed = _pytest(tests, root)
    if status != FAILED or not again or not 0 < len(failed) <= MOST_AGAIN:
        return played
    print(f"== once more, alone: {', '.join(failed)}", flush=True)
    once_more = [_pytest([test, "-m", "slow"], root)[0] for test in failed]
    played.passed = not any(once_more)
    played.flaky = tuple(
        test for test, status in zip(failed, once_more, strict=True) if status == 0
    )
    return played


def by_suite(suites: Sequence[Suite], played: Played) -> list[tuple[str, int, float]]:
    """Return name, tests and seconds of each suite, of what was played together."""
    rows: list[tuple[str, int, float]] = []
    tests, seconds = played.tests, played.by_file
    for suite in suites:
        files = [file for file in tests if suite_of(file) == suite.name]
        number = sum(tests[file] for file in files)
        rows.append((suite.name, number, sum(seconds[file] for file in files)))
    return rows


def install(suites: Sequence[Suite]) -> None:
    """Make what the suites need; raises CalledProcessError when that cannot be had."""
    needs = sorted({need for suite in suites for need in suite.needs})
    if needs:
        subprocess.run(["make", "--no-print-directory", *needs], cwd=REPOSITORY, check=True)


def _pytest(arguments: Sequence[str], root: Path) -> tuple[int, Played, list[str]]:
    """Return pytest's exit status, what it played, and the node ids that failed."""
    began, busy = time.perf_counter(), _busy()
    with tempfile.TemporaryDirectory(prefix="genenv-proof-") as folder:
        notes = Path(folder) / "notes"
        notes.touch()
        given = {name: str(path) for name, path in ENVIRONMENTS.items() if path.exists()}
        command = [sys.executable, "-m", "pytest", "-p", "tests.proof.noting", *arguments]
        command += ["--rootdir", str(root)]  # else a file above it may be found, as /tmp/setup.py
        environment = given | os.environ | {NOTES: str(notes)}
        environment["PYTHONPATH"] = str(REPOSITORY)
        status = subprocess.run(command, cwd=root, env=environment).returncode
        lines = [json.loads(line) for line in notes.read_text(encoding="utf-8").splitlines()]
    played = Played(status == 0, time.perf_counter() - began, _busy() - busy)
    for test, _, seconds in lines:
        played.by_test[test] += seconds
    return status, played, list(dict.fromkeys(test for test, said, _ in lines if said == "failed"))


def _busy() -> float:
    """Return the processor time of all processes that were started here and have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _file(test: str) -> str:
    return test.partition("::")[0]
