"""The certificate of an exported folder as a report of OpenEnv's RFC 008.

Invariants: each flaw of a check fails it, with the task and what to do; what nobody looked for is
skipped with its reason; a package without an oracle fails; what a folder does otherwise each time
skips all that depends on it; the digest is of every file; no other set of tasks gets a report. That
openenv itself takes the report is in `tests/unit/domains/openenv/test_openenv_reports.py`.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from flows.cli.app import app
from genenv_core.errors import ConfigError, DataError
from genenv_core.evidence.attempted import check_rows
from genenv_core.evidence.worth import AttemptedTask, GroupCounts, worth_of
from genenv_core.play.certificate import Check
from genenv_core.play.checking.openenv_report import (
    MEASURED,
    SKIPPED,
    manifest_of,
    openenv_report,
    source_digest,
)
from genenv_core.play.checking.probing import NOTHING, Judged, TaskProbe
from genenv_core.play.checking.set_flaws import AnyFlaw, SetCheck, SetFlaw
from genenv_core.play.checking.sets import FLAWS, CertifiedTask, SetTask
from genenv_core.types import Flaw, TaskDraft
from tests.mutations import mutation
from tests.unit.exchange.test_environments import PACKAGE, given_away, with_config

REPORT = "genenv_core/play/checking/openenv_report.py"
ORACLE = "\n  capabilities:\n    oracle: {form: script, location: solve.sh}"
DECLARED = """name: sums
validation:
  reward: {range: [0, 2], floor_margin: 0.5}
  resources: {cpu: 1}
  types: {tags: [sums]}"""


def package(folder: Path, text: str = DECLARED + ORACLE) -> Path:
    (folder / "openenv.yaml").write_text(text)
    return folder


def task(number: int, *flaws: AnyFlaw, floor: float | None = 0.0, without: Any = ()) -> Any:
    """Return a certified task that has these flaws, and was not checked for others."""
    draft = TaskDraft(f"task {number}", {}, "1", "1", "sums", 1.0, f"sum {number}")
    checks = [
        (Check if isinstance(flaw, Flaw) else SetCheck)(flaw, "bad" if flaw in flaws else "")  # type: ignore[arg-type]
        for flaw in FLAWS
        if flaw not in without
    ]
    first = TaskProbe({NOTHING: Judged("", reward=floor)})
    return CertifiedTask(SetTask("generated", draft), tuple(checks), first)


def results(folder: Path, *tasks: CertifiedTask) -> dict[str, Any]:
    report = openenv_report(folder, tasks, 2.5)
    return {one["check_id"]: one for one in report["results"]} | {"verdict": report["verdict"]}


def test_sound_tasks_pass_what_was_looked_for(tmp_path: Path) -> None:
    found = results(package(tmp_path), task(1), task(2))
    assert {name: found[name]["status"] for name in MEASURED} == dict.fromkeys(MEASURED, "pass")
    assert {name: found[name]["status"] for name in SKIPPED} == dict.fromkeys(SKIPPED, "skip")
    assert all(found[name]["evidence"] for name in (*MEASURED, *SKIPPED))
    assert found["semantic.oracle_max"]["measured"] == {"tasks_checked": 2, "tasks_failing": 0}
    assert found["semantic.oracle_max"]["duration_s"] == 2.5
    # Nothing failed; what is skipped is a warning, by policy v2.
    assert found["verdict"] == "warn"


@mutation("a flaw passes its check", REPORT, '"status": "fail" if wrong else "pass"',
          '"status": "pass"')  # fmt: skip
@pytest.mark.parametrize("name", [name for name in MEASURED if "determinism" not in name])
def test_each_flaw_fails_its_check(name: str, tmp_path: Path) -> None:
    for flaw in MEASURED[name]:
        found = results(package(tmp_path), task(1), task(2, flaw), task(3, flaw))
        assert [one for one in MEASURED if found[one]["status"] == "fail"] == [name]
        assert found[name]["evidence"][:2] == [
            f"{flaw}: bad (task sum 2)", f"{flaw}: bad (task sum 3)",
        ]  # fmt: skip
        assert found[name]["measured"]["tasks_failing"] == 2 and found[name]["remediation"]
        assert found["verdict"] == "fail"


@mutation("no oracle passes", REPORT, '.get("oracle") is None', '.get("oracle") == 0')
def test_a_package_without_an_oracle_fails(tmp_path: Path) -> None:
    found = results(package(tmp_path, DECLARED + "\n  capabilities: {}"), task(1))
    assert found["semantic.oracle_max"]["status"] == "fail" and found["verdict"] == "fail"
    assert "declares no oracle" in found["semantic.oracle_max"]["evidence"][0]


@mutation("the floor is not measured", REPORT, "if most - floor < margin:", "if False:")
def test_an_empty_answer_that_earns_too_much_fails(tmp_path: Path) -> None:
    found = results(package(tmp_path), task(1, floor=0.25), task(2, floor=None))
    assert found["semantic.floor_gap"]["status"] == "pass"
    assert found["semantic.floor_gap"]["measured"]["measured_floor"] == 0.25
    found = results(package(tmp_path), task(1, floor=0.25), task(2, floor=1.75))
    assert found["semantic.floor_gap"]["status"] == "fail"
    assert found["semantic.floor_gap"]["evidence"][0] == (
        "an empty answer earns 1.75; the gap to 2 is below 0.5"
    )


@mutation("what depends on determinism is judged without", REPORT, "if not steady:", "if False:")
@pytest.mark.parametrize("without", [(), (SetFlaw.UNREPEATABLE,)])
def test_semantics_depend_on_determinism(tmp_path: Path, without: Any) -> None:
    flaws = () if without else (SetFlaw.UNREPEATABLE,)
    found = results(package(tmp_path), task(1, *flaws, without=without))
    semantic = [name for name in MEASURED if name.startswith("semantic.")]
    assert {found[name]["status"] for name in semantic} == {"skip"}
    assert found["semantic.oracle_max"]["evidence"] == [
        "unmet dependency: runtime.episode_determinism"
    ]
    assert found["runtime.episode_determinism"]["status"] == ("skip" if without else "fail")


def test_what_no_task_was_checked_for_is_skipped(tmp_path: Path) -> None:
    leaks = (Flaw.LEAKS_ANSWER, Flaw.LEAKS_EARLY)
    found = results(package(tmp_path), task(1, without=leaks))
    assert found["semantic.no_solution_leakage"]["evidence"] == [
        "unmet dependency: no task can be checked for it"
    ]


@mutation("a file counts without its name", REPORT, 'name.encode() + b"\\0"', 'b"\\0"')
@mutation("outputs count in the digest", REPORT, '".worktrees", "outputs"', '".worktrees"')
def test_the_digest_is_of_every_file(tmp_path: Path) -> None:
    for name in ("b.txt", "a/c.txt", "outputs/x.txt", "a/__pycache__/c.pyc"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name[0])
    by_hand = hashlib.sha256(b"a/c.txt\0a\0b.txt\0b\0").hexdigest()
    assert source_digest(tmp_path) == by_hand


def test_the_manifest_is_what_the_package_declares(tmp_path: Path) -> None:
    found = manifest_of(package(tmp_path))
    assert (found["manifest_schema_version"], found["name"], found["version"]) == (
        "1", "sums", None,
    )  # fmt: skip
    assert found["reward"] == {"range": [0, 2], "floor_margin": 0.5} and "network" not in found
    more = package(tmp_path, DECLARED + ORACLE + "\n  execution: {kind: openenv_ws}")
    assert manifest_of(more)["manifest_schema_version"] == "2"
    for text, said in (
        ("a: [", "cannot be read"),
        ("name: x", "has no section `validation`"),
        (DECLARED, "validation.capabilities is missing"),
        (DECLARED.replace(", floor_margin: 0.5", "") + ORACLE, "floor_margin is missing"),
    ):
        with pytest.raises(DataError, match=said):
            manifest_of(package(tmp_path, text))


def command(*words: str | Path) -> Result:
    return CliRunner().invoke(app, ["certify", *map(str, words)])


def test_the_command_writes_the_report_of_a_folder(tmp_path: Path) -> None:
    folder = given_away(tmp_path, "openenv", with_config({"name": "desk"}))[0]
    file = tmp_path / "report.json"
    done = command(folder, "--report", file)
    assert done.exit_code == 0, done.output
    report = json.loads(file.read_text())
    assert report["target"] == str(folder) and report["manifest"]["name"] == PACKAGE
    assert report["results"][0]["measured"] == {"tasks_checked": 6, "tasks_failing": 0}
    assert (report["signature"], report["lane"]) == ("openenv.yaml", "local")
    # The folder brings its oracle, so that nothing fails; what is skipped is a warning.
    assert report["verdict"] == "warn"
    (folder / "openenv.yaml").unlink()
    done = command(folder, "--report", file)
    assert isinstance(done.exception, ConfigError)
    assert "a report of RFC 008 is of a package of OpenEnv" in str(done.exception)


@pytest.mark.parametrize("words", [["arithmetic"], ["--run", "x"]])
def test_no_other_set_of_tasks_gets_a_report(words: list[str]) -> None:
    done = command(*words, "--report", "r.json")
    assert isinstance(done.exception, ConfigError)
    assert "genenv export RUN --format openenv, and certify its folder" in str(done.exception)


@mutation("a hub check that warns fails a report", REPORT, "failed.difference(WARNS)", "failed")
@mutation(
    "what attempts cannot say passes", REPORT, 'if row["verdict"] == "cannot say":', "if False:"
)
def test_attempts_make_a_report_of_operators(tmp_path: Path) -> None:
    """Flat: every attempt at 200 tasks succeeds, which warns; at 3 tasks nobody can say."""
    folder, sound = package(tmp_path), [task(1), task(2)]

    def reported(successes: int, tasks: int) -> dict[str, Any]:
        every = [AttemptedTask(8, successes, True, 0.0)] * tasks
        checks = worth_of(every, GroupCounts(tasks, tasks, 0.5), (0, tasks))
        return openenv_report(folder, sound, 2.5, check_rows([], checks))

    local = openenv_report(folder, sound, 2.5)
    assert local["lane"] == "local" and local["levels_run"] == [2, 3]
    good, few, solved = reported(4, 200), reported(4, 3), reported(8, 200)
    assert good["lane"] == "hub" and good["levels_run"] == [2, 3, 4]

    def statuses(report: Any) -> dict[str, str]:
        level = "statistical."
        every = {one["check_id"]: one["status"] for one in report["results"]}
        return {name.removeprefix(level): s for name, s in every.items() if name.startswith(level)}

    assert statuses(few) == {**dict.fromkeys(statuses(good), "skip"), "headroom": "pass"}
    assert statuses(good)["headroom"] == statuses(good)["training_signal"] == "pass"
    assert statuses(solved)["headroom"] == "fail"
    assert solved["verdict"] == "fail"  # it separates nothing
    rows = [row for row in check_rows([], worth_of(
        [AttemptedTask(8, 8, True, 0.0)] * 200, GroupCounts(200, 200, 0.5), (0, 200)
    )) if row["check"] == "headroom"]  # fmt: skip
    assert openenv_report(folder, sound, 2.5, rows)["verdict"] == "warn"
