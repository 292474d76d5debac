"""Whether a task set is worth training on, from a model's fresh attempts at it.

Invariants: sets that are planted get the verdicts that their kind names, by the checks of stored
runs; a group of one verdict says nothing of rewards; a model without any verdict is an error; what
the tables hold gives the same certificate back; options that do nothing are refused.
"""

from __future__ import annotations

import io
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from rich.console import Console
from typer.testing import CliRunner

from flows.cli.app import app
from flows.cli.data.certifying.check_table import (
    WITHOUT_TASKS,
    check_table,
    counted_checks,
    said_of,
)
from flows.cli.data.certifying.flaw_table import flaw_table
from flows.shown.tables import certified_line
from genenv_core.benchmarks.measuring.request import MeasuringOptions, certification
from genenv_core.config.schema import RunConfig
from genenv_core.domains.registry import get_domain
from genenv_core.epoch.rows import frame
from genenv_core.errors import ConfigError, EngineError
from genenv_core.evidence.attempted import (
    ANY_FLAW,
    first_of_sets,
    flaw_frame,
    played_flaws,
    set_checks_frame,
    set_frame,
    stored_checks,
    stored_flaws,
    tasks_of_sets,
    worth_of_attempts,
)
from genenv_core.evidence.worth import RULES, AttemptedTask, GroupCounts, worth_of
from genenv_core.play.certificate import Check
from genenv_core.play.checking.sets import CertifiedTask, SetTask, counted
from genenv_core.types import Flaw, TaskDraft
from tests.mutations import mutation

ATTEMPTED = "genenv_core/evidence/attempted.py"
N = 8


def task(number: int, *flaws: Flaw) -> CertifiedTask:
    """Return a task that its domain solves, with these flaws."""
    draft = TaskDraft(f"What is {number}?", {}, str(number), str(number), "n", 1.0, f"n {number}")
    looked = (Flaw.ACCEPTS_TRIVIAL, Flaw.ACCEPTS_CANARY, Flaw.UNREACHABLE)
    checks = tuple(Check(flaw, "it has it" if flaw in flaws else "") for flaw in looked)
    return CertifiedTask(SetTask("base", draft), checks)


def ids(found: Sequence[CertifiedTask]) -> list[str]:
    return [f"e0000-x-{place:06d}" for place in range(len(found))]


def scores(outcomes: Sequence[Sequence[tuple[float, bool]]]) -> pl.DataFrame:
    """Return the rows of each task's attempts, as (reward, success)."""
    return frame(
        "scores",
        [
            {
                "trace_id": f"e0000-x-{place:06d}.{sample}",
                "epoch": 0,
                "task_id": f"e0000-x-{place:06d}",
                "group_id": f"e0000-x-{place:06d}",
                "reward": reward,
                "success": success,
                "failure": "" if success else "wrong",
            }
            for place, of_task in enumerate(outcomes)
            for sample, (reward, success) in enumerate(of_task)
        ],
    )


def of_counts(successes: Sequence[int], n: int = N) -> pl.DataFrame:
    return scores([[(float(at < k), at < k) for at in range(n)] for k in successes])


def luck(tasks: int) -> pl.DataFrame:
    rng = random.Random(3)
    won = [[rng.random() < 0.5 for _ in range(N)] for _ in range(tasks)]
    return scores([[(float(one), one) for one in of] for of in won])


def spread(tasks: int) -> list[int]:
    return [(1, 4, 7)[place % 3] for place in range(tasks)]


PLANTED = {
    # Nobody solves them but the domain itself.
    "none solved": (90, of_counts([0] * 90), "pass fail pass cannot fail pass fail"),
    "all solved": (90, of_counts([N] * 90), "pass fail fail cannot fail pass pass"),
    # Every task is a coin toss: nothing lies between the tasks.
    "luck alone": (1500, luck(1500), "pass pass pass fail pass pass pass"),
    # A half-right answer each time: neither outcomes nor rewards differ.
    "flat rewards": (
        90, scores([[(0.5, False)] * N] * 90), "pass fail pass cannot fail pass fail",
    ),
    "good": (90, of_counts(spread(90)), "pass pass pass pass pass pass pass"),
}  # fmt: skip
"""By kind: tasks, verdicts, and what the seven checks come to, in their order."""


@mutation(
    "groups of equal rewards give a signal", ATTEMPTED,
    "sum(not zero_signal(of) for of in rewards)", "len(rewards)",
)  # fmt: skip
@mutation(
    "what the domain solves is not reachable", ATTEMPTED,
    "solved = successes > 0 or _domain_solves(one)", "solved = successes > 0",
)  # fmt: skip
@pytest.mark.parametrize("kind", PLANTED)
def test_a_planted_set_has_the_verdicts_of_its_kind(kind: str) -> None:
    count, verdicts, wanted = PLANTED[kind]
    found = [task(number) for number in range(count)]
    checks = worth_of_attempts(found, ids(found), verdicts)
    assert [check.worth.value.partition(" ")[0] for check in checks] == wanted.split()
    assert all(check.n == count for check in checks)


