"""What `genenv certify --run RUN --tasks base|test` says about tasks that a run drew.

Invariants: flaws are played as for any set; attempts are those that the run stored, with a verdict,
each once; attempts of a task in an epoch are a group; one attempt says nothing of separating; a
flaw ends the command with status 1; a set without attempts has no checks of them.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import polars as pl
import pytest
from typer.testing import CliRunner, Result

from flows.cli.app import app
from genenv_core.domains.registry import get_domain
from genenv_core.epoch.rows import draft_columns
from genenv_core.errors import ConfigError, GenenvError
from genenv_core.evidence.worth import AttemptedTask, GroupCounts, worth_of
from genenv_core.evidence.written import StoredSet, read_set
from genenv_core.storage.records.runs import RunLog
from genenv_core.storage.sql.catalog import connect
from genenv_core.storage.store.local import LocalStore
from genenv_core.types import TaskDraft, TaskSource
from tests.mutations import mutation
from tests.unit.builders_tables import world
from tests.unit.evidence.test_written import Tables, replaced
from tests.unit.exchange.test_export import stored

WRITTEN = "genenv_core/evidence/written.py"
ATTEMPTED = "genenv_core/evidence/attempted.py"
WORTH = "genenv_core/evidence/worth.py"
COMMAND = "flows/cli/data/certifying/certify_stored.py"
CERTIFY = "flows/cli/data/certify.py"


def arithmetic_world(change: dict[int, TaskDraft] | None = None) -> Tables:
    """Return the small world with a base task and four test tasks of the domain arithmetic.

    `change` has other drafts by place, the base task first.
    """
    domain, given = get_domain("arithmetic"), world()
    drafts = [*domain.base_tasks(0, 1), *domain.heldout_tasks(0, 4)]
    for place, draft in (change or {}).items():
        drafts[place] = draft
    ids = ["e0000-base-000000", *(f"e0000-test-{number:06d}" for number in range(4))]
    for ident, draft in zip(ids, drafts, strict=True):
        given = replaced(given, "tasks", {"task_id": ident}, **draft_columns(draft))
    return given


def read(folder: Path, given: Tables, source: TaskSource, *epochs: int) -> StoredSet:
    folder.mkdir(exist_ok=True)
    with connect([stored(folder / "tables", given)]) as con:
        return read_set(con, "run-a", source, (epochs[0], epochs[-1]) if epochs else None)


def command(folder: Path, monkeypatch: pytest.MonkeyPatch, given: Tables, *words: str) -> Result:
    """Run the command on a root whose run has these tables."""
    config = {"arm": "genenv", "domain": {"name": "arithmetic"}, "seed": 0, "epochs": 2}
    RunLog(LocalStore(folder / "root"), "run-a").open(config, datetime(2026, 11, 1, tzinfo=UTC))
    source = stored(folder / "tables", given)
    monkeypatch.setattr("genenv_core.storage.sql.sources.open_tables", lambda *a: connect([source]))
    root = ["--root", str(folder / "root")]
    return CliRunner().invoke(app, ["certify", "--run", "run-a", *words, *root])


# The base task succeeds in three of four attempts of epoch 1, and of epoch 2.
@mutation(
    "attempts at new tasks count for base tasks",
    WRITTEN,
    "AND t.source = {source}\nORDER BY ALL",
    "ORDER BY ALL",
)
def test_attempts_at_base_tasks_are_those_of_the_rollouts(tmp_path: Path) -> None:
    found = read(tmp_path, world(), TaskSource.BASE, 1, 2)
    assert found.tasks["task_id"].to_list() == ["e0000-base-000000"]
    assert (found.epochs, found.versions, found.lost) == ((1, 2), (0, 1), 0)
    assert (found.scores.height, found.scores["success"].sum()) == (8, 6)
    assert read(tmp_path / "one", world(), TaskSource.BASE, 2).scores.height == 4


def test_lost_attempts_are_counted_apart(tmp_path: Path) -> None:
    where = {"task_id": "e0000-base-000000", "epoch": 2}
    given = replaced(world(), "traces", where, cause="engine", error="away")
    fits = (pl.col("task_id") == where["task_id"]) & (pl.col("epoch") == 2)
    given["scores"] = given["scores"].filter(~fits)
    found = read(tmp_path, given, TaskSource.BASE)
    assert (found.lost, found.scores.height, found.versions) == (4, 4, (0, 0))
    way = {"split": "test", "mode": "sampled", "epoch": 1}
    given = replaced(world(), "evaluation_texts", way, cause="environment", error="away")
    assert read(tmp_path / "test", given, TaskSource.TEST, 0, 2).lost == 4


@mutation(
    "attempts of all versions are one success", WRITTEN,
    "rows = rows.filter(newest)", "rows = rows.filter(True)",
)  # fmt: skip
@mutation(
    "lost attempts of older versions count", WRITTEN,
    "within = f\"x.epoch >= {rows['epoch'].min()}\"", 'within = "true"',
)  # fmt: skip
@mutation(
    "a lost attempt counts again where its evaluation stands", WRITTEN,
    "SELECT DISTINCT x.task_id, x.sample_index, coalesce(measured, x.epoch)",
    "SELECT x.task_id, x.sample_index, coalesce(measured, x.epoch)",
)  # fmt: skip
def test_attempts_of_the_newest_version_count(tmp_path: Path) -> None:
    # Version 2, of epoch 2, solves every test task, and those before it solve none.
    given = replaced(world(), "evaluations", {"mode": "sampled"}, success=False, reward=0.0)
    given = replaced(given, "evaluations", {"epoch": 2}, success=True, reward=1.0)
    found = read(tmp_path, given, TaskSource.TEST)
    assert (found.scores["success"].mean(), found.scores.height) == (1.0, 4)
    assert (found.epochs, found.versions, found.older) == ((2, 2), (2, 2), (0, 1))
    named = read(tmp_path / "named", given, TaskSource.TEST, 0, 2)
    assert named.scores["success"].mean() == pytest.approx(1 / 3)
    assert (named.versions, named.older) == ((0, 2), None)
    first = read(tmp_path / "first", given, TaskSource.TEST, 0)
    assert (first.versions, first.older) == ((0, 0), None)
    way = {"split": "test", "mode": "sampled", "epoch": 1}
    given = replaced(given, "evaluation_texts", way, cause="environment", error="away")
    assert read(tmp_path / "lost", given, TaskSource.TEST).lost == 0
    given = replaced(given, "evaluations", {"epoch": 2}, measured_epoch=1)
    way["epoch"] = 2
    given = replaced(given, "evaluation_texts", way, cause="environment", error="away")
    assert read(tmp_path / "again", given, TaskSource.TEST).lost == 4


# In epochs 0, 1 and 2 each test task has one sampled and one greedy attempt.
@mutation("greedy attempts count with the sampled ones", WRITTEN,
          "AND mode = 'sampled'\nQUALIFY", "\nQUALIFY")  # fmt: skip
@mutation(
    "an evaluation that stands counts again",
    WRITTEN,
    "    PARTITION BY task_id, sample_index, coalesce(measured_epoch, x.epoch) ORDER BY",
    "    PARTITION BY task_id, sample_index, x.epoch ORDER BY",
)
def test_an_evaluation_counts_once_for_the_epoch_that_made_it(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        replaced(world(), "evaluations", {"mode": "greedy"}, sample_index=1),
        TaskSource.TEST, 0, 2,
    )  # fmt: skip
    assert (found.tasks.height, found.scores.height) == (4, 12)
    assert (found.epochs, found.versions) == ((0, 2), (0, 2))
    given = replaced(world(), "evaluations", {"epoch": 2}, measured_epoch=1)
    again = read(tmp_path / "again", given, TaskSource.TEST, 0, 2)
    assert (again.scores.height, again.epochs, again.versions) == (8, (0, 1), (0, 1))
    last = read(tmp_path / "last", given, TaskSource.TEST, 2)
    assert (last.scores.height, last.epochs, last.versions) == (4, (1, 1), (2, 2))


@mutation(
    "attempts of all epochs are one group", ATTEMPTED,
    'of_group.setdefault((row["task_id"], row["epoch"]), [])',
    'of_group.setdefault((row["task_id"], 0), [])',
)  # fmt: skip
def test_the_command_says_what_a_runs_test_tasks_are_worth(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, page = tmp_path / "checks.csv", tmp_path / "page.html"
    words = ("--tasks", "test", "--epochs", "0:2", "-o", str(file), "--page", str(page))
    done = command(tmp_path, monkeypatch, arithmetic_world(), *words)
    assert done.exit_code == 0, done.output
    lines = done.output.splitlines()
    assert lines[0] == (
        "certifies 4 tasks, the test tasks of run-a, with domain arithmetic, version 1"
    )
    assert "4 attempted by pi_agent versions 0 to 2 in epochs 0 to 2: 12 attempts with a " in (
        done.output
    )
    assert "the attempts of versions 0 to 2 together: without --epochs, those of the" in done.output
    assert lines[-1].startswith("no flaw in 4 tasks; of 7 checks of attempts: ")
    rows = {row["check"]: row for row in pl.read_csv(file).to_dicts()}
    assert rows["any_flaw"]["n"] == 4 and rows["floor"]["n"] == 4
    assert rows["headroom"]["estimate"] == 0.75
    assert (rows["separating"]["estimate"], rows["separating"]["n"]) == (0.0, 4)
    assert rows["reachable"]["estimate"] == 1.0  # the domain itself solves them
    assert rows["signal"]["n"] == 0  # a group has one attempt
    assert "nothing to check for signal: no task has two attempts in one epoch" in done.output
    assert "the test tasks of run-a" in page.read_text()

    newest = command(tmp_path, monkeypatch, arithmetic_world(), *words[:2], *words[4:])
    assert "4 attempted by pi_agent version 2 in epoch 2: 4 attempts with a ve" in newest.output
    assert "the newest alone: attempts of versions 0 to 1 do not count, unless --" in newest.output
    assert "version 2 in epoch 2" in page.read_text() and "together" not in newest.output


@mutation("the base tasks are the test tasks", CERTIFY, "return TaskSource(tasks)",
          "return TaskSource.TEST")  # fmt: skip
def test_base_tasks_of_one_epoch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ("--tasks", "base", "--epochs", "2")
    done = command(tmp_path, monkeypatch, arithmetic_world(), *words)
    assert done.exit_code == 0, done.output
    assert "the base tasks of run-a" in done.output
    assert "1 attempted by pi_agent version 1 in epoch 2: 4 attempts with" in done.output
    assert "together" not in done.output


@mutation("a flaw of a stored set is no failure", COMMAND, "    say_sound(run, found, checks)\n",
          "    say_sound(run, [], checks)\n")  # fmt: skip
def test_a_flaw_ends_the_command_with_status_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (sound,) = get_domain("arithmetic").heldout_tasks(0, 1)
    bad = replace(sound, ground_truth=f"{sound.ground_truth}1")
    given = arithmetic_world({1: bad})
    done = command(tmp_path, monkeypatch, given, "--tasks", "test")
    assert isinstance(done.exception, GenenvError) and done.exception.exit_status == 1
    assert str(done.exception) == "run-a: 1 of 4 tasks has a flaw, counted above"
    assert "rejects_ground_truth" in done.output


@mutation("a set that nobody attempted is an error", COMMAND,
          "[] if stored.scores.is_empty() else ", "")  # fmt: skip
def test_a_set_without_attempts_has_flaws_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("--tasks", "base", "--epochs", "0")
    done = command(tmp_path, monkeypatch, arithmetic_world(), *words)
    assert done.exit_code == 0, done.output
    assert "the run stored no attempt with a verdict at them" in done.output
    assert done.output.splitlines()[-1] == "no flaw in 1 task; no checks of attempts"


def test_a_run_without_such_tasks_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = world()
    given["tasks"] = given["tasks"].filter(pl.col("source") != "base")
    done = command(tmp_path, monkeypatch, given, "--tasks", "base")
    assert isinstance(done.exception, ConfigError)
    assert "--run run-a --tasks base: the run has no base tasks" in str(done.exception)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["arithmetic", "--tasks", "test"], "--tasks test is of a run: name one with --run"),
        (["arithmetic", "--tasks", "many"], "--tasks many: expected a number from 0 to 100000"),
        (["arithmetic", "--tasks", "100001"], "--tasks 100001: expected a number"),
        (["arithmetic", "--tasks", "-1"], "--tasks -1: expected a number"),
        (["--run", "r", "--tasks", "5"], "--tasks base and --tasks test name other tasks"),
        (["--run", "r", "--tasks", "base", "--model", "m"], "--model m does nothing with --run"),
    ],
)
def test_sets_that_do_not_fit_are_refused(words: list[str], said: str) -> None:
    done = CliRunner().invoke(app, ["certify", *words])
    assert isinstance(done.exception, ConfigError) and said in str(done.exception)


@mutation("one attempt counts as not separating", WORTH,
          "several = [one for one in tasks if one.n > 1]", "several = list(tasks)")  # fmt: skip
def test_one_attempt_says_nothing_of_separating() -> None:
    tasks = [AttemptedTask(1, 1, True, 0.0)] * 3 + [AttemptedTask(2, 1, True, 0.0)]
    checks = {check.name: check for check in worth_of(tasks, GroupCounts(0, 0, 0.0), (0, 4))}
    assert (checks["separating"].n, checks["separating"].estimate) == (1, 1.0)
