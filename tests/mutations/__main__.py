"""Whether the tests notice a broken rule: `python -m tests.mutations [NAME ...]`.

Puts one edit of a decorator `@mutation` at a time into a copy of the tracked files, never into the
working tree, runs the test that must fail, and prints which one did. Exits with 1 when an edit
survives, breaks the import, or fits its file no more, or when a test fails without any edit.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import count, groupby
from pathlib import Path

from tests.mutations import forks
from tests.mutations.collected import Mutation, collected, fault
from tests.proof.changes import REPOSITORY, present

JOBS = 2
TIMEOUT_S = 300
FAILED = 1
"""pytest's exit status when tests failed; an error at import has another."""

_mtimes = count(10**9)
"""Each write gets a second of its own, else Python would take bytecode of the text before."""


def main(names: list[str]) -> int:
    """Try the named mutations, or all; print a line for each and return the exit status."""
    chosen = [one for one in collected(REPOSITORY) if one.name in names or not names]
    unknown = set(names) - {one.name for one in chosen}
    if unknown or not chosen:
        print(f"unknown: {', '.join(sorted(unknown))}", file=sys.stderr)
        return 2
    began = time.perf_counter()
    folder = Path(tempfile.mkdtemp(prefix="genenv-mutations-"))
    try:
        forks.preload()
        copies = [_copy(folder / str(number)) for number in range(JOBS)]
        unfit = _unfit(chosen, copies)
        say = f"{len(unfit)} tests do not pass" if unfit else "the tests pass"
        print(f"{say} without a mutation, {time.perf_counter() - began:.0f} s", flush=True)
        killed = _tried(chosen, copies, unfit)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    seconds = time.perf_counter() - began
    print(f"{killed} of {len(chosen)} mutations are killed, {seconds:.0f} s")
    return int(killed < len(chosen))


def _copy(to: Path) -> Path:
    """Return a folder with the tracked and the new files of the working tree."""
    for name in present():
        (to / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(REPOSITORY / name, to / name)
    return to


@dataclass
class _Run:
    """Tests to be run in any copy, which is `prepared` before; their outcome goes to `then`."""

    tests: list[str]
    then: Callable[[Path, forks.Outcome], None]
    prepared: Callable[[Path], None] = lambda copy: None


def _play(runs: Iterable[_Run], copies: list[Path]) -> None:
    """Play all runs, one at a time in each copy."""
    waiting, free, under_way = iter(runs), list(copies), []
    try:
        while True:
            while free and (run := next(waiting, None)):
                copy = free.pop()
                run.prepared(copy)
                limit = TIMEOUT_S * len(run.tests)
                under_way.append((forks.fork(copy, run.tests, limit), copy, run))
            if not under_way:
                return
            for one in list(under_way):
                fork, copy, run = one
                if (outcome := fork.outcome()) is not None:
                    under_way.remove(one)
                    free.append(copy)
                    run.then(copy, outcome)
            time.sleep(0.01)
    finally:
        for fork, _, _ in under_way:
            fork.kill()


def _unfit(chosen: list[Mutation], copies: list[Path]) -> set[str]:
    """Return the tests that do not run and pass without a mutation, and print why.

    One that fails then would kill for no reason, and one that is skipped or deselected never.
    """
    unfit: set[str] = set()

    def then(tests: list[str], outcome: forks.Outcome) -> None:
        fine = {test for test in tests if _one_of(outcome.passed, test)}
        failed = {test for test in tests if _one_of(outcome.failed, test)}
        wrong = set(tests) - (fine - failed)
        if wrong or outcome.status != 0:
            unfit.update(wrong or tests)
            print(f"without a mutation:\n{outcome.printed}", flush=True)

    tests = sorted({one.test for one in chosen})
    files = [list(same) for _, same in groupby(tests, lambda test: test.partition("::")[0])]
    _play([_Run(file, lambda _, outcome, file=file: then(file, outcome)) for file in files], copies)
    return unfit


def _one_of(ids: list[str], test: str) -> bool:
    return any(one == test or one.startswith(f"{test}[") for one in ids)


def _tried(chosen: list[Mutation], copies: list[Path], unfit: set[str]) -> int:
    """Return how many mutations a test notices, and print which test, or what else came out."""
    killed = 0

    def run(mutation: Mutation, text: str) -> _Run:
        began = 0.0

        def prepared(copy: Path) -> None:
            nonlocal began
            began = time.perf_counter()
            _write(copy / mutation.file, text.replace(mutation.old, mutation.new))

        def then(copy: Path, outcome: forks.Outcome) -> None:
            nonlocal killed
            _write(copy / mutation.file, text)
            killed += outcome.late or outcome.status == FAILED
            _say(mutation, time.perf_counter() - began, _verdict(outcome))

        return _Run([mutation.test], then, prepared)

    runs: list[_Run] = []
    for mutation in chosen:
        if wrong := fault(mutation, copies[0]):
            _say(mutation, 0, wrong)
        elif mutation.test in unfit:
            _say(mutation, 0, f"does not pass without it: {mutation.test}")
        else:
            runs.append(run(mutation, (copies[0] / mutation.file).read_text(encoding="utf-8")))
    _play(runs, copies)
    return killed


def _verdict(outcome: forks.Outcome) -> str:
    if outcome.late:
        return "a test that did not end"
    if outcome.status == FAILED:
        return outcome.failed[0].partition("/")[2] if outcome.failed else "a test"
    if outcome.status == 0:
        return "SURVIVED"
    return f"pytest ended with {outcome.status}: {outcome.printed[-500:]}"


def _say(mutation: Mutation, seconds: float, verdict: str) -> None:
    print(f"{mutation.name:44} {seconds:5.1f} s  {verdict}", flush=True)


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
    mtime = next(_mtimes)
    os.utime(path, (mtime, mtime))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
