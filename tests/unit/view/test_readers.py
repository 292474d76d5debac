"""Which process answers the pages of a run, and what a page says while runs are at work.

Invariants: the pages of a root with few runs share one process; in a larger root each run has its
own, which opens no other run's files, and at most `MOST_SINGLE` of them stay; a reader that is
replaced still answers; a question that needs too much memory hears what helps on a page; a page
without a run at work does not renew itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from flows.view import reading
from flows.view.app import application
from flows.view.reading import MOST_SINGLE, Reader
from genenv_core.errors import QueryError
from genenv_core.storage.records.runs import RunLog, StageAttempt
from genenv_core.storage.sql.sandbox import Limits
from genenv_core.storage.store.local import LocalStore
from tests.mutations import mutation
from tests.unit.builders_root import START, fill

pytestmark = pytest.mark.slow

READING = "flows/view/reading.py"
RUNS = [f"run-{number}" for number in range(MOST_SINGLE + 2)]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> LocalStore:
    """Return a root with a few runs of one epoch."""
    made = LocalStore(tmp_path_factory.mktemp("root"))
    for run in RUNS:
        fill(made, run, 1)
    return made


@pytest.fixture
def reader(store: LocalStore) -> Iterator[Reader]:
    """Return a reader of the root."""
    made = Reader(store)
    yield made
    made.close()


def runs_of(reader: Reader) -> list[str]:
    return [row["run_id"] for row in reader.panel("a", "A", "SELECT run_id FROM runs ORDER BY 1")]


def test_the_pages_of_few_runs_share_a_process(reader: Reader) -> None:
    assert reader.of("run-1") is reader
    assert runs_of(reader) == RUNS


@mutation(
    "the reader of a run opens all runs", READING,
    "only = () if self._run is None else (self._run,)", "only = ()",
)  # fmt: skip
@mutation(
    "readers of runs are never let go", READING,
    "if len(self._single) > MOST_SINGLE else None", "if False else None",
)  # fmt: skip
def test_each_run_of_a_large_root_has_a_process_that_opens_it_alone(
    reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "FEW_RUNS", 1)
    first = reader.of("run-0")
    assert first is reader.of("run-0") is not reader
    assert runs_of(first) == ["run-0"]
    assert first.apart("SELECT run_id FROM runs", reading.PAGE).frame.height == 1
    for run in RUNS[1:]:
        reader.of(run)
    assert first is not reader.of("run-0")  # it made room
    assert runs_of(first) == ["run-0"]  # and answers a page that still has it
    assert reader.of("nowhere") is reader


def test_an_unknown_run_of_a_large_root_is_not_found(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "FEW_RUNS", 1)
    with TestClient(application(store), base_url="http://localhost") as browser:
        assert browser.get("/runs/nowhere").status_code == 404
        assert browser.get("/runs/run-1").status_code == 200


@mutation(
    "a page names an option that it lacks", READING,
    "except QueryLimit as error", "except () as error",
)  # fmt: skip
@mutation(
    "memory is an error like any other", "genenv_core/storage/sql/sandbox.py",
    'return QueryLimit(f"the query needs more', 'return QueryError(f"the query needs more',
)  # fmt: skip
@mutation(
    "an answer that is too large is an error like any other",
    "genenv_core/storage/sql/sandbox_child.py",
    'return {"large": error.most_bytes}', 'return {"error": "too large"}',
)  # fmt: skip
@pytest.mark.parametrize("way", ["shared", "apart"])
@pytest.mark.parametrize(
    ("limits", "sql", "what", "option"),
    [
        (Limits(memory="64MB", rows=10), "SELECT repeat('x', 1000000000) AS t",
         "the query needs more than 64MB of memory", "--memory 4GB"),
        (Limits(memory="64MB"), "SELECT repeat('x', 1000) AS t FROM range(200000)",
         "the result is larger than 0.064 GB", "--memory 4GB"),
        (Limits(timeout_s=1), "SELECT sum(a.range + b.range) AS s FROM range(1000000) AS a, "
         "range(1000000) AS b", "the query took more than 1 s", "--timeout 600"),
    ],
)  # fmt: skip
def test_a_question_that_reaches_a_limit_hears_what_helps_on_a_page(
    way: str, limits: Limits, sql: str, what: str, option: str, reader: Reader,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(reading, "PAGE", limits)
    with pytest.raises(QueryError) as caught:
        reader.ask(sql) if way == "shared" else reader.apart(sql, limits)
    assert str(caught.value) == (
        f"{what}, which is all that a page may use: ask it of one run on the page SQL, "
        f"or ask `genenv sql {option}`"
    )


@mutation(
    "the list of runs does not say what is at work", "flows/view/pages/runs.py",
    "AND state = 'running'", "AND state = 'never'",
)  # fmt: skip
def test_the_list_of_runs_says_what_is_at_work(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    fill(store, "run-a", 1)
    begun = {"stage": "rollout", "epoch": 2, "stage_key": "k", "state": "running"}
    where = {"run_id": "run-a", "host": "h", "pid": 1, "started_at": START}
    with TestClient(application(store), base_url="http://localhost") as browser:
        page = browser.get("/").text
        assert "at work" not in page and 'data-live="0"' in page
    RunLog(store, "run-a").begin(StageAttempt.model_validate({**begun, **where}))
    with TestClient(application(store), base_url="http://localhost") as browser:
        page = browser.get("/").text
    assert '<a href="/runs/run-a">run-a</a>: rollout of epoch 2 for ' in page
    assert 'data-live="5"' in page
