"""A pytest plugin that writes what came of each test into the file that NOTES names, a line each.

Load it with `-p tests.proof.noting`. A line is a JSON list: node id, outcome, seconds, in the order
in which the phases of the tests end.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

NOTES = "GENENV_TEST_NOTES"


def pytest_configure(config: pytest.Config) -> None:
    """Write from the process that all outcomes reach, not from pytest-xdist's workers as well."""
    path = os.environ.get(NOTES)
    if path and not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Notes(Path(path)))


class _Notes:
    def __init__(self, path: Path) -> None:
        self._path = path

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        line = json.dumps([report.nodeid, report.outcome, round(report.duration, 3)])
        with self._path.open("a", encoding="utf-8") as file:
            file.write(line + "\n")
