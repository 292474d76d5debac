"""`genenv compare`: real runs of two arms, reused, continued after a failure, and judged.

Invariants: the runs are those of `genenv run`, and reused; a second command computes nothing and
says the same; what was spent is what is in the tables; a run that fails costs its seed and nothing
else, the command ends with status 1, and the same command continues; stages that another run
computed are played under the run's own name before they are read; a longer run is not cut.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from flows.comparing import is_played, record
from genenv_core import pools
from genenv_core.config.comparison import Comparison, PlannedRun, planned_runs, read_comparison
from genenv_core.storage.records.runs import RunLog
from genenv_core.storage.store.local import LocalStore
from tests.mutations import mutation
from tests.pipeline.builders import run, tiny
from tests.pipeline.commands import environment, genenv, refused, said
from tests.waiting import until

ASKED = ("compare", "tiny", "--arms", "genenv,base", "--seeds", "2", "--epochs", "1",
         "--set", "tracking.enabled=false")  # fmt: skip


def numbers(text: str) -> dict[str, Any]:
    """Return JSON with nine digits of each number: DuckDB's threads add in any order."""
    return json.loads(text, parse_float=lambda digits: float(f"{float(digits):.9g}"))


def stages_computed(root: Path) -> int:
    rows = pools.frame(str(root), "SELECT count(*) AS n FROM stage_runs WHERE state <> 'cached'")
    return int(rows["n"].item())


