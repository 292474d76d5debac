"""Whether two roots hold the same results: `python -m tests.same BEFORE AFTER [RUN ...]`.

Compares, run by run, the digest of every stage's output (its tables, checkpoints and facts, not its
key) and of every weight file. It proves that a change of code changes no behaviour: play one
configuration before and after it, in two roots. Exits with 1 on a difference.
"""

from __future__ import annotations

import sys

from genenv_core.storage.records.runs import list_runs
from genenv_core.storage.store.opening import open_store
from tests.storm.compare import manifests, weights

SHOWN = 20
"""Differences that are printed; the rest is counted."""


def main(before: str, after: str, *names: str) -> int:
    """Print what differs, one line each, and what was compared; return the exit status."""
    runs = names or sorted(list_runs(open_store(before, writable=False)))
    differences = compared = 0
    for run in runs:
        for read in (
            lambda root, run: {k: m.digest for k, m in manifests(root, run).items()},
            weights,
        ):
            old, new = read(before, run), read(after, run)
            compared += len(old)
            for where in sorted(old.keys() | new.keys()):
                if old.get(where) != new.get(where):
                    differences += 1
                    if differences <= SHOWN:
                        print(f"{run}: {where}: {old.get(where)} became {new.get(where)}")
    print(f"{compared} outputs and weight files of {len(runs)} runs: {differences} differ")
    return 1 if differences or not compared else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
