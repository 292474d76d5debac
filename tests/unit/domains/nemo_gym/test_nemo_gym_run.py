"""Whole runs against a double of a resources server of NeMo Gym.

Invariant: a run whose server and whose own process were killed in the middle ends with the outputs
and weights of one that nothing happened to.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from genenv_core.pools import frame
from tests.pipeline.conftest import api
from tests.unit.domains.killed_runs import KilledRuns
from tests.unit.domains.nemo_gym.double import serving, written_rows
from tests.unit.domains.nemo_gym.test_nemo_gym_server import NAME, OPTIONS

__all__ = ["api"]


@pytest.mark.slow
def test_a_run_with_nemo_gym_survives_its_own_end_and_that_of_its_server(
    api: None, tmp_path: Path
) -> None:
    options = {**OPTIONS, "rows": written_rows(tmp_path), "sessions": 2}
    with serving() as server:
        rewards = KilledRuns(NAME, {**options, "url": server.url}).end_alike(server, tmp_path)
    assert {0.0, 1.0} <= set(rewards) <= {0.0, 1 / 3, 0.5, 1.0}
    stored = frame(tmp_path / "harmed", "SELECT messages FROM trace_tokens")["messages"]
    named = [one for one in stored if '"correct"' in one and '"silent"' in one]
    assert len(named) > 20
