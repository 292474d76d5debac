"""The run that a command takes where none is named.

Invariants: it is the one whose last stage began last, also where it was begun before another; a
measurement is none; a root without a run that trains says so.
"""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from flows.cli.runs.listing import newest_run
from genenv_core.errors import ConfigError
from genenv_core.storage.records.runs import RunLog, StageAttempt
from genenv_core.storage.store.local import LocalStore
from tests.mutations import mutation
from tests.unit.builders_runs import START, key_of

LISTING = "flows/cli/runs/listing.py"

CONFIG = {"epochs": 1, "arm": "genenv", "domain": {"name": "desk"}, "seed": 0}


def at_work(store: LocalStore, run: str, begun: int, last: int, **config: object) -> None:
    """Open a run `begun` hours after the start, which has a stage that began at hour `last`."""
    log = RunLog(store, run)
    log.open(CONFIG | config, START + timedelta(hours=begun))
    log.begin(
        StageAttempt(
            run_id=run, epoch=1, stage="score", stage_key=key_of("score", 1), state="running",
            host="h", pid=1, started_at=START + timedelta(hours=last),
        )  # type: ignore[arg-type]
    )  # fmt: skip


@mutation(
    "the newest run is the one that was begun last", LISTING,
    "coalesce(max(s.started_at), any_value(r.started_at)) DESC", "any_value(r.started_at) DESC",
)  # fmt: skip
@mutation(
    "a measurement is taken for the newest run", LISTING,
    "WHERE {MEASURED} IS NULL GROUP BY", "GROUP BY",
)  # fmt: skip
def test_it_is_the_run_that_was_at_work_last(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    at_work(store, "begun-first", 0, 9)
    at_work(store, "begun-last", 5, 6)
    at_work(store, "eval-model", 10, 11, benchmark={"model": "m"})
    assert newest_run(store) == "begun-first"


def test_a_root_without_a_run_that_trains_says_so(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    at_work(store, "eval-model", 1, 2, benchmark={"model": "m"})
    with pytest.raises(ConfigError, match="has no run that trains: start one with `genenv run`"):
        newest_run(store)
