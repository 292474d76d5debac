"""The pages of `genenv view` over a root in a bucket.

Invariants: every page is there, and its numbers are what their SQL gives; nothing is written.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from starlette.testclient import TestClient

from flows.view.app import application
from genenv_core.storage.sql.catalog import query
from genenv_core.storage.sql.sources import open_tables
from genenv_core.storage.store.s3.store import S3Store
from tests.unit.builders_root import fill
from tests.unit.storage.s3.s3_double import environment, proxy
from tests.unit.storage.s3.test_s3_readers import Heard
from tests.unit.view.reading_pages import held_against_sql
from tests.unit.view.test_pages import PAGES, TRACE


@pytest.fixture
def heard(usual: str, server: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Heard]:
    """Fill the bucket with two runs, then send every request through a proxy that counts them."""
    for run in ("run-a", "run-b"):
        fill(S3Store(usual), run)
    faults = Heard()
    with proxy(server, faults) as url:
        for name, value in environment(url).items():
            monkeypatch.setenv(name, value)
        yield faults


@pytest.mark.slow
def test_every_page_is_there_and_nothing_is_written(usual: str, heard: Heard) -> None:
    store = S3Store(usual, writable=False)
    with (
        TestClient(application(store), base_url="http://127.0.0.1:4300") as browser,
        open_tables(store) as con,
    ):
        for name, path in PAGES.items():
            answer = browser.get(path)
            assert answer.status_code == 200, name
            held_against_sql(answer.text, lambda sql: query(con, sql).to_dicts())
        assert "Token by token" in browser.get(f"/runs/run-a/traces/{TRACE}").text
    assert set(heard.counts) <= {"GET", "HEAD", "requests"}
