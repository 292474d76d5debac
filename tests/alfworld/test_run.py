"""A whole run on the official games, in the place of the train split (the suite `alfworld`).

Invariants: those of `tests.pipeline.test_benchmark_domains`, with the real environment.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from genenv_core.benchmarks.alfworld.training.alfworld_domain import AlfworldDomain
from tests.alfworld.test_playing import train_data
from tests.pipeline.conftest import api
from tests.pipeline.test_benchmark_domains import played, went_well
from tests.unit.benchmarks.alfworld.test_alfworld_training import chosen

__all__ = ["api"]

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", autouse=True)
def packages() -> None:
    """Skip without what plays the games."""
    if not os.environ.get("GENENV_ALFWORLD_PYTHON"):
        pytest.skip("no packages here: `make test-suites NAMES=alfworld` installs them")


def test_games_of_houses_go_through_a_whole_run(
    api: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"data": str(train_data(tmp_path / "data", "valid_unseen", "valid_seen"))}
    item = AlfworldDomain.from_options(options).items()[0].spec["item"]
    config = played(
        tmp_path / "root", tmp_path, monkeypatch, "alfworld", options, lambda _: chosen(item)
    )
    went_well(config, 6)
