"""The page of a run that measures a model and has no epochs.

Invariants: the page of a certified task set has its checks, those that fail first, and the flaws
that were found; it speaks of no epochs, and rests when nothing is at work.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from starlette.testclient import TestClient

from flows.view.app import application
from genenv_core.storage.records.runs import RunLog, StageAttempt
from genenv_core.storage.store.local import LocalStore
from tests.mutations import mutation
from tests.unit.builders_root import START
from tests.unit.builders_runs import write_stage
from tests.unit.builders_tables import sample_frame
from tests.unit.view.reading_pages import tables

PAGE = "flows/view/pages/run.py"


@mutation(
    "a certificate has no page", PAGE,
    "_certificate(reader, run) if measures else ()", "()",
)  # fmt: skip
@mutation(
    "a failed check stands below those that passed", PAGE,
    "['fail', 'cannot say', 'pass']", "['pass', 'cannot say', 'fail']",
)  # fmt: skip
@mutation("flaws that are not there are listed", PAGE, '"AND NOT passed ORDER', '"ORDER')
@mutation("a measurement waits for epochs", PAGE, "planned = 0 if measures else ", "planned = ")
@pytest.mark.slow
def test_the_page_of_a_certificate_has_its_checks_and_flaws(tmp_path: Path):
    store, log = LocalStore(tmp_path), RunLog(LocalStore(tmp_path), "run-c")
    log.open({"arm": "base", "domain": {"name": "desk"}, "seed": 0, "epochs": 1}, START)
    written = {name: sample_frame(name) for name in ("tasks", "certified_sets", "set_flaws")}
    key = write_stage(store, "benchmark", 0, tables=written).key
    log.note_key(0, "benchmark", key)
    done = {"stage": "benchmark", "epoch": 0, "stage_key": key, "state": "computed"}
    where = {"run_id": "run-c", "host": "h", "pid": 1, "started_at": START, "attempt": 1}
    log.end(log.begin(StageAttempt.model_validate({**done, **where})))
    with TestClient(application(store), base_url="http://localhost") as browser:
        page = browser.get("/runs/run-c").text
    shown = {table.name: table.rows for table in tables(page)}
    assert [row[:2] for row in shown["checks"]] == [
        ["any_flaw", "fail"], ["reachable", "cannot say"], ["variance", "cannot say"],
    ]  # fmt: skip
    assert [row[0] for row in shown["flaws"]] == ["accepts_trivial"]
    assert "This run measures a model and has no epochs. Nothing is at work." in page
    assert "/suspects" not in page and "/rejections" not in page  # pi_env wrote nothing
    assert 'data-live="0"' in page and 'id="curves"' not in page
