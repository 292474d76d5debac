"""A whole co-evolution with real vLLM for both policies; servers are killed and hung on the way.

Invariants: the run ends well; every group is whole and without an error; shards that were finished
before a server was lost are not sampled again; under the domain's grammar pi_env writes only valid
text; the logprob gap is in the metrics and within tolerance; no server is left; the same command
again computes nothing.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from genenv_core.storage.sql import catalog
from genenv_core.storage.sql.sources import open_tables
from genenv_core.storage.store.local import LocalStore

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3000)]

REPOSITORY = Path(__file__).parents[2]
TOLERANCE = 1e-3
SETTINGS = (
    "epochs=1",
    "compute.engine=vllm",
    "execution.vllm.stall_seconds=15",
    "generation.structured=true",
    "rollout.shard_groups=1",
    # vLLM's attention on CPUs takes heads of 32 and more.
    *(f"bootstrap.{policy}.hidden_size=64" for policy in ("agent", "env")),
    *(f"bootstrap.{policy}.heads=2" for policy in ("agent", "env")),
)
STAGES = "SELECT epoch, stage, attempt, state FROM stage_runs ORDER BY ALL"
BLOWS = (signal.SIGKILL, signal.SIGSTOP)


def command(root: Path, *rest: str) -> list[str]:
    settings = [word for setting in SETTINGS for word in ("--set", setting)]
    return [sys.executable, "-m", "flows.cli.app", *rest, "--root", str(root), *settings]


class Trouble(threading.Thread):
    """Hits the server of the stage `rollout` twice, each time after a new shard."""

    def __init__(self, root: Path) -> None:
        super().__init__(daemon=True)
        self._root = root
        self.hit: list[int] = []
        self.shards: list[dict[str, float]] = []

    def run(self) -> None:
        """Wait for a new shard before each signal, and send it to the server of that shard."""
        for number in BLOWS:
            known = self._shards()
            while (found := self._shards()).keys() == known.keys() or not self._server():
                time.sleep(0.005)
            server = self._server()
            assert server is not None
            with contextlib.suppress(ProcessLookupError):
                os.kill(server, number)
                self.hit.append(server)
                self.shards.append(found)

    def _shards(self) -> dict[str, float]:
        return {
            path.name: path.stat().st_mtime for path in self._root.glob("shards/rollout/*/*.json")
        }

    def _server(self) -> int | None:
        """Return the stage's newest server, unless it was hit already."""
        for log in self._root.glob("progress/rollout/*/genenv-*.log"):
            found = re.findall(r"APIServer pid=(\d+)", log.read_text("utf-8", errors="replace"))
            if found and int(found[-1]) not in self.hit:
                return int(found[-1])
        return None


def query(root: Path, text: str) -> list[dict[str, Any]]:
    with open_tables(LocalStore(root), ["real"]) as connection:
        return catalog.query(connection, text).to_dicts()


def servers(root: Path) -> list[psutil.Process]:
    """Return the servers of models under this root, guards included."""
    return [
        process
        for process in psutil.process_iter(["cmdline"])
        if any(word.startswith(f"--model={root}/") for word in process.info["cmdline"] or [])
    ]


def test_a_run_with_real_servers_killed_and_hung_on_the_way(tmp_path: Path) -> None:
    root = tmp_path / "root"
    trouble = Trouble(root)
    trouble.start()
    done = subprocess.run(
        command(root, "run", "tiny", "--run-id", "real"),
        capture_output=True,
        text=True,
        cwd=REPOSITORY,
    )
    assert done.returncode == 0, done.stderr[-3000:] + done.stdout[-3000:]
    trouble.join(10)
    assert len(trouble.hit) == 2 and len(set(trouble.hit)) == 2
    assert not servers(root)

    [attempts] = query(
        root,
        "SELECT count(*) AS n, count(*) FILTER (finish_reason = 'error') AS errors, "
        "count(DISTINCT trace_id) AS ids, count(DISTINCT group_id) AS groups FROM traces",
    )
    assert attempts["errors"] == 0 and attempts["n"] == attempts["ids"] == 4 * attempts["groups"]
    assert attempts["groups"] > 4
    reasons = query(root, "SELECT rejection, count(*) AS n FROM tasks WHERE NOT valid GROUP BY 1")
    print("rejections:", reasons)
    assert "unparseable" not in {row["rejection"] for row in reasons}
    [row] = query(root, "SELECT metrics FROM checkpoints WHERE policy = 'agent' AND epoch = 1")
    metrics = json.loads(row["metrics"])
    print("gap:", metrics["logprob_gap"], "largest:", metrics["logprob_gap_max"])
    assert 0 < metrics["logprob_gap"] <= metrics["logprob_gap_max"] < TOLERANCE

    before_again = query(root, STAGES)
    assert {row["state"] for row in before_again} == {"computed"}
    again = subprocess.run(
        command(root, "run", "tiny", "--run-id", "real"),
        capture_output=True,
        text=True,
        cwd=REPOSITORY,
    )
    assert again.returncode == 0, again.stderr[-3000:]
    assert query(root, STAGES) == before_again  # nothing was computed
