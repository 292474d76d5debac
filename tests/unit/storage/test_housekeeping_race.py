"""A writer, compaction, gc and readers against each other, each in its own process.

Invariants: a reader never gets an error, half an epoch, a missing or a doubled row, and its open
files stay readable; afterwards the store is whole, the run a full hit, and its rows are the written
ones.
"""

from __future__ import annotations

import contextlib
import math
import multiprocessing
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from multiprocessing.context import SpawnContext
from pathlib import Path

import pytest

from genenv_core.storage.records.artifacts import Artifacts
from genenv_core.storage.records.runs import RunLog
from genenv_core.storage.sql.catalog import query
from genenv_core.storage.sql.sources import open_tables, source
from genenv_core.storage.store.local import LocalStore
from genenv_core.storage.upkeep import compaction
from genenv_core.storage.upkeep.collected import CollectionRule
from genenv_core.storage.upkeep.compaction import compact
from genenv_core.storage.upkeep.gc import collect
from genenv_core.storage.upkeep.verify import verify
from tests.unit.builders_runs import open_run, rows_of, without_fsync, write_epoch
from tests.waiting import BOUND_S, until

EPOCHS = 12
MARGIN_S = 0.5

TABLES = ("traces", "trace_tokens", "scores", "task_scores", "d_train", "update_samples")


class Shared:
    """State of all processes: since when each is at work, and how much gc has collected."""

    def __init__(self, context: SpawnContext, number: int) -> None:
        self.over = context.Event()
        self.since = context.Array("d", [math.inf] * number)
        self.collected = context.Value("i", 0)

    @contextlib.contextmanager
    def at_work(self, number: int) -> Iterator[None]:
        """Note that a process is at work; gc must keep whatever is written since then."""
        self.since[number] = time.time()
        yield
        self.since[number] = math.inf


def write(root: Path, shared: Shared, number: int) -> None:
    store = LocalStore(root)
    with without_fsync():
        for epoch in range(1, EPOCHS + 1):
            with shared.at_work(number):
                write_epoch(store, "run-a", epoch, weights=True, facts={"is_best": epoch == 2})
    before = shared.collected.value
    # What the last merge has replaced; another process that failed ends the wait.
    until(lambda: shared.collected.value > before or shared.over.is_set())
    shared.over.set()


def merge(root: Path, shared: Shared, number: int) -> None:
    compaction.FAN = 3
    store = LocalStore(root)
    with without_fsync():
        while not shared.over.is_set():
            with shared.at_work(number):
                compact(store, "run-a")
            time.sleep(0.05)  # it would otherwise take the processor from the others


def clean(root: Path, shared: Shared, number: int) -> None:
    store = LocalStore(root)
    while not shared.over.is_set():
        young_s = max(0.0, time.time() - min(shared.since)) + MARGIN_S
        rule = CollectionRule(keep=2, older_than_h=young_s / 3600)
        found = collect(store, rule, datetime.now(UTC), dry_run=False)
        shared.collected.value += len(found.paths)
        time.sleep(0.1)  # as above


def read(root: Path, shared: Shared, number: int) -> None:
    """Read the tables again and again; a complete epoch must stay so in later connections."""
    store = LocalStore(root)
    wanted = {table: rows_of(table, 1).height for table in TABLES}
    seen, last = 0, False
    while not last:
        last = shared.over.is_set()
        with shared.at_work(number), open_tables(store, ["run-a"]) as connection:
            for _ in range(2):
                done = query(connection, "SELECT epoch FROM epochs ORDER BY 1")["epoch"].to_list()
                assert done == list(range(1, len(done) + 1)) and len(done) >= seen, (seen, done)
                seen = len(done)
                for table, height in wanted.items():
                    # The id holds the epoch, also in tables without one.
                    name = "row_id" if table == "update_samples" else "group_id"
                    name = "trace_id" if table in ("trace_tokens", "scores") else name
                    found = query(
                        connection,
                        f"SELECT left({name}, 5) AS at, count(*) AS n FROM {table} "
                        f"WHERE left({name}, 5) <= 'e{seen:04d}' GROUP BY 1 ORDER BY 1",
                    )
                    assert found["n"].to_list() == [height] * seen, (table, seen, found)
        time.sleep(0.02)  # as above
    assert seen == EPOCHS


@pytest.mark.slow
def test_readers_see_whole_epochs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = LocalStore(tmp_path)
    open_run(store, "run-a", EPOCHS)
    write_epoch(store, "run-a", 0, weights=True)
    context = multiprocessing.get_context("spawn")
    works = (write, merge, clean, read, read)
    shared = Shared(context, len(works))
    started = [
        context.Process(target=work, args=(tmp_path, shared, number), name=work.__name__)
        for number, work in enumerate(works)
    ]
    for process in started:
        process.start()
    until(lambda: shared.over.is_set() or any(process.exitcode for process in started))
    shared.over.set()
    for process in started:
        process.join(BOUND_S)
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
    with open_tables(store) as connection:
        rows = query(connection, "SELECT count(*) AS n, count(DISTINCT trace_id) AS u FROM traces")
        assert rows.row(0) == (rows_of("traces", 1).height * EPOCHS,) * 2
    assert sum(map(len, source(store, "run-a").files.values())) < 90
