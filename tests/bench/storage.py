"""What keeping everything costs: replay, commit, verification, appending, and queries.

Each comparison is made side by side in one run. Roots are temporary; the run of 1,000 epochs and
the pool of 1e7 rows are written by the real writers, without waiting for the disk.
"""

from __future__ import annotations

import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path

import polars as pl

from genenv_core.canonical import digest
from genenv_core.storage.records.artifacts import Artifacts, ArtifactWriter
from genenv_core.storage.records.manifest import Manifest
from genenv_core.storage.records.runs import RunLog
from genenv_core.storage.sql.catalog import query
from genenv_core.storage.sql.sources import open_tables, source
from genenv_core.storage.store.local import LocalStore
from genenv_core.storage.upkeep.compaction import compact
from tests.bench.orchestration import run_cli
from tests.unit.builders_runs import open_run, without_fsync, write_run
from tests.unit.builders_tables import world

EPOCHS = 12
LONG = 1000
POOLS = (1_000, 100_000, 10_000_000)
BIG_PART = 1_000_000
TRACES = 512
TRIES = 15
QUERIES = {
    "rows by epoch": "SELECT epoch, count(*), avg(response_tokens) FROM traces GROUP BY 1",
    "the epochs": "SELECT epoch, p_hat, seconds FROM epochs ORDER BY 1",
    "one task's tokens": (
        "SELECT len(token_ids) FROM trace_tokens WHERE trace_id = "
        "(SELECT max(trace_id) FROM traces WHERE epoch = 500)"
    ),
}


