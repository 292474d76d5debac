"""A real process worker for tests of work pools, and what they look at."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterName, FlowRunFilterTags
from prefect.client.schemas.objects import FlowRun
from prefect.client.schemas.sorting import FlowRunSort
from prefect.settings import PREFECT_API_URL

from tests.pipeline.commands import REPOSITORY

STARTED = datetime.now(UTC)


def environment() -> dict[str, str]:
    """Return the environment of a process that talks to the session's Prefect API."""
    return {
        **os.environ,
        "PREFECT_API_URL": str(PREFECT_API_URL.value()),
        "PYTHONPATH": str(REPOSITORY),
        "PREFECT_WORKER_QUERY_SECONDS": "1",
        "PREFECT_RUNNER_POLL_FREQUENCY": "1",
        "PREFECT_LOGGING_EXTRA_LOGGERS": "genenv",
    }


@contextlib.contextmanager
def worker(
    work_pool: str,
    log: Path,
    kind: str = "process",
    variables: dict[str, str] | None = None,
    python: str = sys.executable,
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a real Prefect worker of a work pool inside the block, in the folder of its log.

    With the `python` of `tests.hold.forks` it and what it starts are forked.
    """
    with log.open("wb") as output:
        process = subprocess.Popen(
            [
                python,
                "-m",
                "prefect",
                "worker",
                "start",
                "--pool",
                work_pool,
                "--type",
                kind,
            ],
            env=variables or environment(),
            cwd=log.parent,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def children(run_id: str) -> list[FlowRun]:
    """Return the flow runs of a run's stages, oldest first."""
    with get_client(sync_client=True) as client:
        ours = client.read_flow_runs(
            # The server need not read and send those of all other runs at each look.
            flow_run_filter=FlowRunFilter(
                tags=FlowRunFilterTags(all_=["genenv"]), name=FlowRunFilterName(like_=f"· {run_id}")
            ),
            sort=FlowRunSort.START_TIME_DESC,
            limit=200,
        )
    mine = [
        run
        for run in ours
        if "parts" in run.parameters
        and run.parameters["config"]["run_id"] == run_id
        and run.created > STARTED  # a server that was there before has others
    ]
    return sorted(mine, key=lambda run: run.created)


def child_states(run_id: str) -> list[tuple[str, str]]:
    """Return (stage, state name) of the flow runs of a run's stages, oldest first."""
    return [(run.parameters["stage"], str(run.state_name)) for run in children(run_id)]
