"""Runs of `tiny` against a server: one that is let be, one that is killed with its server."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from genenv_core.pools import frame
from tests.pipeline.builders import run, tiny
from tests.pipeline.commands import environment
from tests.same import main as differing
from tests.waiting import until

RUN = "killed"


class MortalServer(Protocol):
    """A server that a test kills and starts again."""

    def kill(self) -> None: ...

    def start(self) -> None: ...


class KilledRuns:
    """Epochs of `tiny` on a domain; `options` have the address of its server.

    A run that is killed is a command; the others are played in this process.
    """

    def __init__(self, name: str, options: dict[str, Any], epochs: int = 1) -> None:
        self._epochs = epochs
        self._settings = (
            *("tracking.enabled=false", "seed=3", "rollout.shard_groups=2"),
            *(f"domain.name={name}", f"domain.options={json.dumps(options)}"),
            *("data.base_tasks=20", "data.validation_tasks=3", "data.test_tasks=5"),
            *("bootstrap.agent_steps=120", "bootstrap.env_steps=80"),
        )

    def end_alike(self, server: MortalServer, folder: Path) -> list[float]:
        """Check that both runs end with the same, and return their rewards, each once."""
        calm, harmed = folder / "calm", folder / "harmed"
        self.end(calm)

        first = self._command(harmed)
        until(lambda: _shards(harmed) >= 1)
        server.kill()
        server.start()
        until(lambda: _shards(harmed) >= 3)
        _kill(first)
        self.end(harmed)

        assert differing(str(calm), str(harmed)) == 0
        found = frame(harmed, "SELECT DISTINCT reward FROM scores ORDER BY reward")
        return list(found["reward"])

    def end(self, root: Path) -> None:
        """Play a run that nobody kills to its end."""
        run(tiny(root, *self._settings, epochs=self._epochs, run_id=RUN))

    def end_after_a_kill(self, root: Path, killed: Callable[[], None]) -> int:
        """Kill a run that has stored attempts, call `killed`, and let it go on to its end.

        Returns how many shards of attempts were stored before.
        """
        first = self._command(root)
        until(lambda: _shards(root) >= 1)
        _kill(first)
        stored = _shards(root)
        killed()
        self.end(root)
        return stored

    def _command(self, root: Path) -> subprocess.Popen[str]:
        command = (*(sys.executable, "-m", "flows.cli.app", "run", "tiny"), "--root", str(root))
        settings = (word for text in self._settings for word in ("--set", text))
        return subprocess.Popen(
            [*command, "--run-id", RUN, "--epochs", f"{self._epochs}", *settings],
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )


def _kill(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert process.returncode == -signal.SIGKILL


def _shards(root: Path) -> int:
    """Return how many shards of attempts are stored."""
    return len(list((root / "shards" / "rollout").rglob("*.json")))
