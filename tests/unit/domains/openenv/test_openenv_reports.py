"""A report of `genenv certify FOLDER --report`, in the hands of openenv itself.

Invariants: openenv's own model takes it, gives the same digest of the folder and the same manifest,
and its policy comes to the same verdict; each check that its local lane has for these levels is
in it, but those of packages with a rubric tree.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from flows.cli.app import app
from genenv_core.evidence.attempted import check_rows, played_flaws
from genenv_core.evidence.worth import AttemptedTask, GroupCounts, worth_of
from genenv_core.exchange.environments.reading import read_folder
from genenv_core.play.checking.elsewhere.folder import folder_domain
from genenv_core.play.checking.openenv_report import (
    ATTEMPTED,
    GAMEABILITY,
    STATISTICAL,
    openenv_report,
)
from tests.unit.domains.openenv.real import python
from tests.unit.exchange.test_environments import given_away, with_config

pytestmark = pytest.mark.slow

ASKS = """
import json, sys
from pathlib import Path
from openenv.validation.parsers.openenv_yaml import OpenEnvYamlParser
from openenv.validation.policy import apply_policy, load_policy
from openenv.validation.report import ValidationReportV2
from openenv.validation.runner import source_digest
from openenv.validation.types import Lane
file, folder = map(Path, sys.argv[1:])
report = ValidationReportV2.model_validate_json(file.read_text())
policy = load_policy(report.policy_version)
local = {name for name, one in policy.entries_for_lane(Lane.LOCAL).items() if one.level in (2, 3)}
print(json.dumps({
    "verdict": apply_policy(report.results, policy, report.lane) == report.verdict,
    "digest": source_digest(folder) == report.source_digest,
    "manifest": OpenEnvYamlParser().parse(folder) == report.manifest,
    "statistical": {name: one.level for name, one in policy.entries_for_lane(Lane.HUB).items()
                    if name.startswith("statistical.")},
    "reported": {one.check_id: one.status for one in report.results
                 if one.check_id.startswith("statistical.")},
    "severe": all(policy.entries_for_lane(Lane.LOCAL)[one.check_id].severity == "fail"
                  for one in report.results if one.status == "fail"
                  and not one.check_id.startswith("statistical.")),
    "missing": sorted(local - {one.check_id for one in report.results}),
}))
"""


def test_openenv_takes_the_report(tmp_path: Path) -> None:
    folder = given_away(tmp_path, "openenv", with_config({"name": "desk"}))[0]
    file = tmp_path / "report.json"
    done = CliRunner().invoke(app, ["certify", str(folder), "--report", str(file)])
    assert done.exit_code == 0, done.output
    found = asked_of_openenv(file, folder)
    assert found.pop("statistical") and found.pop("reported") == {}
    assert found == {
        **dict.fromkeys(("verdict", "digest", "manifest", "severe"), True),
        "missing": ["runtime.reward_attribution", "runtime.rubric_introspectable"],
    }


def test_openenv_takes_the_statistical_checks_in_the_lane_of_operators(tmp_path: Path) -> None:
    folder = given_away(tmp_path, "openenv", with_config({"name": "desk"}))[0]
    given = read_folder(folder)
    with folder_domain(folder, given.package) as domain:
        found = played_flaws(domain, given.tasks)
    every = [AttemptedTask(8, 3 + place % 3, True, 0.0) for place in range(200)]
    checks = worth_of(every, GroupCounts(200, 200, 0.5), (0, 200))
    file = tmp_path / "report.json"
    report = openenv_report(folder, found, 1.0, check_rows([], checks))
    file.write_text(json.dumps(report))
    said = asked_of_openenv(file, folder)
    assert said["verdict"] and said["digest"] and said["manifest"] and said["severe"]
    assert set(said["statistical"]) == set(said["reported"]) == {*ATTEMPTED.values(), GAMEABILITY}
    assert set(said["statistical"].values()) == {STATISTICAL} == {report["levels_run"][-1]}
    assert said["reported"][GAMEABILITY] == "skip"
    assert said["reported"]["statistical.difficulty_separation"] == "pass"


def asked_of_openenv(file: Path, folder: Path) -> dict[str, Any]:
    """Return what openenv makes of a report."""
    asked = subprocess.run(
        [python(), "-c", ASKS, file, folder], capture_output=True, text=True, check=False
    )
    assert asked.returncode == 0, asked.stderr
    return json.loads(asked.stdout)
