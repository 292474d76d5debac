"""Whole runs against a server of the real ors-sdk.

Invariant: a run whose server and whose own process were killed in the middle ends with the outputs
and weights of one that nothing happened to.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.pipeline.conftest import api
from tests.unit.domains.killed_runs import KilledRuns
from tests.unit.domains.ors.real import real_server
from tests.unit.domains.ors.test_ors_server import NAME, OPTIONS

__all__ = ["api"]


@pytest.mark.slow
def test_a_run_with_ors_survives_its_own_end_and_that_of_its_server(
    api: None, tmp_path: Path
) -> None:
    server = real_server(tmp_path / "server.log")
    try:
        runs = KilledRuns(NAME, {**OPTIONS, "sessions": 2, "url": server.url})
        rewards = runs.end_alike(server, tmp_path)
    finally:
        server.kill()
    assert 1.0 in rewards and set(rewards) <= {0.0, 0.5, 1.0}
