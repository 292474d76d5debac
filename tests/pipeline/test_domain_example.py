"""The example of docs/domain.md as a plug-in: tiny models are made for it, and an epoch runs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from genenv_core.pools import frame
from tests.pipeline.commands import REPOSITORY, environment


@pytest.mark.slow
def test_the_example_plays_an_epoch(tmp_path: Path) -> None:
    package = tmp_path / "plugin" / "sums-1.0.dist-info"
    package.mkdir(parents=True)
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: sums\nVersion: 1.0\n")
    (package / "entry_points.txt").write_text("[genenv.domains]\ntiny_sums = tiny_sums:TinySums\n")
    folders = (REPOSITORY, REPOSITORY / "docs" / "examples", package.parent)
    subprocess.run(
        [
            *(sys.executable, "-m", "flows.cli.app", "run", "tiny", "--epochs", "1"),
            *("--root", "root", "--set", "domain.name=tiny_sums"),
            *("--set", "domain.options={terms: 3}", "--set", "tracking.enabled=false"),
        ],
        cwd=tmp_path,
        env=environment(PYTHONPATH=os.pathsep.join(map(str, folders))),
        check=True,
    )
    attempted = "SELECT DISTINCT prompt FROM tasks WHERE choice <> 'not_chosen'"
    tasks = frame(tmp_path / "root", attempted)
    assert len(tasks) == 8 and tasks["prompt"].str.starts_with("sum ").all()
