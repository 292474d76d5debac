"""Domains of docs/domain.md with tiny models that are made for them: an epoch runs.

One is an example as a plug-in, one is part of genenv.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from genenv_core.pools import frame
from tests.pipeline.commands import REPOSITORY, environment
from tests.unit.plugged import write_package

ARITHMETIC = ("arithmetic", "{terms: 3, explain: false}", r"^\d+( [+-] \d+){1,2} =$", ())
UNITS = (
    "units",
    "{terms: 1, explain: false}",
    "^How many ",
    ("rollout.max_turns=6", "bootstrap.agent_steps=100"),
)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "options", "asks", "settings"), [ARITHMETIC, UNITS], ids=["arithmetic", "units"]
)
def test_the_domain_plays_an_epoch(
    name: str, options: str, asks: str, settings: tuple[str, ...], tmp_path: Path
) -> None:
    package = write_package(tmp_path / "plugin", {"genenv.domains": {"units": "units:Units"}})
    folders = (REPOSITORY, REPOSITORY / "docs" / "examples", package)
    changes = [f"domain.name={name}", f"domain.options={options}", "tracking.enabled=false"]
    subprocess.run(
        [
            *(sys.executable, "-m", "flows.cli.app", "run", "tiny", "--epochs", "1"),
            *("--root", "root"),
            *(word for change in (*changes, *settings) for word in ("--set", change)),
        ],
        cwd=tmp_path,
        env=environment(PYTHONPATH=os.pathsep.join(map(str, folders))),
        check=True,
    )
    attempted = "SELECT DISTINCT prompt FROM tasks WHERE choice <> 'not_chosen'"
    tasks = frame(tmp_path / "root", attempted)
    assert len(tasks) == 8 and tasks["prompt"].str.contains(asks).all()