@mutation(
    "what accepts a canary is no floor", ATTEMPTED,
    "FLOORS = (Flaw.ACCEPTS_TRIVIAL, Flaw.ACCEPTS_CANARY)", "FLOORS = (Flaw.ACCEPTS_TRIVIAL,)",
)  # fmt: skip
def test_the_floor_counts_tasks_that_a_senseless_answer_solves_once() -> None:
    found = [
        task(0, Flaw.ACCEPTS_TRIVIAL, Flaw.ACCEPTS_CANARY),
        task(1, Flaw.ACCEPTS_CANARY),
        task(2, Flaw.UNREACHABLE),
        task(3),
    ]
    checks = {c.name: c for c in worth_of_attempts(found, ids(found), of_counts([0, 0, 0, 1]))}
    assert (checks["floor"].estimate, checks["floor"].n) == (0.5, 4)
    assert checks["reachable"].estimate == 0.75 and checks["reachable"].fact.endswith("solved 1")


@mutation(
    "one verdict is a group without a signal", ATTEMPTED,
    "for of in of_group.values() if len(of) > 1]", "for of in of_group.values()]",
)  # fmt: skip
def test_attempts_without_a_verdict_count_nowhere() -> None:
    """The first task has one verdict, the second none, as their other attempts were lost."""
    found = [task(number) for number in range(3)]
    rows = of_counts([1, 0, 4]).filter(
        pl.col("trace_id").is_in(["e0000-x-000000.0"]) | (pl.col("task_id") == "e0000-x-000002")
    )
    checks = {c.name: c for c in worth_of_attempts(found, ids(found), rows)}
    assert checks["headroom"].n == 2 and checks["headroom"].estimate == pytest.approx(0.25)
    assert (checks["signal"].n, checks["signal"].estimate) == (1, 1.0)
    none = rows.clear()
    with pytest.raises(EngineError, match=r"no attempt has a verdict.*the first: no answer"):
        worth_of_attempts(found, ids(found), none, "no answer")


def test_the_tables_give_the_same_certificate_back() -> None:
    domain = get_domain("arithmetic")
    drawn = tasks_of_sets(domain, 2, 1, seed=0)
    assert [one.set_name for one in drawn] == ["base", "base", "heldout"]
    assert [one.set_name for one in first_of_sets(drawn, 1)] == ["base", "heldout"]
    assert first_of_sets(drawn, None) == drawn
    rows = set_frame(drawn, "x")
    found = played_flaws(domain, drawn)
    names = rows["task_id"].to_list()
    checks = worth_of([], GroupCounts(0, 0, 0.0), (0, 3))
    again = stored_flaws(rows, flaw_frame(found, names))
    assert again == found and all(one.compared and one.sound for one in again)
    table = set_checks_frame(found, checks)
    assert stored_checks(table) == checks
    flaws = [count.flaw.value if count.flaw else ANY_FLAW for count in counted(found)]
    assert table["name"].to_list() == [*flaws, *(check.name for check in checks)]


def configured(*overrides: str, **asked: Any) -> RunConfig:
    options = MeasuringOptions(**{"model": "./m", "samples": 4, **asked})
    return certification({"name": "arithmetic"}, options, (3, 2), overrides=overrides)


def test_a_set_is_sampled_at_temperature_1_and_a_setting_wins() -> None:
    config = configured(items=2)
    assert config.benchmark.certifies and config.benchmark.items == 2
    assert (config.benchmark.temperature, config.rollout.n) == (1.0, 4)
    assert configured("benchmark.temperature=0.5").benchmark.temperature == 0.5
    assert config.domain.name == "arithmetic"
    with pytest.raises(ConfigError, match=r"benchmark.precision is of benchmarks"):
        configured("benchmark.precision=0.1")
    with pytest.raises(ConfigError, match=r"ask for no task"):
        configured("benchmark.certify_base=0", "benchmark.certify_heldout=0")
    with pytest.raises(ConfigError, match=r"model_name is of a model behind a URL"):
        configured(model_name="big")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["arithmetic", "--samples", "4"], "--samples is of a model: name one with --model"),
        (["arithmetic", "--limit", "4"], "--limit is of a model"),
        (["arithmetic", "--key-env", "KEY"], "--key-env is of a model"),
        (["--run", "r", "--model", "m"], "--model m does nothing with --run"),
        (["arithmetic", "--model", "m", "--samples", "1"], "than or equal to 2"),
        (["arithmetic", "--model", "http://h/v1", "--tasks", "2"], "benchmark.model_name"),
        (["FOLDER", "--model", "m"], "holds neither an exported task set nor a taskset"),
        (["FOLDER", "--model", "m", "--tasks", "2"], "--tasks does nothing with the folder"),
        (["arithmetic", "--model", "./nowhere", "--tasks", "2", "--heldout", "0"], "nowhere"),
    ],
)
def test_what_does_nothing_or_is_not_there_is_refused(
    tmp_path: Path, words: list[str], said: str
) -> None:
    given = [str(tmp_path) if word == "FOLDER" else word for word in words]
    root = [] if "--run" in words else ["--root", str(tmp_path / "root")]
    done = CliRunner().invoke(app, ["certify", *given, *root])
    assert done.exit_code != 0
    text = done.output + str(done.exception)
    assert said in " ".join(text.split())


