"""A report of `genenv certify FOLDER --report`, in the hands of openenv itself.

Invariants: openenv's own model takes it, gives the same digest of the folder and the same manifest,
and its policy comes to the same verdict; each check that its local lane has for these levels is
in it, but those of packages with a rubric tree.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner

from flows.cli.app import app
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
    "verdict": apply_policy(report.results, policy, Lane.LOCAL) == report.verdict,
    "digest": source_digest(folder) == report.source_digest,
    "manifest": OpenEnvYamlParser().parse(folder) == report.manifest,
    "severe": all(policy.entries_for_lane(Lane.LOCAL)[one.check_id].severity == "fail"
                  for one in report.results if one.status == "fail"),
    "missing": sorted(local - {one.check_id for one in report.results}),
}))
"""


def test_openenv_takes_the_report(tmp_path: Path) -> None:
    folder = given_away(tmp_path, "openenv", with_config({"name": "desk"}))[0]
    file = tmp_path / "report.json"
    done = CliRunner().invoke(app, ["certify", str(folder), "--report", str(file)])
    assert done.exit_code == 0, done.output
    asked = subprocess.run(
        [python(), "-c", ASKS, file, folder], capture_output=True, text=True, check=False
    )
    assert asked.returncode == 0, asked.stderr
    assert json.loads(asked.stdout) == {
        **dict.fromkeys(("verdict", "digest", "manifest", "severe"), True),
        "missing": ["runtime.reward_attribution", "runtime.rubric_introspectable"],
    }
