"""What a root in a bucket costs beside one in a directory, against moto's server on this machine.

Warm queries, in this process and by the command, in turn over both roots; and `verify` and `gc`
where each request takes 50 ms, with one request at a time and with as many as the store bears.
"""

from __future__ import annotations

import contextlib
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import pytest

from genenv_core import pools
from genenv_core.storage.store.local import LocalStore
from genenv_core.storage.store.s3.store import S3Store
from genenv_core.storage.upkeep.collected import CollectionRule
from genenv_core.storage.upkeep.copying import copy_run
from genenv_core.storage.upkeep.gc import collect
from genenv_core.storage.upkeep.verify import verify
from tests.bench.orchestration import run_cli
from tests.bench.storage import seconds, table
from tests.unit.builders_runs import without_fsync, write_run
from tests.unit.storage.s3.s3_double import Faults, proxy, settled

RUN = "run-a"
EPOCHS = (2, 10)
QUERY = "SELECT epoch, p_hat FROM epochs ORDER BY epoch"
IN_PROCESS, COMMANDS = 15, 7
LIMIT = 2.0
DELAY_S = 0.05
SERVER = """
import logging, sys
from tests.unit.storage.s3.s3_double import moto

logging.getLogger("werkzeug").setLevel(logging.ERROR)  # a line for each request
with moto() as url:
    print(url, flush=True)
    sys.stdin.read()
"""


@contextlib.contextmanager
def served() -> Iterator[str]:
    """Serve a bucket from another process, which does not share this interpreter's lock."""
    process = subprocess.Popen(
        [sys.executable, "-c", SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin and process.stdout
    try:
        yield process.stdout.readline().strip()
    finally:
        process.stdin.close()
        process.wait(30)


def alternating(calls: dict[str, Callable[[], object]], times: int) -> dict[str, float]:
    """Return the median seconds of each call, made in turn; the first turn is not counted."""
    found: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(times + 1):
        for name, call in calls.items() if turn % 2 else reversed(calls.items()):
            took = seconds(call)
            if turn:
                found[name].append(took)
    return {name: statistics.median(taken) for name, taken in found.items()}


def queries(local: LocalStore, remote: S3Store, epochs: int) -> None:
    """Print a warm query's time over both roots."""
    roots = {"directory": local.uri, "bucket": remote.uri}
    inside = {name: partial(pools.frame, root, QUERY) for name, root in roots.items()}
    command = {name: partial(run_cli, "sql", QUERY, "--root", root) for name, root in roots.items()}
    rows: list[tuple[str, ...]] = []
    measured = (("pools.frame", inside, IN_PROCESS), ("genenv sql", command, COMMANDS))
    for name, calls, times in measured:
        medians = alternating(calls, times)
        directory, bucket = medians["directory"], medians["bucket"]
        ratio = f"{bucket / directory:.2f}"
        rows.append((name, f"{directory:.3f} s", f"{bucket:.3f} s", ratio))
    head = ("", "directory", "bucket", f"ratio (limit {LIMIT:.0f})")
    table(f"a warm query of a run of {epochs} epochs, medians", head, rows)


def housekeeping(server: str, remote: S3Store) -> None:
    """Print the times of verify and of a dry run of gc when every request is slow."""
    faults = Faults(delay_s=DELAY_S)
    with proxy(server, faults) as url, pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", url)
        store = S3Store(remote.uri)
        rule = CollectionRule(1, older_than_h=1e-6)
        work: dict[str, Callable[[], object]] = {
            "verify": lambda: verify(store),
            "gc --dry-run": lambda: collect(store, rule, datetime.now(UTC), dry_run=True),
        }
        many, rows = store.at_once, list[tuple[str, ...]]()
        for name, call in work.items():
            taken: list[float] = []
            faults.counts.clear()
            for at_once in (1, many):
                store.at_once = at_once
                taken.append(seconds(call))
            one, together = taken
            asked = f"{faults.counts['requests'] // 2}"
            ratio = f"{together / one:.3f}"
            rows.append((name, asked, f"{one:.1f} s", f"{together:.1f} s", ratio))
    head = ("", "requests", "one by one", f"{many} at once", "ratio")
    table(f"{DELAY_S * 1e3:.0f} ms a request", head, rows)


def main() -> None:
    """Print every comparison."""
    with tempfile.TemporaryDirectory(prefix="genenv-bench-") as folder, served() as url:
        for epochs in EPOCHS:
            with pytest.MonkeyPatch.context() as patch:
                here = Path(folder) / str(epochs)
                remote = S3Store(settled(url, here, patch))
                local = LocalStore(here / "root")
                with without_fsync():
                    write_run(local, RUN, epochs, weights=True)
                copy_run(local, remote, RUN)
                queries(local, remote, epochs)
                if epochs == EPOCHS[-1]:
                    housekeeping(url, remote)


if __name__ == "__main__":
    main()
