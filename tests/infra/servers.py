"""A real `genenv up` for tests, and what they ask of its API."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from tests.pipeline.commands import environment
from tests.waiting import BOUND_S, until

START_S = 400.0
RUN_S = 420.0
"""Patience with a busy machine; on an idle one a start takes 25 s and a tiny run as long."""

ENDED = ("COMPLETED", "FAILED", "CRASHED", "CANCELLED")


def free_port() -> int:
    """Return a port that nobody listens on just now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Up:
    """A `genenv up` in a process of its own."""

    def __init__(
        self,
        root: Path,
        *,
        ports: tuple[int, int] | None = None,
        variables: Mapping[str, str] | None = None,
        python: str = sys.executable,
    ) -> None:
        """Start the process, with test faults allowed, and return at once.

        With the `python` of `tests.hold.forks` it and whatever it starts are forked.
        """
        self.root = root
        self.ports = ports or (free_port(), free_port())
        self.view_port = free_port()
        self.url = f"http://127.0.0.1:{self.ports[0]}"
        self.mlflow_url = f"http://127.0.0.1:{self.ports[1]}"
        self.log = root.parent / f"{root.name}-{self.ports[0]}.log"
        command = [python, "-m", "flows.cli.app", "up", "--root", str(root)]
        where = ["--port", str(self.ports[0]), "--mlflow-port", str(self.ports[1])]
        where += ["--view-port", str(self.view_port)]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [*command, *where],
                env=environment(GENENV_TEST_FAULTS="1", **(variables or {})),
                cwd=root.parent,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def wait(self) -> Up:
        """Wait until it prints that it is ready."""

        def ready() -> bool:
            assert self.process.poll() is None, self.output
            return "\nready\n" in self.output

        until(ready, START_S)
        return self

    @property
    def output(self) -> str:
        """Return its output so far."""
        return self.log.read_text(encoding="utf-8")

    def stop(self, number: int = signal.SIGINT) -> int:
        """Stop it with Ctrl-C or another signal; returns its exit status."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.process.wait(BOUND_S)

    def call(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """Call the Prefect API, again while it answers 503; returns status and answer.

        On a busy machine SQLite makes the API answer 503. Prefect's own client also tries again.
        """
        deadline = time.monotonic() + RUN_S
        while True:
            status, answer = self._call(method, path, body)
            if status != 503 or time.monotonic() > deadline:
                return status, answer
            time.sleep(0.5)

    def _call(self, method: str, path: str, body: Any) -> tuple[int, Any]:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(f"{self.url}/api{path}", data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=BOUND_S) as answer:
                text = answer.read()
                return answer.status, json.loads(text) if text else None
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read())

    def deployment(self, name: str) -> dict[str, Any]:
        """Return a deployment; its flow has the same name."""
        return self.call("GET", f"/deployments/name/{name}/{name}")[1]

    def request(self, name: str, request: dict[str, Any]) -> tuple[int, Any]:
        """Start a deployment as the UI does; returns status and answer."""
        identity = self.deployment(name)["id"]
        body = {"parameters": {"request": request}}
        return self.call("POST", f"/deployments/{identity}/create_flow_run", body)

    def start(self, name: str, **request: Any) -> str:
        """Start a deployment; returns the flow run's id."""
        status, answer = self.request(name, request)
        assert status == 201, answer
        return answer["id"]

    def set_state(self, run: str, state: str, name: str) -> None:
        """Set a flow run's state as the buttons of the UI do."""
        body = {"state": {"type": state, "name": name}}
        assert self.call("POST", f"/flow_runs/{run}/set_state", body)[0] in (200, 201)

    def retry(self, run: str) -> None:
        """Retry a flow run with Prefect's command."""
        variables = environment(
            PREFECT_API_URL=f"{self.url}/api",
            PREFECT_HOME=str(self.root / "prefect"),
            PREFECT_SERVER_ANALYTICS_ENABLED="false",
            DO_NOT_TRACK="1",
        )
        said = subprocess.run(
            [sys.executable, "-m", "prefect", "flow-run", "retry", run],
            env=variables, check=False, capture_output=True, text=True, timeout=RUN_S,
        )  # fmt: skip
        assert said.returncode == 0, said.stdout + said.stderr

    def flow_run(self, run: str) -> dict[str, Any]:
        """Return a flow run."""
        return self.call("GET", f"/flow_runs/{run}")[1]

    def until(
        self, run: str, states: Collection[str] = ENDED, attempt: int = 1, seconds: float = RUN_S
    ) -> dict[str, Any]:
        """Return a flow run once it is in one of these states, in this attempt."""
        deadline = time.monotonic() + seconds
        while True:
            found = self.flow_run(run)
            if found["state"]["type"] in states and found["run_count"] >= attempt:
                return found
            assert time.monotonic() < deadline, (found["state"], self.worker_log()[-3000:])
            time.sleep(0.3)

    def stages(self, run: str) -> dict[str, str]:
        """Return task run name -> state name of a flow run."""
        body = {"flow_runs": {"id": {"any_": [run]}}, "sort": "ID_DESC"}
        return {
            task["name"]: task["state_name"]
            for task in self.call("POST", "/task_runs/filter", body)[1]
        }

    def epochs(self, run: str, number: int) -> list[dict[str, str]]:
        """Return the stages of each flow run of one epoch under a flow run, oldest first."""
        body = {"flow_runs": {"parent_flow_run_id": {"any_": [run]}}, "sort": "START_TIME_ASC"}
        found = self.call("POST", "/flow_runs/filter", body)[1]
        return [self.stages(one["id"]) for one in found if f" epoch {number} of " in one["name"]]

    def artifacts(self) -> dict[str, dict[str, Any]]:
        """Return the newest artifact of each key."""
        body = {"sort": "UPDATED_DESC", "limit": 200}
        found = self.call("POST", "/artifacts/latest/filter", body)[1]
        return {artifact["key"]: artifact for artifact in found}

    def worker_log(self) -> str:
        """Return the log of the worker."""
        return (self.root / "up" / "logs" / "worker.log").read_text(errors="replace")
