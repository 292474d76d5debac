"""Whole runs against a server of the real openenv package.

Invariant: a run whose server and whose own process were killed in the middle ends with the outputs
and weights of one that nothing happened to.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from genenv_core.pools import frame
from tests.pipeline.commands import environment
from tests.same import main as differing
from tests.unit.domains.openenv.real import RealServer
from tests.unit.domains.openenv.test_openenv_server import NAME, OPTIONS
from tests.waiting import until

RUN = (
    *("--epochs", "2", "--seed", "3", "--set", "tracking.enabled=false"),
    *("--set", f"domain.name={NAME}", "--set", f"domain.options={json.dumps(OPTIONS)}"),
    *("--set", "data.base_tasks=20", "--set", "data.validation_tasks=3"),
    *("--set", "data.test_tasks=5", "--set", "rollout.shard_groups=2"),
    *("--set", "bootstrap.agent_steps=120", "--set", "bootstrap.env_steps=80"),
)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RealServer]:
    """Serve sums in two sessions at once, for many more attempts in step."""
    started = RealServer(tmp_path / "server.log", SUMS_ROOM="2")
    yield started
    started.kill()


def command(root: Path, server: RealServer) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*(sys.executable, "-m", "flows.cli.app", "run", "tiny", "--root", str(root)), *RUN],
        env=environment(GENENV_OPENENV_URL=server.url),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def finished(process: subprocess.Popen[str]) -> str:
    said = process.communicate()[0]
    assert process.returncode == 0, said
    return said


def shards(root: Path) -> int:
    """Return how many shards of attempts are stored."""
    return len(list((root / "shards" / "rollout").rglob("*.json")))


@pytest.mark.slow
def test_a_run_survives_its_own_end_and_that_of_its_server(
    server: RealServer, tmp_path: Path
) -> None:
    calm, harmed = tmp_path / "calm", tmp_path / "harmed"
    finished(command(calm, server))

    first = command(harmed, server)
    until(lambda: shards(harmed) >= 1)
    server.kill()
    server.start()
    until(lambda: shards(harmed) >= 3)
    first.send_signal(signal.SIGKILL)
    first.communicate()
    assert first.returncode == -signal.SIGKILL
    finished(command(harmed, server))

    assert differing(str(calm), str(harmed)) == 0
    verdicts = frame(harmed, "SELECT DISTINCT reward FROM scores ORDER BY reward")
    assert {0.0, 1.0} <= set(verdicts["reward"]) <= {0.0, 0.5, 1.0}
