"""Whole runs of `tiny` against a server: one that is let be, one that is killed with its server."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from genenv_core.pools import frame
from tests.pipeline.commands import environment
from tests.same import main as differing
from tests.unit.domains.doubles import Double
from tests.unit.domains.openenv.real import RealServer
from tests.waiting import until


class KilledRuns:
    """Two epochs of `tiny` on a domain of a server, whose address a variable says."""

    def __init__(
        self,
        server: RealServer | Double,
        url_variable: str,
        name: str,
        options: dict[str, Any],
        epochs: int = 2,
    ) -> None:
        self._server, self._url_variable = server, url_variable
        self._settings = (
            *("--epochs", str(epochs), "--seed", "3", "--set", "tracking.enabled=false"),
            *("--set", f"domain.name={name}", "--set", f"domain.options={json.dumps(options)}"),
            *("--set", "data.base_tasks=20", "--set", "data.validation_tasks=3"),
            *("--set", "data.test_tasks=5", "--set", "rollout.shard_groups=2"),
            *("--set", "bootstrap.agent_steps=120", "--set", "bootstrap.env_steps=80"),
        )

    def end_alike(self, folder: Path) -> list[float]:
        """Check that both runs end with the same, and return their rewards, each once."""
        calm, harmed = folder / "calm", folder / "harmed"
        self.end(calm)

        assert isinstance(self._server, RealServer)
        first = self._command(harmed)
        until(lambda: _shards(harmed) >= 1)
        self._server.kill()
        self._server.start()
        until(lambda: _shards(harmed) >= 3)
        _kill(first)
        self._finished(self._command(harmed))

        assert differing(str(calm), str(harmed)) == 0
        found = frame(harmed, "SELECT DISTINCT reward FROM scores ORDER BY reward")
        return list(found["reward"])

    def end(self, root: Path) -> None:
        """Let a run that nobody kills come to its end."""
        self._finished(self._command(root))

    def end_after_a_kill(self, root: Path, killed: Callable[[], None]) -> int:
        """Kill a run that has stored attempts, call `killed`, and let it go on to its end.

        Returns how many shards of attempts were stored before.
        """
        first = self._command(root)
        until(lambda: _shards(root) >= 1)
        _kill(first)
        stored = _shards(root)
        killed()
        self._finished(self._command(root))
        return stored

    def _command(self, root: Path) -> subprocess.Popen[str]:
        run = (*(sys.executable, "-m", "flows.cli.app", "run", "tiny"), "--root", str(root))
        return subprocess.Popen(
            [*run, *self._settings],
            env=environment(**{self._url_variable: self._server.url}),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def _finished(self, process: subprocess.Popen[str]) -> None:
        said = process.communicate()[0]
        assert process.returncode == 0, said


def _kill(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert process.returncode == -signal.SIGKILL


def _shards(root: Path) -> int:
    """Return how many shards of attempts are stored."""
    return len(list((root / "shards" / "rollout").rglob("*.json")))
