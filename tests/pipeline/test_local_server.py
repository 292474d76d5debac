"""The API of a run, as its stages use it: several at once.

Invariant: requests that write side by side are all served at the first attempt. SQLite refuses a
transaction that has read before another one wrote, and the client then waits two seconds.
"""

from __future__ import annotations

import uuid
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx

from tests.waiting import BOUND_S


def test_requests_side_by_side_are_served_at_once(tmp_path: Path, monkeypatch):
    from flows.running.environment import QUIET
    from flows.running.local_server import LocalServer

    for name, value in QUIET.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PREFECT_HOME", str(tmp_path / "prefect"))
    server = LocalServer(tmp_path / "prefect")
    try:
        server.wait()
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
