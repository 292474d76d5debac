"""Whole runs against a server of the real openenv package.

Invariant: a run whose server and whose own process were killed in the middle ends with the outputs
and weights of one that nothing happened to.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.pipeline.conftest import api
from tests.unit.domains.killed_runs import KilledRuns
from tests.unit.domains.openenv.real import RealServer
from tests.unit.domains.openenv.test_openenv_server import NAME, OPTIONS

__all__ = ["api"]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RealServer]:
    """Serve sums in two sessions at once, for many more attempts in step."""
    started = RealServer(tmp_path / "server.log", SUMS_ROOM="2")
    yield started
    started.kill()


@pytest.mark.slow
def test_a_run_survives_its_own_end_and_that_of_its_server(
    api: None, server: RealServer, tmp_path: Path
) -> None:
    rewards = KilledRuns(server, NAME, OPTIONS, epochs=2).end_alike(tmp_path)
    assert {0.0, 1.0} <= set(rewards) <= {0.0, 0.5, 1.0}
