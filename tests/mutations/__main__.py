"""Whether the tests notice a broken rule: `python -m tests.mutations [NAME ...]`.

Puts one edit of `listed.MUTATIONS` at a time into a copy of the tracked files, never into the
working tree, runs the tests that must fail, and prints which one did. Exits with 1 when an edit
survives, breaks the import, or fits its file no more, or when the tests fail without any edit.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from queue import SimpleQueue

from tests.mutations.listed import MUTATIONS, Mutation, fault

REPOSITORY = Path(__file__).parents[2]
JOBS = 2
TIMEOUT_S = 300
FAILED = 1
"""pytest's exit status when tests failed; an error at import has another."""

_mtimes = count(10**9)
"""Each write gets a second of its own, else Python would take bytecode of the text before."""


def main(names: list[str]) -> int:
    """Try the named mutations, or all; print a line for each and return the exit status."""
    chosen = [one for one in MUTATIONS if one.name in names or not names]
    unknown = set(names) - {one.name for one in chosen}
    if unknown or not chosen:
        print(f"unknown: {', '.join(sorted(unknown))}", file=sys.stderr)
        return 2
    began = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="genenv-mutations-") as folder:
        copies: SimpleQueue[Path] = SimpleQueue()
        for number in range(JOBS):
            copies.put(_copy(Path(folder) / str(number)))
        healthy = copies.get()
        status, said = _pytest(healthy, sorted({test for one in chosen for test in one.tests}))
        copies.put(healthy)
        if status:
            print(f"the tests fail without a mutation:\n{said[-3000:]}")
            return 1

        def tried(mutation: Mutation) -> bool:
            copy = copies.get()
            try:
                return _try(mutation, copy)
            finally:
                copies.put(copy)

        with ThreadPoolExecutor(JOBS) as threads:
            killed = sum(threads.map(tried, chosen))
    seconds = time.perf_counter() - began
    print(f"{killed} of {len(chosen)} mutations are killed, {seconds:.0f} s")
    return int(killed < len(chosen))


def _copy(to: Path) -> Path:
    """Return a folder with the tracked and the new files of the working tree."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=REPOSITORY, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    for name in filter(None, listed.split("\0")):
        if (REPOSITORY / name).is_file():
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(REPOSITORY / name, to / name)
    return to


def _try(mutation: Mutation, copy: Path) -> bool:
    """Return whether a test notices the mutation, and print which."""
    began = time.perf_counter()
    wrong = fault(mutation, copy)
    if not wrong:
        path = copy / mutation.file
        text = path.read_text(encoding="utf-8")
        _write(path, text.replace(mutation.old, mutation.new))
        try:
            status, said = _pytest(copy, mutation.tests)
        finally:
            _write(path, text)
        if status == FAILED:
            failed = re.search(r"^FAILED [^:]*/(.+?)(?: - .*)?$", said, re.M)
            by = failed[1] if failed else "a test"
            print(f"{mutation.name:44} {time.perf_counter() - began:5.1f} s  {by}", flush=True)
            return True
        wrong = "SURVIVED" if status == 0 else f"pytest ended with {status}: {said[-500:]}"
    print(f"{mutation.name:44} {time.perf_counter() - began:5.1f} s  {wrong}", flush=True)
    return False


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
    mtime = next(_mtimes)
    os.utime(path, (mtime, mtime))


def _pytest(copy: Path, tests: tuple[str, ...] | list[str]) -> tuple[int, str]:
    """Return pytest's exit status and what it printed; one that takes too long has failed."""
    command = [sys.executable, "-m", "pytest", "-x", "-p", "no:cacheprovider", *tests]
    environment = os.environ | {"PYTHONPATH": str(copy), "COLUMNS": "500"}
    with subprocess.Popen(
        command, cwd=copy, env=environment, text=True, start_new_session=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    ) as process:  # fmt: skip
        try:
            said, _ = process.communicate(timeout=TIMEOUT_S)
            return process.returncode, said
        except subprocess.TimeoutExpired:
            return FAILED, "FAILED tests/a_test_that_did_not_end"
        finally:  # also what a failing test started and did not end
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
