"""`python -m tests.proof`: play the slow suites that the change asks for, or those named.

Ends with the slowest tests and a table of what was played. Exits with 1 when a test failed in the
end, with 2 for wrong words. What failed in a served suite and passed when played once more, alone,
is named in the last lines as `flaky: NAME` and in `.ci/out/flaky`. A suite that passed is noted in
`.ci/out/proven` with the commit as soon as it ends, whatever becomes of the others; `--note` copies
that into tests/proof/PROVEN.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections import Counter

from tests.proof.changes import PASSED, PROVEN, REPOSITORY, asking, clean, head, note, renew
from tests.proof.playing import (
    Played,
    by_suite,
    install,
    play,
    play_again,
    play_beside,
    proven,
)
from tests.proof.table import ALL, SUITES, Suite, in_turn

OUT = REPOSITORY / ".ci" / "out"
WORKERS = 2
BESIDE = 5
"""So many served suites play at a time: each keeps about a third of a core busy."""
SLOWEST = 20
"""So many tests are named with their seconds."""


def main() -> int:
    """Play what is asked for and return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.proof", description=__doc__)
    parser.add_argument("suites", nargs="*", metavar="SUITE", help=f"one of: {', '.join(ALL)}")
    parser.add_argument("--all", action="store_true", help="all suites")
    parser.add_argument("--list", action="store_true", help="say what would be played, and why")
    parser.add_argument("--green", action="store_true", help="note the tree that passed, and end")
    parser.add_argument("--note", action="store_true", help=f"renew {PROVEN}, and end")
    options = parser.parse_args()
    if unknown := set(options.suites) - set(ALL):
        parser.error(f"no suite is called {', '.join(sorted(unknown))}; there are {', '.join(ALL)}")
    if options.green:
        return _note_green()
    if options.note:
        print(f"{PROVEN} has a new commit for: {', '.join(renew()) or 'no suite'}")
        return 0
    OUT.mkdir(parents=True, exist_ok=True)
    (OUT / "flaky").unlink(missing_ok=True)
    names = _chosen(options.suites, everything=options.all)
    return 0 if options.list or not names else _play(names)


def _chosen(given: list[str], *, everything: bool) -> list[str]:
    """Return the names of the suites to play, and print who asks for each."""
    if given or everything:
        return [name for name in ALL if everything or name in given]
    names: list[str] = []
    print(f"== changes are counted from the commit of each suite in {PROVEN}")
    for name, (commit, who) in asking().items():
        more = f" and {len(who) - 1} more" if len(who) > 1 else ""
        said = f"asked for by {who[0]}{more}" if who else "not asked for"
        print(f"   {name:12} {commit[:8] or 'none':8} {said}")
        names += [name] if who else []
    return names


def _play(names: list[str]) -> int:
    """Play the suites, print the table, and return the exit status."""
    suites = [suite for suite in SUITES if suite.name in names]
    commit = head() if clean() else ""
    install(suites)
    rows: list[tuple[str, int, float, str]] = []
    every: list[Played] = []
    together = [suite for suite in suites if not suite.served]
    if together:
        print(f"== {', '.join(suite.name for suite in together)}", flush=True)
        every.append(play(_files(together), workers=WORKERS))
        rows += [(*row, "") for row in by_suite(together, every[-1])]
        rows.append(_row(f"these, {WORKERS} at a time", every[-1]))
        _note_passed(commit, together, every[-1])
    beside = [suite for suite in suites if suite.served]
    if beside:
        print(f"== {BESIDE} at a time: {', '.join(suite.name for suite in beside)}", flush=True)
        began, served = time.perf_counter(), list(play_beside(beside, BESIDE))
        seconds = time.perf_counter() - began
        rows += [_row(suite.name, played) for suite, played in served]
        tests = sum(row[1] for row in rows[-len(served) :])
        cores = sum(played.busy for _, played in served) / seconds
        rows.append((f"these, {BESIDE} at a time", tests, seconds, f"{cores:.2f}"))
        for suite, played in served:
            play_again(played)
            every.append(played)
            _note_passed(commit, [suite], played)
    slowest = sum((played.by_test for played in every), Counter[str]()).most_common(SLOWEST)
    print("\n" + "\n".join(f"{seconds:8.1f} s  {test}" for test, seconds in slowest))
    print(f"\n{'suite':24} {'tests':>6} {'seconds':>8} {'cores':>6}")
    for name, tests, seconds, cores in rows:
        print(f"{name:24} {tests:6} {seconds:8.0f} {cores:>6}")
    flaky = [test for played in every for test in played.flaky]
    for test in flaky:
        print(f"flaky: {test}")
    if flaky:
        (OUT / "flaky").write_text("".join(f"{test}\n" for test in flaky), encoding="utf-8")
    return int(not all(played.passed for played in every))


def _row(name: str, played: Played) -> tuple[str, int, float, str]:
    """Return name, tests, seconds, and how many cores were busy on average."""
    cores = f"{played.busy / played.seconds:.2f}"
    return name, sum(played.tests.values()), played.seconds, cores


def _files(suites: list[Suite]) -> list[str]:
    return in_turn(file for suite in suites for file in suite.files(REPOSITORY))


def _note_passed(commit: str, suites: list[Suite], played: Played) -> None:
    """Note which of the suites passed, where the working tree is still that of the commit."""
    if commit and clean() and head() == commit:
        none = dict.fromkeys((suite.name for suite in suites), "")
        note(REPOSITORY / PASSED, none | dict.fromkeys(proven(suites, played), commit))


def _note_green() -> int:
    """Write the tree that `.ci/run` passed on into `.ci/out/green`, where it is a commit's."""
    OUT.mkdir(parents=True, exist_ok=True)
    if not clean():
        print("no tree is noted as green: the working tree is not that of a commit")
        return 0
    tree = head(what="HEAD^{tree}")
    (OUT / "green").write_text(f"{tree}\n", encoding="utf-8")
    print(f"green: {tree}")
    for line in (OUT / "flaky").read_text().splitlines() if (OUT / "flaky").exists() else []:
        print(f"flaky: {line}")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except subprocess.CalledProcessError as error:
        print(f"cannot be installed: {' '.join(error.cmd)} ended with {error.returncode}")
        sys.exit(1)