@mutation(
    "a model at a URL has no address", "genenv_core/config/sections/unions/benchmark.py",
    'f"{self.model_name} at {self.url}"', "self.model_name",
)  # fmt: skip
def test_a_model_is_named_in_words() -> None:
    assert configured().measured.model_in_words == "./m"
    remote = configured(model="http://host/v1", model_name="big")
    assert remote.measured.model_in_words == "big at http://host/v1"


@mutation("checks that fail are not counted", "flows/shown/tables.py",
          "for word in WORTH_STYLES if counts[word]", "for word in WORTH_STYLES if word != 'fail'"
)  # fmt: skip
def test_a_list_and_a_certificate_count_checks_alike() -> None:
    checks = worth_of([AttemptedTask(4, 0, False, 0.0)] * 20, GroupCounts(20, 0, 0.0), (0, 99))
    said = counted_checks(checks)
    assert said == "of 7 checks of attempts: 2 pass, 3 fail, 2 cannot say"
    facts = {"certified": "x", "flawed": 0, "tasks": 20, "verdicts": 80}
    facts |= {"checks": {check.name: check.worth.value for check in checks}}
    assert certified_line(facts).endswith(said.rpartition("attempts: ")[2])
    assert counted_checks([]) == "no checks of attempts"


def shown(table: Any, width: int) -> list[str]:
    """Return the lines of a table in a terminal of so many characters."""
    out = io.StringIO()
    Console(width=width, file=out).print(table)
    lines = [line.rstrip() for line in out.getvalue().splitlines()]
    assert max(map(len, lines)) <= width
    return lines


@mutation(
    "sentences stand in a column of a word a line", "flows/cli/data/certifying/worded_table.py",
    "if not some or options.max_width - wide > ROOM:", "if True:",
)  # fmt: skip
@mutation(
    "sentences of a narrow table are lost", "flows/cli/data/certifying/worded_table.py",
    'yield Text.assemble(name, ": ", words)', "pass",
)  # fmt: skip
def test_a_narrow_terminal_has_sentences_below_the_numbers() -> None:
    tasks = [AttemptedTask(4, place % 5, True, 0.0) for place in range(16)]
    checks = worth_of(tasks, GroupCounts(16, 9, 0.3), (0, 16))
    sentence = "part of the variance of outcomes that lies between tasks"
    wide = shown(check_table(checks), 140)
    assert len(wide) < 14 and any("pass" in line and sentence in line for line in wide)
    narrow = shown(check_table(checks), 80)
    assert narrow[0] == "check      estimate   95 % interval        of       wanted verdict"
    assert [len(line.split()) > 6 for line in narrow[1:8]] == [True] * 7 and narrow[8] == ""
    assert f"variance: {sentence}" in narrow[9:]

    found = [task(number, Flaw.ACCEPTS_TRIVIAL) for number in range(3)]
    assert any("accepts_trivial" in line and "it has it" in line
               for line in shown(flaw_table(counted(found)), 140))  # fmt: skip
    assert "accepts_trivial: it has it" in shown(flaw_table(counted(found)), 80)
    sound = shown(flaw_table(counted([task(1)])), 80)
    assert sound[0].split()[-1] == "interval" and "" not in sound


@mutation(
    "a reason of other checks is said", "flows/cli/data/certifying/check_table.py",
    "if check.name in names and not check.n", "if not check.n",
)  # fmt: skip
def test_a_check_without_tasks_says_why() -> None:
    assert sorted(name for names in WITHOUT_TASKS.values() for name in names) == sorted(RULES)
    once = [AttemptedTask(1, 1, True, 0.0)] * 3
    *_, two, groups = said_of(worth_of(once, GroupCounts(0, 0, 0.0), (0, 3)))
    assert two == "nothing to check for separating, variance: no task has two attempts"
    assert groups == "nothing to check for signal: no task has two attempts in one epoch"
