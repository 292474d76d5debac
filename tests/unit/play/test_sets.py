"""Sets of tasks that are certified: every flaw is counted, with the tasks that have it.

Invariants: each flaw, planted in some tasks of a sound domain, is named for exactly these; a sound
domain has none; the interval is Wilson's, as other tables print it; a certificate
takes the attempts and verdicts that were announced; what was found before an error is written and
shown; a domain that raises, hangs or lacks something ends in one clear error.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from typer.testing import CliRunner, Result

from flows.cli.app import app
from genenv_core.domains.parts import TooFewTasks
from genenv_core.domains.protocol import Domain
from genenv_core.domains.registry import get_domain
from genenv_core.errors import ConfigError, DomainError, GenenvError, QueryError
from genenv_core.play.checking import calling
from genenv_core.play.checking.set_flaws import AnyFlaw, SetFlaw
from genenv_core.play.checking.sets import (
    FLAWS,
    CertifiedTask,
    certified,
    compared,
    cost_of,
    counted,
    draw_sets,
    rows_of,
    unchecked,
)
from genenv_core.play.checking.shapes import StopChecking
from genenv_core.types import Flaw
from tests.mutations import mutation
from tests.unit.play.planted import HELDOUT, Answered, Planted, Played, Unsolved
from tests.unit.test_layers import loaded

SHARES = "genenv_core/algorithm/success/shares.py"
SETS = "genenv_core/play/checking/sets.py"
COMMAND = "flows/cli/data/certify.py"
PLAYED = "flows/cli/data/certifying/certify_tasks.py"
TABLE = "flows/cli/data/certifying/flaw_table.py"
PLACE = "tests.unit.play.planted:Planted"
SEVERAL = {Flaw.LEAKS_ANSWER: [0, 5], Flaw.ACCEPTS_CANARY: [3], Flaw.AMBIGUOUS: [2, HELDOUT + 1]}
LOOKED_FOR: list[AnyFlaw] = [flaw for flaw in FLAWS if flaw is not SetFlaw.IGNORES_SEED]
"""What the planted domain is looked through for: it says nothing about its seeds."""


def planted(plants: dict[Flaw, list[int]], kind: type[Unsolved] = Planted) -> Any:
    return kind({"plants": plants})


def certificates(domain: Domain, base: int, heldout: int) -> list[CertifiedTask]:
    found = list(certified(domain, draw_sets(domain, base, heldout)))
    whole = dict(compared(domain, found))
    return [whole[place] for place in range(len(found))]


def numbers(found: list[CertifiedTask]) -> dict[AnyFlaw, list[int]]:
    """Return the numbers of the tasks that each flaw was named for."""
    named: dict[AnyFlaw, list[int]] = {}
    for one in found:
        for check in one.checks:
            if not check.passed:
                named.setdefault(check.flaw, []).append(one.task.draft.spec["number"])
    return named


def command(*words: str, plants: dict[Flaw, list[int]] | None = None, breaks: str = "") -> Result:
    options = [f"domain.options={{plants: {json.dumps(plants or {})}, breaks: {{{breaks}}}}}"]
    sets = [word for option in options for word in ("--set", option)]
    return CliRunner().invoke(
        app, ["certify", PLACE, "--tasks", "6", "--heldout", "3", *sets, *words]
    )


@mutation(
    "a command on several domains names one", "flows/cli/options.py",
    "given if joined else [", "[",
)  # fmt: skip
@pytest.mark.parametrize("words", ["certify --tasks", "domain check --base"])
def test_a_command_takes_several_domains(words: str) -> None:
    both = ["--set", "domains=[{name: desk}, {name: arithmetic, as: sums}]"]
    done = CliRunner().invoke(app, [*words.split(), "4", "--heldout", "2", "several", *both])
    assert done.exit_code == 0, done.output
    assert "several, version" in done.output and "no f" in done.output


@mutation("held-out tasks are not certified", SETS, '("heldout", "heldout_tasks", heldout,',
          '("heldout", "heldout_tasks", 0,')  # fmt: skip
@pytest.mark.parametrize("flaw", Flaw)
def test_a_planted_flaw_is_named_for_exactly_its_tasks(flaw: Flaw) -> None:
    where = [1, 4, 7, HELDOUT, HELDOUT + 2]
    found = certificates(planted({flaw: where}), 8, 4)
    assert numbers(found) == {flaw: where}
    assert [one.sound for one in found].count(False) == 5
    counts = {count.flaw: (count.checked, count.having) for count in counted(found)}
    expected = dict.fromkeys(LOOKED_FOR, (12, 0)) | {flaw: (12, 5), None: (12, 5)}
    if flaw in (Flaw.UNSTEADY_VERDICT, Flaw.AMBIGUOUS):  # what changes anyway needs no other order
        expected |= dict.fromkeys((SetFlaw.DEPENDS_ON_ORDER, SetFlaw.DEPENDS_ON_TIME), (7, 0))
    assert counts == expected


def test_a_sound_domain_has_no_flaw() -> None:
    found = certificates(planted({}), 20, 10)
    assert numbers(found) == {} and all(one.sound for one in found)
    assert [(count.checked, count.having) for count in counted(found)] == [(30, 0)] * (
        len(LOOKED_FOR) + 1
    )
    assert unchecked(planted({}), found) == {}


@mutation("a task with two flaws counts twice", SETS, "sum(not one.sound for one in found)",
          "sum(not check.passed for one in found for check in one.checks)")  # fmt: skip
def test_flaws_of_several_kinds_are_counted_apart_and_together() -> None:
    domain = planted(SEVERAL)
    first, *others = certificates(domain, 6, 3)
    two = CertifiedTask(first.task, (*first.checks[:2], others[2].checks[3]))
    counts = {count.flaw: count for count in counted([two, *others])}
    assert {flaw: count.having for flaw, count in counts.items() if count.having} == {
        Flaw.LEAKS_ANSWER: 2, Flaw.ACCEPTS_CANARY: 2, Flaw.AMBIGUOUS: 2, None: 5,
    }  # fmt: skip
    assert counts[Flaw.UNREACHABLE].checked == 8 and counts[None].checked == 9
    leak = counts[Flaw.LEAKS_ANSWER]
    assert leak.detail == "the request says '77'"
    assert leak.prompt == "What is 7 times 11? It is 77."


# Wilson's interval of 8 of 10 and of 0 of 10, as tables of it print them.
@mutation("an interval of 90 %", SHARES, "proportion_ci(0.95,", "proportion_ci(0.9,")
@mutation("an interval that is Clopper's", SHARES, 'method="wilson"', 'method="exact"')
def test_the_interval_is_wilsons() -> None:
    found = certificates(planted({Flaw.LEAKS_ANSWER: list(range(8))}), 10, 0)
    counts = {count.flaw: count for count in counted(found)}
    for flaw, low, high in (
        (Flaw.LEAKS_ANSWER, 0.4902, 0.9433), (Flaw.AMBIGUOUS, 0.0, 0.2775), (None, 0.4902, 0.9433),
    ):  # fmt: skip
        assert counts[flaw].low == pytest.approx(low, abs=5e-5)
        assert counts[flaw].high == pytest.approx(high, abs=5e-5)


@mutation("steps that must say nothing cost nothing", SETS, "2 + len(CANARIES) if", "0 if")
@pytest.mark.parametrize("kind", [Unsolved, Answered, Planted, Played])
def test_a_certificate_takes_what_was_announced(kind: type[Unsolved]) -> None:
    domain = planted({}, kind)
    cost, trivial = cost_of(domain), 3
    certificates(domain, 1, 0)
    assert domain.calls["score"] == cost.verdicts + trivial * cost.trivial
    assert domain.calls["episode"] == cost.attempts + (trivial if cost.played else 0)


def test_what_cannot_be_checked_is_named_with_its_reason() -> None:
    reasons = {
        kind: unchecked(planted({}, kind), certificates(planted({}, kind), 2, 1))
        for kind in (Unsolved, Answered, Played)
    }
    assert reasons == {
        Unsolved: {
            "the domain has neither `solution` nor `answer_turns`": [
                Flaw.UNREACHABLE,
                Flaw.AMBIGUOUS,
                SetFlaw.UNREPEATABLE,
            ],
            "the domain has no `solution`": [Flaw.LEAKS_EARLY],
        },
        Answered: {"the domain has no `solution`": [Flaw.LEAKS_EARLY]},
        Played: {"the environment has a clock of its own": [SetFlaw.DEPENDS_ON_TIME]},
    }


def test_each_check_of_each_task_has_a_row() -> None:
    found = certificates(planted({Flaw.LEAKS_ANSWER: [1]}), 2, 1)
    rows = rows_of(found)
    assert len(rows) == 3 * len(LOOKED_FOR)
    assert [row for row in rows if not row["passed"]] == [
        {
            "fingerprint": "sevens 1",
            "set": "base",
            "family": "sevens",
            "difficulty": 1.0,
            "prompt": "What is 7 times 12? It is 84.",
            "flaw": "leaks_answer",
            "passed": False,
            "detail": "the request says '84'",
        }
    ]
    assert [row["set"] for row in rows[:: len(LOOKED_FOR)]] == ["base", "base", "heldout"]


@mutation("a flaw is no failure of the command", TABLE, "    if flawed:", "    if not count:")
def test_flaws_end_the_command_with_status_1(tmp_path: Path) -> None:
    file = tmp_path / "rows.parquet"
    done = command("-o", str(file), plants=SEVERAL)
    assert isinstance(done.exception, GenenvError) and done.exception.exit_status == 1
    assert str(done.exception) == f"{PLACE}: 5 of 9 tasks have a flaw, counted above"
    lines = {line.split("  ")[0]: line.split() for line in done.output.splitlines() if line}
    assert lines["leaks_answer"][1:6] == ["9", "2", "22.2%", "[6.3%,", "54.7%]"]
    assert lines["any of them"][3:6] == ["9", "5", "55.6%"]
    assert "the request says '77'" in done.output and "What is 7 times 11? It is 77" in done.output
    assert "ambiguous: episode\n  -> let a right attempt succeed" in done.output
    rows = pl.read_parquet(file)
    flawed = rows.filter(~pl.col("passed"))
    assert rows.height == 9 * len(LOOKED_FOR) - 2 * 2 and flawed["flaw"].to_list() == [
        "leaks_answer", "ambiguous", "accepts_canary", "leaks_answer", "ambiguous",
    ]  # fmt: skip


def test_a_sound_domain_ends_the_command_with_status_0(tmp_path: Path) -> None:
    for name in ("rows.csv", "rows.json", "rows.txt"):
        done = command("-o", str(tmp_path / name))
        assert done.exit_code == 0, done.output
        assert "certifies 9 tasks of domain sevens, version 1 (6 base, 3 held-out)" in done.output
        assert (
            "at most 180 attempts and 333 verdicts (20 and 37 for each task), and 4 " in done.output
        )
        assert "no flaw in 9 tasks" in done.output and "not checked" not in done.output
    assert pl.read_csv(tmp_path / "rows.csv").height == 9 * len(LOOKED_FOR)
    assert len(json.loads((tmp_path / "rows.json").read_text())) == 9 * len(LOOKED_FOR)


@mutation("rows before an error are lost", PLAYED,
          "finally:  # what was found before an error counts", "except MemoryError:")  # fmt: skip
@pytest.mark.parametrize(
    ("how", "error", "words"),
    [
        ("raises", GenenvError, "certificate: raised KeyError: 'no such number' (planted.py, line"),
        ("lost", DomainError, "no certificate of the task 'What is 7 times 15?': no answer"),
        ("hangs", GenenvError, "certificate: takes longer than 0.3 s on task 'What is 7 times 15?"),
    ],
)
def test_what_was_found_before_an_error_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str, error: type[Exception], words: str
) -> None:
    monkeypatch.setattr(calling, "CALL_S", 0.3)
    file = tmp_path / "rows.csv"
    done = command("-o", str(file), plants={Flaw.LEAKS_ANSWER: [1]}, breaks=f"4: {how}")
    assert isinstance(done.exception, error) and words in str(done.exception)
    assert "ended early: 4 of 9 tasks certified" in done.output
    assert "the request says '84'" in done.output
    rows = pl.read_csv(file)
    assert rows["fingerprint"].unique(maintain_order=True).to_list() == [
        f"sevens {number}" for number in range(4)
    ]


def test_an_end_between_the_tasks_says_how_many_were_compared(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def some(domain: Domain, found: list[CertifiedTask]) -> Iterator[tuple[int, CertifiedTask]]:
        yield from islice(compared(domain, found), 2)
        raise KeyboardInterrupt

    monkeypatch.setattr("flows.cli.data.certifying.certify_tasks.compared", some)
    done = command()
    assert done.exit_code == 130 and "ended early: 2 of 9 tasks compared" in done.output
    rows = {line.split("  ")[0]: line.split() for line in done.output.splitlines() if line}
    assert rows["duplicate"][1] == "2" and rows["leaks_answer"][1] == "9"
    none = certified(planted({}), draw_sets(planted({}), 2, 0))
    assert unchecked(planted({}), list(none)) == {
        "it ended before": [
            SetFlaw.DEPENDS_ON_ORDER,
            SetFlaw.DEPENDS_ON_TIME,
            SetFlaw.CONTRADICTS,
            SetFlaw.DUPLICATE,
        ]
    }


def test_an_error_before_the_first_task_leaves_an_empty_file(tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    done = command("-o", str(file), breaks="0: raises")
    assert isinstance(done.exception, GenenvError) and "any of them" not in done.output
    assert pl.read_csv(file).height == 0


def test_a_domain_with_too_few_tasks_or_a_missing_method_is_refused() -> None:
    few = planted({})

    def too_few(seed: int, count: int) -> Any:
        raise ConfigError("there are 2 tasks: lower data.test_tasks")

    few.heldout_tasks = too_few
    with pytest.raises(ConfigError, match=r"^3 heldout tasks: there are 2 tasks: lower data"):
        draw_sets(few, 1, 3)
    assert len(draw_sets(few, 1, 0)) == 1
    with pytest.raises(ConfigError, match=r"^3 heldout tasks: there are 2 tasks"):
        draw_sets(few, 1, 3, fewer=("base", "heldout"))  # it says no number
    few.heldout_tasks = lambda seed, count: []
    with pytest.raises(StopChecking, match="returned 0 tasks, 3 were asked for"):
        draw_sets(few, 1, 3)
    few.trivial_answers = None
    with pytest.raises(StopChecking, match="trivial_answers: there is no such method"):
        draw_sets(few, 1, 3)


@mutation("a certificate takes fewer tasks than somebody asked for",
          "genenv_core/play/checking/sets.py",
          "if set_name not in fewer or not isinstance(cause, TooFewTasks):",
          "if not isinstance(cause, TooFewTasks):")  # fmt: skip
@mutation("a certificate of a small domain asks for the usual number",
          "flows/cli/data/certifying/wanted_tasks.py",
          "for name, count in given.items() if count is None", "for name, count in ()")  # fmt: skip
@mutation("a domain without tasks has a certificate",
          "genenv_core/play/checking/sets.py",
          "if short is not None and not found:", "if not short and not found:")  # fmt: skip
def test_all_tasks_of_a_small_domain_are_taken_where_nobody_asked_for_more() -> None:
    sums = {"terms": 2, "first": 9, "minus": False}
    domain = get_domain("arithmetic", sums)
    drawn = draw_sets(domain, 200, 100, fewer=("base", "heldout"))
    assert len({one.draft.fingerprint for one in drawn}) == len(drawn) == 81  # 9 x 9, and no more
    with pytest.raises(ConfigError, match=r"^200 base tasks: arithmetic has only about 65 base"):
        draw_sets(domain, 200, 100, fewer=("heldout",))
    place = f"domain.options={json.dumps(sums)}"
    done = CliRunner().invoke(app, ["certify", "arithmetic", "--set", place, "--tasks", "0"])
    assert (
        "certifies 16 tasks of domain arithmetic, version 1 (0 base, 16 held-out; it has no "
        in (done.output)
    )
    none = planted({})

    def nothing(seed: int, count: int) -> Any:
        raise TooFewTasks("there are none", 0)

    none.base_tasks = nothing
    with pytest.raises(ConfigError, match=r"^3 base tasks: there are none$"):
        draw_sets(none, 3, 0, fewer=("base",))


@mutation("the name of a file that cannot be is seen when all is done",
          "flows/cli/data/certifying/certify_outputs.py",
          "            check_output(option, file)\n", "")  # fmt: skip
@pytest.mark.parametrize(
    ("words", "error", "said"),
    [
        (["--tasks", "0", "--heldout", "0"], ConfigError, "ask for at least one task"),
        (["--format", "csv"], ConfigError, "name one with -o"),
        (["-o", "rows.xlsx"], QueryError, ".xlsx is not one of the formats"),
        (["-o", "no/such/rows.csv"], ConfigError, "there is no folder"),
        (["-o", "x" * 300 + ".csv"], ConfigError, "the name is too long: give a shorter one"),
    ],
)
def test_bad_words_are_refused_before_anything_is_drawn(
    words: list[str], error: type[GenenvError], said: str
) -> None:
    done = command(*words)
    assert isinstance(done.exception, error) and said in str(done.exception)
    assert error.exit_status == 2 and "certifies" not in done.output


@mutation("a domain is certified before its name is known", COMMAND,
          "        config = config_of_domain(name",
          "        import polars as _\n\n        config = config_of_domain(name")  # fmt: skip
def test_a_wrong_name_is_refused_before_libraries_are_loaded() -> None:
    code = "sys.argv = ['genenv', 'certify', 'nonsense']\nfrom flows.cli.app import main\nmain()"
    _, names = loaded(code)
    assert "typer" in names
    assert names & {"polars", "duckdb", "scipy", "torch", "prefect"} == set()
