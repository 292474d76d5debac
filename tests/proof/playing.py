"""Plays suites with pytest, and what failed in a served one once more."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

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
    keep one core busy. `failed` are the node ids that failed, `flaky` those of them that passed
    when they were played once more, and `skipped` those that were not played.
    """

    status: int
    seconds: float
    busy: float = 0.0
    by_test: Counter[str] = field(default_factory=Counter[str])
    failed: tuple[str, ...] = ()
    flaky: tuple[str, ...] = ()
    skipped: frozenset[str] = frozenset()

    @property
    def passed(self) -> bool:
        """Return whether every test passed, in the end."""
        again = self.status == FAILED and self.failed and self.failed == self.flaky
        return self.status == 0 or bool(again)

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


def play(paths: Sequence[str], *, workers: int = 0, root: Path = REPOSITORY) -> Played:
    """Play the slow tests of files below `root` in turn, in so many processes of pytest-xdist."""
    spread = ["-n", str(workers), "--dist", "loadfile", "--no-loadscope-reorder"] if workers else []
    return _pytest([*paths, "-m", "slow", *spread], root)


def play_beside(
    suites: Sequence[Suite], number: int, *, root: Path = REPOSITORY
) -> Iterator[tuple[Suite, Played]]:
    """Play suites, `number` at a time, each in one process; yields each as it ends.

    What one prints comes at its end.
    """

    def played(suite: Suite) -> tuple[Suite, Played]:
        files = suite.files(root)
        with tempfile.TemporaryFile("w+", encoding="utf-8") as output:
            found = _pytest([*files, "-m", "slow"], root, output=output)
            output.seek(0)
            print(f"== {suite.name}\n{output.read()}", end="", flush=True)
        return suite, found

    with ThreadPoolExecutor(number) as pool:
        for one in as_completed([pool.submit(played, suite) for suite in suites]):
            yield one.result()


def play_again(played: Played, *, root: Path = REPOSITORY) -> None:
    """Play the tests that failed once more, each alone, and note those that pass as flaky."""
    if played.status != FAILED or not 0 < len(played.failed) <= MOST_AGAIN:
        return
    print(f"== once more, alone: {', '.join(played.failed)}", flush=True)
    played.flaky = tuple(
        test for test in played.failed if _pytest([test, "-m", "slow"], root).status == 0
    )


def by_suite(suites: Sequence[Suite], played: Played) -> list[tuple[str, int, float]]:
    """Return name, tests and seconds of each suite, of what was played together."""
    rows: list[tuple[str, int, float]] = []
    tests, seconds = played.tests, played.by_file
    for suite in suites:
        files = [file for file in tests if suite_of(file) == suite.name]
        number = sum(tests[file] for file in files)
        rows.append((suite.name, number, sum(seconds[file] for file in files)))
    return rows


def proven(suites: Sequence[Suite], played: Played) -> list[str]:
    """Return the names of the suites that passed, of what was played together.

    None where pytest was kept from playing, and no suite of which every test was skipped.
    """
    if played.status not in (0, FAILED) or (played.status == FAILED and not played.failed):
        return []
    done = {suite_of(_file(test)) for test in played.by_test if test not in played.skipped}
    broken = {suite_of(_file(test)) for test in played.failed if test not in played.flaky}
    return [suite.name for suite in suites if suite.name in done - broken]


def install(suites: Sequence[Suite]) -> None:
    """Make what the suites need; raises CalledProcessError when that cannot be had."""
    needs = sorted({need for suite in suites for need in suite.needs})
    if needs:
        subprocess.run(["make", "--no-print-directory", *needs], cwd=REPOSITORY, check=True)


def _pytest(arguments: Sequence[str], root: Path, output: IO[str] | None = None) -> Played:
    """Play tests with pytest, which writes to `output`, or to what we write to."""
    began = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="genenv-proof-") as folder:
        notes = Path(folder) / "notes"
        notes.touch()
        given = {name: str(path) for name, path in ENVIRONMENTS.items() if path.exists()}
        command = [sys.executable, "-m", "pytest", "-p", "tests.proof.noting", *arguments]
        command += ["--rootdir", str(root)]  # else a file above it may be found, as /tmp/setup.py
        environment = given | os.environ | {NOTES: str(notes)}
        environment["PYTHONPATH"] = str(REPOSITORY)
        process = subprocess.Popen(
            command, cwd=root, env=environment, stdout=output, stderr=output and subprocess.STDOUT
        )
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        lines = [json.loads(line) for line in notes.read_text(encoding="utf-8").splitlines()]
    busy = used.ru_utime + used.ru_stime  # of its processes too, where they were waited for
    played = Played(process.returncode, time.perf_counter() - began, busy)
    for test, _, seconds in lines:
        played.by_test[test] += seconds
    played.failed = tuple(dict.fromkeys(test for test, said, _ in lines if said == "failed"))
    played.skipped = frozenset(test for test, said, _ in lines if said == "skipped")
    return played


def _file(test: str) -> str:
    return test.partition("::")[0]