def play_alone(root: Path, comparison: Comparison, *left: tuple[str, int]) -> None:
    """Play the runs of a comparison as somebody who starts each of them does, but those `left`."""
    for one in planned_runs(comparison, str(root)):
        if (one.arm, one.seed) not in left:
            run(one.config)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_arms_are_played_once_and_judged_by_what_they_spent(
    begun: Callable[[Path], None], tmp_path: Path
) -> None:
    root, out = tmp_path / "root", tmp_path / "out"
    begun(root)
    asked = (*ASKED, "--root", str(root), "--json")
    settings = {"epochs": 1, "tracking": {"enabled": False}}
    arms = {"arms": ["genenv", "base"], "seeds": [0, 1], "set": settings}
    play_alone(root, read_comparison("tiny", arms), ("base", 1))
    done = said(*asked, "-o", str(out), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    first = numbers(done.stdout)
    computed = stages_computed(root)
    assert [(one["arm"], one["seed"]) for one in first["runs"]] == [
        ("genenv", 0), ("base", 0), ("genenv", 1), ("base", 1),
    ]  # fmt: skip
    for one in first["runs"]:
        own = f"WHERE run_id = '{one['run_id']}'"
        counted = f"(SELECT count(*) FROM traces {own})"
        steps = f"(SELECT sum(grpo_steps + rwr_steps) FROM epochs {own})"
        paid = (
            f"(SELECT sum(prompt_tokens + response_tokens) FROM traces {own}) + "
            "(SELECT sum(env_prompt_tokens + generation_tokens) FROM (SELECT DISTINCT ON "
            f"(generation_id) * FROM tasks {own} AND generation_id IS NOT NULL))"
        )
        found = pools.frame(str(root), f"SELECT {counted} AS r, {steps} AS s, {paid} AS t")
        assert one["spent"] == dict(zip(("rollouts", "steps", "tokens"), found.row(0), strict=True))
        gains = pools.frame(str(root), f"SELECT measure, gain FROM test_gains {own} AND epoch = 1")
        assert one["gains"] == pytest.approx(dict(gains.iter_rows()))
        assert (out / "runs" / f"{one['run_id']}.html").is_file()
    base = [one for one in first["runs"] if one["arm"] == "base"]
    assert all(set(one["gains"].values()) == {0.0} and one["spent"]["steps"] == 0 for one in base)
    assert {verdict["other"] for verdict in first["verdicts"]} == {"base"}
    assert numbers((out / "result.json").read_text()) == first
    assert numbers(said(*asked, cwd=tmp_path).stdout) == first
    assert stages_computed(root) == computed
    alone = said("plan", "tiny", *ASKED[-4:], "--root", str(root), "--json", cwd=tmp_path)
    assert {stage["status"] for stage in json.loads(alone.stdout)["stages"]} == {"hit"}


@mutation(
    "stages of a run of another name count as played", "flows/comparing.py",
    'entry.status == "hit" and noted.keys(entry.epoch).get(entry.stage) == entry.key',
    'entry.status == "hit"',
)  # fmt: skip
@pytest.mark.slow
def test_stages_of_a_run_of_another_name_are_not_yet_a_played_run(
    api: None, tiny_root: Path
) -> None:
    other = tiny(tiny_root, "arm=base", "epochs=1", run_id="compare-other")
    run(other)
    own = PlannedRun("base", 0, other.model_copy(update={"run_id": "compare-own"}))
    assert not is_played(own)
    record(own)
    assert not is_played(own)
    run(own.config)
    assert is_played(own)
    more = own.config.model_copy(update={"epochs": 2})
    assert not is_played(PlannedRun("base", 0, more))


def test_a_run_that_was_played_further_keeps_its_record(tmp_path: Path) -> None:
    config = tiny(tmp_path, "epochs=3", run_id="long")
    record(PlannedRun("genenv", 0, config))
    record(PlannedRun("genenv", 0, config.model_copy(update={"epochs": 1})))
    store = LocalStore(tmp_path)
    assert RunLog(store, "long").info().config["epochs"] == 3
    record(PlannedRun("genenv", 0, config.model_copy(update={"epochs": 4})))
    assert RunLog(store, "long").info().config["epochs"] == 4


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_run_that_fails_costs_its_seed_and_the_same_command_continues(
    begun: Callable[[Path], None], tmp_path: Path
) -> None:
    root = tmp_path / "root"
    begun(root)
    spec = tmp_path / "spec.yaml"
    spec.write_text(
        "base: tiny\nset: {epochs: 1, tracking: {enabled: false}}\nseeds: [0]\narms:\n"
        "  base:\n  broken: {arm: base, rollout: {n: 3}, execution: {test_fault: 'score:1'}}\n"
    )
    play_alone(root, read_comparison(str(spec), {}), ("broken", 0))
    arguments = ("compare", str(spec), "--root", str(root))
    done = genenv(*arguments, cwd=tmp_path, timeout=600, GENENV_TEST_FAULTS="1")
    refused(
        done, 1, "1 of 2 runs did not finish, first broken on seed 0", "test_fault", "continues"
    )
    assert "one other arm takes 6 seeds at least; on 1 nothing will be decided" in done.stdout
    page = next((root / "comparisons").glob("*/index.html")).read_text()
    assert "0 of 1 seeds finished by every arm" in page
    assert "test_fault" in page
    again = said(*arguments, cwd=tmp_path, GENENV_TEST_FAULTS="1")
    assert again.returncode == 0, again.stderr
    assert "base · seed 0: reused" in again.stdout
    assert "broken · seed 0: done" in again.stdout


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_stopped_comparison_leaves_no_run_at_work(
    number: signal.Signals, status: int, tmp_path: Path
) -> None:
    root = tmp_path / "root"
    command = subprocess.Popen(
        [sys.executable, "-m", "flows.cli.app", *ASKED, "--root", str(root)],
        cwd=tmp_path, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    known = psutil.Process(command.pid)

    def both_at_work() -> bool:
        assert command.poll() is None, command.communicate()
        return len({path.parent.parent for path in root.glob("runs/*/attempts/*")}) == 2

    until(both_at_work, 600)
    family = known.children(recursive=True)
    command.send_signal(number)
    _, errors = command.communicate(timeout=120)
    assert command.returncode == status, errors
    _, alive = psutil.wait_procs(family, timeout=30)
    assert not alive
    assert "the same command continues" in errors


def test_wrong_usage_is_told_in_a_line(tmp_path: Path) -> None:
    both = ("compare", "tiny", "--arms", "genenv,random")
    refused(said(*both, cwd=tmp_path), 2, "seeds")
    refused(said("compare", "tiny", cwd=tmp_path), 2, "no arms to compare")
    refused(said(*both, "--seeds", "x", cwd=tmp_path), 2, "--seeds 'x'")
    refused(said(*both, "--seeds", "1", "-o", "/proc/no/c", cwd=tmp_path), 2, "--output /proc/no/c")
