"""A writer, compaction, gc and readers against each other, each a process of its own.

Invariants: a reader never gets an error, half an epoch, a missing or a doubled row, and what it has
open stays readable; afterwards the store is whole, the run a full hit, and its rows are those that
were written.
"""

from __future__ import annotations

import multiprocessing
import time
from datetime import UTC, datetime
from multiprocessing.synchronize import Event
from pathlib import Path

import pytest

from genenv_core.storage import compaction
from genenv_core.storage.artifacts import Artifacts
from genenv_core.storage.catalog import query
from genenv_core.storage.compaction import compact
from genenv_core.storage.gc import Rule, collect
from genenv_core.storage.local import LocalStore
from genenv_core.storage.pools import open_pools, source
from genenv_core.storage.runs import RunLog
from genenv_core.storage.verify import verify
from tests.unit.builders_runs import open_run, rows_of, without_fsync, write_epoch

EPOCHS = 12
YOUNG_S = 8.0
"""What gc leaves alone: longer than a reader keeps its tables open."""

TABLES = ("traces", "trace_tokens", "scores", "task_scores", "d_train", "update_samples")


def write(root: Path, over: Event) -> None:
    store = LocalStore(root)
    with without_fsync():
        for epoch in range(1, EPOCHS + 1):
            write_epoch(store, "run-a", epoch, weights=True, facts={"is_best": epoch == 2})
    time.sleep(YOUNG_S)  # so that gc finds something
    over.set()


def merge(root: Path, over: Event) -> None:
    compaction.FAN = 3
    store = LocalStore(root)
    with without_fsync():
        while not over.is_set():
            compact(store, "run-a")
            time.sleep(0.05)


def clean(root: Path, over: Event) -> None:
    store = LocalStore(root)
    while not over.is_set():
        rule = Rule(keep=2, older_than_h=YOUNG_S / 3600)
        collect(store, rule, datetime.now(UTC), dry_run=False)
        time.sleep(0.1)


def read(root: Path, over: Event) -> None:
    """Look at the tables again and again; an epoch that was seen whole stays, in any connection."""
    store = LocalStore(root)
    wanted = {table: rows_of(table, 1).height for table in TABLES}
    seen = 0
    while not over.is_set():
        with open_pools(store, ["run-a"]) as connection:
            for _ in range(2):
                done = query(connection, "SELECT epoch FROM epochs ORDER BY 1")["epoch"].to_list()
                assert done == list(range(1, len(done) + 1)) and len(done) >= seen, (seen, done)
                seen = len(done)
                for table, height in wanted.items():
                    # The id tells the epoch, also in tables without one.
                    name = "row_id" if table == "update_samples" else "group_id"
                    name = "trace_id" if table in ("trace_tokens", "scores") else name
                    found = query(
                        connection,
                        f"SELECT left({name}, 5) AS at, count(*) AS n FROM {table} "
                        f"WHERE left({name}, 5) <= 'e{seen:04d}' GROUP BY 1 ORDER BY 1",
                    )
                    assert found["n"].to_list() == [height] * seen, (table, seen, found)
        time.sleep(0.02)
    assert seen == EPOCHS


def test_nobody_notices_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = LocalStore(tmp_path)
    open_run(store, "run-a", EPOCHS)
    write_epoch(store, "run-a", 0, weights=True)
    context = multiprocessing.get_context("spawn")
    over = context.Event()
    started = [
        context.Process(target=work, args=(tmp_path, over), name=work.__name__)
        for work in (write, merge, clean, read, read)
    ]
    for process in started:
        process.start()
    deadline = time.monotonic() + 120
    while not over.is_set() and time.monotonic() < deadline:
        if any(process.exitcode for process in started):
            break
        time.sleep(0.1)
    over.set()
    for process in started:
        process.join(30)
    assert {process.name: process.exitcode for process in started} == dict.fromkeys(
        ("write", "merge", "clean", "read"), 0
    )
    assert [process.exitcode for process in started] == [0] * 5
    assert verify(store).damaged == []
    log, artifacts = RunLog(store, "run-a"), Artifacts(store)
    for epoch in range(EPOCHS + 1):
        for stage, key in log.keys(epoch).items():
            assert artifacts.find(stage, key) is not None
    assert store.list("retired") and store.list("runs/run-a/segments")
    monkeypatch.setattr(compaction, "FAN", 3)
    compact(store, "run-a")
    with open_pools(store) as connection:
        rows = query(connection, "SELECT count(*) AS n, count(DISTINCT trace_id) AS u FROM traces")
        assert rows.row(0) == (rows_of("traces", 1).height * EPOCHS,) * 2
    assert sum(map(len, source(store, "run-a").files.values())) < 90
