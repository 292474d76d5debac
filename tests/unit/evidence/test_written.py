"""What `genenv certify --run` says about the tasks that pi_env wrote.

Invariants: a task that may be attempted counts, a refused text does not; each number is that of the
stored rows; what the attempted tasks leave out is said; a flaw ends the command with status 1, a
failed check of attempts does not; what would do nothing is refused; rows of all checks are written.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from typer.testing import CliRunner, Result

from flows.cli.app import app
from flows.cli.data.certifying import certify_run
from genenv_core.errors import ConfigError, GenenvError
from genenv_core.evidence.worth import AttemptedTask, GroupCounts, Worth, worth_of
from genenv_core.evidence.written import WrittenTasks, read_written
from genenv_core.play.checking.sets import FlawCount
from genenv_core.storage.sql.catalog import connect
from genenv_core.types import Flaw
from tests.mutations import mutation
from tests.unit.builders_root import small_root
from tests.unit.builders_tables import world
from tests.unit.exchange.test_export import stored

WRITTEN = "genenv_core/evidence/written.py"
COMMAND = "flows/cli/data/certifying/certify_run.py"
Tables = dict[str, pl.DataFrame]


def replaced(given: Tables, table: str, where: dict[str, Any], **values: Any) -> Tables:
    """Return the tables with other values in the rows of one that fit."""
    fits = pl.all_horizontal(pl.col(name) == value for name, value in where.items())
    frame = given[table]
    columns = [
        pl.when(fits).then(pl.lit(value, frame.schema[name])).otherwise(pl.col(name)).alias(name)
        for name, value in values.items()
    ]
    return given | {table: frame.with_columns(columns)}


def read(
    folder: Path, given: Tables | None = None, epochs: tuple[int, int] | None = None
) -> WrittenTasks:
    with connect([stored(folder / "tables", given or world())]) as con:
        found = read_written(con, "run-a", epochs)
    assert found is not None
    return found


def command(root: Path, *words: str) -> Result:
    return CliRunner().invoke(app, ["certify", "--run", "run-a", "--root", str(root), *words])


# In each epoch three valid tasks with 0, 1 and 2 of 4, a rejected text, and a base task.
def test_the_small_world_by_hand(tmp_path: Path) -> None:
    found = read(tmp_path)
    assert (found.domain, found.epochs, found.versions) == ("desk", (1, 2), (0, 1))
    assert (found.written, found.attempted, found.attempts) == (6, 6, 24)
    assert (found.predicted, found.not_chosen, found.lost) == (0, 0, 0)
    assert [(c.flaw, c.checked, c.having) for c in found.flaws] == [
        *((flaw, 6, 0) for flaw in Flaw), (None, 6, 0),
    ]  # fmt: skip
    checks = {check.name: check for check in found.checks}
    estimates = {name: check.estimate for name, check in checks.items()}
    # Rates 0, 1/4, 1/2 twice: sample variance 1/20, noise (0 + 1/16 + 1/12) / 3 = 7/144; so
    # between 1/720, within 7/36 = 140/720.
    assert estimates == {
        "reachable": 1.0, "separating": pytest.approx(4 / 6), "headroom": 0.75,
        "variance": pytest.approx(1 / 141), "signal": pytest.approx(4 / 6), "floor": 0.0,
        "chance": None,
    }  # fmt: skip
    assert {name: check.n for name, check in checks.items()} == dict.fromkeys(checks, 6) | {
        "chance": 0
    }
    # (0 + sqrt(3)/4 + 1/2) / 3
    assert checks["signal"].fact == "standard deviation of rewards 0.31 on average"


def test_epochs_are_those_that_wrote_the_tasks(tmp_path: Path) -> None:
    found = read(tmp_path, epochs=(2, 5))
    assert (found.epochs, found.written, found.attempts) == ((2, 2), 3, 12)
    assert found.versions == (1, 1)
    with connect([stored(tmp_path / "again", world())]) as con:
        assert read_written(con, "run-a", (3, 9)) is None


@mutation("a refused text counts as a task", WRITTEN,
          "AND t.source = 'generated' AND t.valid\"", "AND t.source = 'generated'\"")  # fmt: skip
def test_refused_texts_and_attempts_without_a_verdict_do_not_count(tmp_path: Path) -> None:
    gone = {"task_id": "e0001-t000001"}
    why = {
        "valid": False,
        "rejection": "leaks_answer",
        "rejection_detail": "says 8",
        "choice": None,
    }
    given = replaced(world(), "tasks", gone, **why)
    leak = gone | {"flaw": "leaks_answer"}
    given = replaced(given, "certificates", leak, passed=False, detail="says 8")
    for table in ("traces", "scores", "task_scores"):
        given[table] = given[table].filter(pl.col("task_id") != gone["task_id"])
    lost = {"task_id": "e0002-t000002"}
    given = replaced(given, "traces", lost, cause="environment", error="server away")
    for table in ("scores", "task_scores"):
        given[table] = given[table].filter(pl.col("task_id") != lost["task_id"])
    found = read(tmp_path, given)
    assert found.refused == {"leaks_answer": 1} and found.flawed == 0
    assert (found.written, found.attempted, found.attempts, found.lost) == (5, 4, 16, 4)
    assert {c.name: c.n for c in found.checks}["signal"] == 4
    assert {c.name: c.n for c in found.checks}["floor"] == 5


def test_trivial_and_senseless_answers_count_a_task_once(tmp_path: Path) -> None:
    given = world()
    for task, flaw in (("t000000", "accepts_trivial"), ("t000000", "accepts_canary"),
                       ("t000002", "accepts_canary"), ("t000001", "ambiguous")):  # fmt: skip
        where = {"task_id": f"e0001-{task}", "flaw": flaw}
        given = replaced(given, "certificates", where, passed=False, detail=f"{task} has it")
    found = read(tmp_path, given)
    floor = {c.name: c for c in found.checks}["floor"]
    assert floor.estimate == pytest.approx(2 / 6) and floor.worth is Worth.FAIL
    counts = {count.flaw: count for count in found.flaws}
    assert found.flawed == counts[None].having == 3
    canary = counts[Flaw.ACCEPTS_CANARY]
    assert (canary.having, canary.detail, canary.prompt) == (2, "t000000 has it", "Receive bolts.")


def test_chances_and_a_task_that_the_domain_alone_solves(tmp_path: Path) -> None:
    given = replaced(world(), "tasks", {"valid": True}, chance=0.25)
    for epoch in (1, 2):
        where = {"task_id": f"e{epoch:04d}-t000000", "flaw": "unreachable"}
        given = replaced(given, "certificates", where, passed=epoch == 1)
    checks = {check.name: check for check in read(tmp_path, given).checks}
    assert checks["reachable"].estimate == pytest.approx(5 / 6)
    assert checks["chance"].estimate == 0.0 and checks["chance"].n == 6


def test_a_run_without_certificates_says_so(tmp_path: Path, capsys: Any) -> None:
    given = world()
    given["certificates"] = given["certificates"].clear()
    found = read(tmp_path, given)
    assert found.flaws == [] and found.flawed == 0
    checks = {check.name: check for check in found.checks}
    assert checks["floor"].worth is Worth.UNSURE
    assert checks["reachable"].estimate == pytest.approx(4 / 6)
    certify_run._show("run-a", found)
    assert "flaws: the run has no certificates" in capsys.readouterr().out


@mutation("the choice of tasks goes unsaid", COMMAND, "    if found.predicted:", "    if False:")
def test_what_the_attempted_tasks_leave_out_is_said(tmp_path: Path, capsys: Any) -> None:
    given = replaced(world(), "tasks", {"task_id": "e0002-t000001"}, choice="predicted")
    given = replaced(
        given, "tasks", {"task_id": "e0002-t000000"}, choice="reserve", reserve_place=3
    )
    for table in ("traces", "scores", "task_scores"):
        given[table] = given[table].filter(
            ~pl.col("task_id").is_in(["e0002-t000000", "e0002-t000002"])
        )
    certify_run._show("run-a", read(tmp_path, given))
    lines = capsys.readouterr().out.splitlines()
    assert lines[:4] == [
        "6 tasks of domain desk that pi_env wrote in run-a, epochs 1 to 2",
        "4 attempted by pi_agent versions 0 to 1: 16 attempts with a verdict",
        "2 tasks never attempted, 1 of them chosen and without a verdict: of these, only "
        "certificates count",
        "no random sample: 1 of the 4 attempted were chosen for a predicted success near alpha "
        "(generation.candidates)",
    ]


def test_the_command_prints_and_writes_all_checks(tmp_path: Path) -> None:
    small_root(tmp_path / "root")
    file = tmp_path / "checks.csv"
    done = command(tmp_path / "root", "-o", str(file))
    assert done.exit_code == 0, done.output
    lines = {line.split("  ")[0]: line.split() for line in done.output.splitlines() if line}
    assert lines["any of them"][3:6] == ["6", "0", "0.0%"]
    assert lines["headroom"][1] == "75.0%" and "pass" in lines["headroom"]
    assert done.output.splitlines()[-1].startswith("no flaw in 6 tasks; of 7 checks of attempts: ")
    rows = pl.read_csv(file)
    assert rows["check"].to_list() == [
        *(flaw.value for flaw in Flaw), "any_flaw",
        "reachable", "separating", "headroom", "variance", "signal", "floor", "chance",
    ]  # fmt: skip
    (head,) = rows.filter(pl.col("check") == "headroom").to_dicts()
    assert head["estimate"] == 0.75 and head["verdict"] == "pass" and head["unit"] == "tasks"
    assert "3 tasks of domain" in command(tmp_path / "root", "--epochs", "2").output


@mutation(
    "a flaw of pi_env's tasks is no failure", COMMAND,
    "check_sound(run, found.flawed,", "check_sound(run, 0,",
)  # fmt: skip
def test_flaws_end_the_command_with_status_1_and_failed_checks_do_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    never = [AttemptedTask(4, 0, False, 0.0)] * 20
    failed = WrittenTasks(
        domain="desk", epochs=(1, 1), written=20, attempted=20, attempts=80, predicted=0,
        not_chosen=0, lost=7, by_chance=2, versions=(0, 0), refused={"ambiguous": 3}, flaws=[],
        checks=worth_of(never, GroupCounts(20, 0, 0.0), (0, 20)),
    )  # fmt: skip
    flaws = [FlawCount(Flaw.AMBIGUOUS, 20, 1, 0.0, 0.2, "luck", "Ship."),
             FlawCount(None, 20, 1, 0.0, 0.2)]  # fmt: skip
    monkeypatch.setattr(certify_run, "existing", lambda root: None)
    monkeypatch.setattr("genenv_core.storage.sql.sources.open_tables", lambda *a: nullcontext())
    for found, status in ((failed, 0), (replace(failed, flaws=flaws), 1)):
        monkeypatch.setattr(
            "genenv_core.evidence.written.read_written", lambda *a, found=found: found
        )
        done = command(Path("root"))
        assert "separating: most tasks are always or never solved" in done.output
        assert "not counted below: ambiguous 3" in done.output
        assert "7 attempts were lost by no fault of the agent" in done.output
        assert "in 2 tasks one and the same text succeeded and failed" in done.output
        assert done.exit_code == status
    assert isinstance(done.exception, GenenvError) and done.exception.exit_status == 1
    assert str(done.exception) == "run-a: 1 of 20 tasks has a flaw, counted above"
    assert "ambiguous: episode" in done.output and "luck" in done.output
    assert "not checked: leaks_answer, rejects_ground_truth" in done.output


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["desk", "--run", "r"],
            "desk and --run r: name a domain or a folder for its own tasks, o",
        ),
        ([], "name a domain, a folder of genenv export, or a run with --run"),
        (["--run", "r", "--tasks", "5"], "--tasks does nothing with --run"),
        (["--run", "r", "--heldout", "0"], "--heldout does nothing with --run"),
        (["--run", "r", "--set", "seed=1"], "--set does nothing with --run"),
        (["--run", "r", "--epochs", "3:1"], "--epochs '3:1': expected first:last such as 3:8"),
        (["--run", "r", "--epochs", "x"], "--epochs 'x': expected first:last such as 3:8"),
        (["desk", "--epochs", "1"], "--epochs 1 works with --run alone"),
        (["--run", "r", "--format", "csv"], "name one with -o"),
    ],
)
def test_words_that_do_nothing_are_refused(words: list[str], said: str) -> None:
    done = CliRunner().invoke(app, ["certify", *words])
    assert isinstance(done.exception, ConfigError) and said in str(done.exception)


def test_a_run_without_tasks_of_pi_env_is_refused(tmp_path: Path) -> None:
    small_root(tmp_path / "root")
    done = command(tmp_path / "root", "--epochs", "7")
    assert isinstance(done.exception, ConfigError)
    assert "pi_env wrote no task in epoch 7 that may be attempted" in str(done.exception)