def seconds(work: Callable[[], object]) -> float:
    """Return how long a call takes."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def table(title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a small table."""
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    print(f"\n{title}")
    for row in (head, *rows):
        cells = [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        print(f"  {row[0].ljust(widths[0])}  {'  '.join(cells)}")


def replay(root: Path) -> None:
    """Compute a run of the preset tiny, then replay it from the cache."""
    command = ("run", "tiny", "--epochs", str(EPOCHS), "--set", "tracking.enabled=false")
    log = root / "runs" / "bench" / "run.log"
    whole: list[float] = []
    flow: list[float] = []
    known = 0
    for _ in range(2):
        whole.append(run_cli(*command, "--root", str(root), "--run-id", "bench", "--json"))
        lines = log.read_text(encoding="utf-8").splitlines()
        moments = [datetime.fromisoformat(line[:23].replace(",", ".")) for line in lines[known:]]
        flow.append((moments[-1] - moments[0]).total_seconds())
        known = len(lines)
    rows = [
        (name, f"{both[0]:.1f} s", f"{both[1]:.1f} s", f"{both[1] / both[0]:.3f}")
        for name, both in (("first to last stage", flow), ("with start-up and imports", whole))
    ]
    table(f"a run of {EPOCHS} epochs, tiny", ("", "computed", "replayed", "ratio"), rows)


def traces_of(epoch: int, count: int) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return `count` rows of `traces` and `trace_tokens` with ids of an epoch."""
    whole = world(4)
    scalars, payload = whole["traces"], whole["trace_tokens"]
    times = -(-count // scalars.height)
    ids = pl.Series([f"e{epoch:04d}-{index:08d}" for index in range(count)])
    many = pl.concat([scalars] * times).head(count)
    tokens = pl.concat([payload] * times).head(count)
    return many.with_columns(trace_id=ids), tokens.with_columns(trace_id=ids)


def write_rollout(store: LocalStore, epoch: int, tables: dict[str, pl.DataFrame]) -> Manifest:
    """Commit a rollout and note it in the run."""
    key = digest([epoch, store.uri])
    writer = ArtifactWriter(store, "rollout", {"epoch": epoch}, key)
    for name, frame in tables.items():
        writer.table(name, frame)
    manifest, _ = writer.commit({})
    RunLog(store, "run-a").note_key(epoch, "rollout", key)
    return manifest


def commit(root: Path) -> None:
    """Print how long a stage's output takes to write, to commit and to verify."""
    store = LocalStore(root)
    scalars, payload = traces_of(1, TRACES)
    times: dict[str, list[float]] = {}

    def timed(name: str, work: Callable[[], object]) -> None:
        times.setdefault(name, []).append(1e3 * seconds(work))

    log = RunLog(store, "run-a")
    for number in range(TRIES):
        key = digest(number)
        writer = ArtifactWriter(store, "rollout", {}, key)
        shown = scalars.with_columns(epoch=pl.lit(number, pl.Int32))
        timed("validate and write traces", partial(writer.table, "traces", shown))
        payload = payload.with_columns(response_text=pl.lit(str(number)))
        timed("validate and write trace_tokens", partial(writer.table, "trace_tokens", payload))
        timed("commit: the manifest", partial(writer.commit, {}))
        timed("note the key in the run", partial(log.note_key, number, "rollout", key))
        find = partial(Artifacts(store).find, "rollout", key)
        timed("first use in a process: full digest", find)
        timed("later use: size and footer", find)
    rows = [(name, f"{statistics.median(found):.2f} ms") for name, found in times.items()]
    table(f"a stage of {TRACES} traces, median of {TRIES}", ("", "time"), rows)


def append(root: Path) -> None:
    """Print how long an epoch's traces take to append to pools of several sizes."""
    stores: dict[int, LocalStore] = {}
    with without_fsync():
        for size in POOLS:
            stores[size] = store = LocalStore(root / str(size))
            open_run(store, "run-a", LONG)
            for number, start in enumerate(range(0, size, BIG_PART)):
                scalars, _ = traces_of(number, min(BIG_PART, size - start))
                write_rollout(store, number, {"traces": scalars})
    os.sync()  # the big pool must not be on its way to the disk while we measure
    scalars, payload = traces_of(500, TRACES)
    tables = {"traces": scalars, "trace_tokens": payload}
    times: dict[int, list[float]] = {size: [] for size in POOLS}
    for number in range(TRIES):
        for size in POOLS if number % 2 else reversed(POOLS):
            store = stores[size]
            epoch = 100 + number
            tables["traces"] = scalars.with_columns(epoch=pl.lit(epoch, pl.Int32))
            tables["trace_tokens"] = payload.with_columns(response_text=pl.lit(str(epoch)))
            times[size].append(1e3 * seconds(partial(write_rollout, store, epoch, tables)))
    medians = {size: statistics.median(found) for size, found in times.items()}
    rows = [
        (f"{size:.0e} rows", f"{median:.1f} ms", f"{median / medians[POOLS[0]]:.2f}")
        for size, median in medians.items()
    ]
    table(f"append {TRACES} traces beside", ("", "median", "ratio"), rows)


def queries(root: Path) -> None:
    """Open and query a run of 1,000 epochs before and after compaction."""
    store = LocalStore(root)
    with without_fsync():
        write_run(store, "run-a", LONG)
    measured: list[list[float]] = []
    files: list[int] = []
    merging = 0.0
    for after in (False, True):
        if after:
            merging = seconds(lambda: compact(store, "run-a"))
        opening = [seconds(lambda: open_tables(store).close()) for _ in range(3)]
        found = [statistics.median(opening)]
        with open_tables(store) as connection:
            for sql in QUERIES.values():
                runs = [seconds(lambda q=sql: query(connection, q)) for _ in range(5)]
                found.append(statistics.median(runs))
        measured.append(found)
        files.append(sum(map(len, source(store, "run-a").files.values())))
    names = ("open all tables", *QUERIES)
    rows = [
        (name, f"{before * 1e3:.0f} ms", f"{after * 1e3:.0f} ms", f"{after / before:.3f}")
        for name, before, after in zip(names, *measured, strict=True)
    ]
    rows.append(("live files", str(files[0]), str(files[1]), f"{files[1] / files[0]:.3f}"))
    table(f"a run of {LONG:,} epochs", ("", "small parts", "compacted", "ratio"), rows)
    print(f"  merging all of it took {merging:.1f} s, {merging / LONG * 1e3:.1f} ms an epoch")


def main() -> None:
    """Print every comparison."""
    for part in (replay, commit, append, queries):
        folder = Path(tempfile.mkdtemp(prefix="genenv-bench-"))
        try:
            part(folder)
        finally:
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
