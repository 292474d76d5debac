"""The API of a run, as its stages use it: several at once; and the database that it begins with.

Invariant: requests that write side by side are all served at the first attempt. SQLite refuses a
transaction that has read before another one wrote, and the client then waits two seconds. A new
root's database is the one that Prefect's own migrations make, and one that is there stays. The
server imports none of Prefect's integrations.
"""

from __future__ import annotations

import sqlite3
import uuid
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import psutil
import pytest

from flows.running.blank import NAME, URL_VARIABLE, lay, migrate
from flows.up import databases
from genenv_core.storage.blank import make
from tests.mutations import mutation
from tests.waiting import BOUND_S


@mutation(
    "a run's server imports every integration of Prefect", "flows/running/local_server.py",
    '    "PREFECT_MEMOIZE_BLOCK_AUTO_REGISTRATION": "false",\n', "",
)  # fmt: skip
@pytest.mark.slow
def test_requests_side_by_side_are_served_at_once(tmp_path: Path, monkeypatch):
    from flows.running.environment import QUIET
    from flows.running.local_server import LocalServer

    for name, value in QUIET.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PREFECT_HOME", str(tmp_path / "prefect"))
    server = LocalServer(tmp_path / "prefect")
    try:
        server.wait()
        parts = psutil.Process(server._process.pid).memory_maps()
        assert not [part for part in parts if "aiohttp" in part.path]  # Kubernetes' client has it
        with httpx.Client(base_url=server.url, timeout=BOUND_S) as client:
            flow = client.post("/flows/", json={"name": "x"}).json()["id"]

            def write(number: int) -> list[int]:
                answers: list[int] = []
                for _ in range(8):
                    run = client.post(
                        "/flow_runs/", json={"flow_id": flow, "state": {"type": "PENDING"}}
                    )
                    task = client.post(
                        "/task_runs/",
                        json={
                            "flow_run_id": run.json()["id"],
                            "task_key": "t",
                            "dynamic_key": str(uuid.uuid4()),
                        },
                    )
                    answers += [run.status_code, task.status_code]
                return answers

            with ThreadPoolExecutor(8) as threads:
                answers = Counter(code for codes in threads.map(write, range(8)) for code in codes)
    finally:
        server.stop()
    assert answers == {201: 128}


def rows(path: Path) -> dict[str, int]:
    """Return table -> number of its rows, of the tables that have some."""
    with sqlite3.connect(path) as database:
        tables = database.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        count = {
            name: database.execute(f'SELECT count(*) FROM "{name}"').fetchone()[0]
            for (name,) in tables
        }
    return {name: number for name, number in count.items() if number}


@pytest.mark.slow
def test_a_new_root_begins_with_the_database_that_prefect_makes(tmp_path: Path) -> None:
    made = tmp_path / "made.db"
    make(made, migrate)
    home = tmp_path / "home"
    lay(home, made)
    assert [path.name for path in home.iterdir()] == [NAME]
    assert rows(home / NAME) == {"alembic_version": 1}
    tool, folder = databases.PREFECT_MIGRATIONS
    found = databases.sqlite("Prefect", home / NAME, (tool, f"{folder}/sqlite"))
    assert found.state() == "current"


def test_only_a_database_under_the_root_starts_with_the_empty_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, home = tmp_path / "empty.db", tmp_path / "home"
    source.write_bytes(b"empty")
    monkeypatch.setenv(URL_VARIABLE, "postgresql+asyncpg://host/prefect")
    lay(home, source)
    assert not home.exists()
    monkeypatch.delenv(URL_VARIABLE)
    lay(home, source)
    assert (home / NAME).read_bytes() == b"empty"
