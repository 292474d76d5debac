"""The record of what came out of a run, which the page, the report and the terminal show.

Invariants: every number is the view's; a run without an epoch has none; a finding names its epochs
as people do; those of the newest two epochs stand apart from earlier ones; the gravest comes first;
a run of several domains has a line for each, and one of one domain has none; a run over a
fixed set of tasks says so.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from genenv_core.report.fixed_sets import FixedSet
from genenv_core.report.outcome import (
    DomainOutcome,
    Outcome,
    RunFinding,
    headlines,
    outcome_of_run,
)
from genenv_core.report.words import count, duration, spans
from genenv_core.storage.records.runs import RunLog
from genenv_core.storage.sql.catalog import query
from genenv_core.storage.sql.sources import open_tables
from genenv_core.storage.store.local import LocalStore
from tests.mutations import mutation
from tests.unit.builders_root import START, commit_epoch, small_root

OUTCOME = "genenv_core/report/outcome.py"


def outcome(**values: Any) -> Outcome:
    known: dict[str, Any] = {
        "run_id": "run-a", "arm": "genenv", "epochs": 12, "planned": 12, "epoch": 12,
        "measure": "answer_probability", "start": 0.25, "value": 0.5, "gain": 0.25,
        "gain_low": 0.125, "gain_high": 0.375, "p_hat": 0.5, "skill": 0.48, "alpha": 0.5,
        "k_min": 0.25, "share_in_band": 0.75, "share_signal": 0.625, "seconds": 360.0,
        "epochs_at_work": 12, "tokens": 1_200_000,
    }  # fmt: skip
    return Outcome(**{**known, **values})


def finding(first: int, last: int, epochs: int, severity: str = "warning") -> RunFinding:
    return RunFinding("narrow", None, severity, first, last, epochs, "all alike", "try", "FROM x")


def test_the_lines_of_a_run_that_learned() -> None:
    assert outcome().lines == [
        "P(answer) on the test tasks: 0.250 -> 0.500, gain +0.250 [+0.125, +0.375]",
        "new tasks: success 0.48 for a target of 0.50, 75% of them in the band, 62% of the groups "
        "with signal",
        "an epoch took 30.0 s and 100 k tokens on average",
    ]
    single = outcome(gain_low=None, gain_high=None, measure="sampled")
    assert single.lines[0] == "success on the test tasks: 0.250 -> 0.500, gain +0.250"


def test_a_run_before_its_first_epoch_has_no_numbers_but_its_start() -> None:
    nothing = dict.fromkeys(
        ("epoch", "gain", "gain_low", "gain_high", "p_hat", "skill", "share_in_band",
         "share_signal", "seconds", "tokens")
    )  # fmt: skip
    begun = outcome(**nothing, epochs=0, epochs_at_work=0, value=0.25)
    assert begun.lines == ["P(answer) on the test tasks: 0.250 before training"]
    assert [one.value for one in headlines(begun)] == ["0.250"]
    unmeasured = outcome(
        **nothing, epochs=0, epochs_at_work=0, value=None, start=None, measure=None
    )
    assert unmeasured.lines == [] == headlines(unmeasured)


def test_the_head_of_a_page_has_the_numbers_in_the_order_in_which_they_are_asked_for() -> None:
    assert [(one.label, one.value, one.note) for one in headlines(outcome())] == [
        ("probability of the answer, test tasks", "0.500", "0.250 before training"),
        ("gain", "+0.250", "+0.125 to +0.375 (95\u00a0%), paired by task"),
        ("success on new tasks", "48%", "target 50%, 75% in the band"),
        ("groups with signal", "62%", "of new tasks; pi_agent learns from no other"),
        ("time at work", "6.0 min", "30.0 s an epoch, bootstrap left out"),
        ("tokens", "1.20 M", "100 k an epoch, of tasks and attempts with prompts"),
    ]


@mutation(
    "a reused epoch makes all others look quick", OUTCOME,
    "(self.seconds or 0) / self.epochs_at_work", "(self.seconds or 0) / self.epochs",
)  # fmt: skip
def test_a_reused_epoch_has_no_part_in_the_time_of_an_epoch() -> None:
    branch = outcome(epochs_at_work=9)
    assert branch.lines[-1] == "an epoch took 40.0 s and 100 k tokens on average, 3 of 12 reused"
    (time,) = [one for one in headlines(branch) if one.label == "time at work"]
    assert time.note == "40.0 s an epoch, bootstrap left out, 3 of 12 reused"
    again = outcome(epochs_at_work=0, seconds=0.0)
    assert not [one for one in headlines(again) if one.label == "time at work"]
    assert all("on average" not in line for line in again.lines)


@pytest.mark.parametrize(
    ("first", "last", "epochs", "words"),
    [(6, 6, 1, "epoch 6"), (4, 6, 3, "epochs 4 to 6"), (2, 9, 5, "5 of epochs 2 to 9")],
)
def test_a_finding_names_its_epochs(first: int, last: int, epochs: int, words: str) -> None:
    assert finding(first, last, epochs).line == f"{words}: all alike; try"


@mutation(
    "old findings count as of now", OUTCOME, "one.last_epoch > (self.epoch or 0) - RECENT",
    "one.last_epoch >= (self.epoch or 0) - RECENT",
)  # fmt: skip
def test_findings_of_the_newest_two_epochs_stand_apart() -> None:
    old, new, now = finding(1, 10, 2), finding(11, 11, 1), finding(13, 13, 1)
    run = outcome(findings=(now, new, old))
    assert run.recent == [now, new] and run.earlier == [old]


@pytest.mark.parametrize(
    ("seconds", "words"), [(59.96, "60.0 s"), (121.0, "2.0 min"), (7200.0, "2.0 h")]
)
def test_a_length_of_time_has_the_unit_of_its_size(seconds: float, words: str) -> None:
    assert duration(seconds) == words


def test_a_count_has_three_digits() -> None:
    assert [count(n) for n in (999, 1000, 943_210, 1_234_567)] == [
        "999",
        "1.00 k",
        "943 k",
        "1.23 M",
    ]


@mutation(
    "a note comes before a failure", OUTCOME, 'SEVERITIES = ("failure", "warning", "note")',
    'SEVERITIES = ("note", "warning", "failure")',
)  # fmt: skip
@pytest.mark.slow
def test_the_record_of_a_run_is_what_the_views_say(tmp_path: Path) -> None:
    store = small_root(tmp_path / "root")
    found = outcome_of_run(store, "run-a")
    with open_tables(store, ["run-a"]) as con:
        (row,) = query(con, "FROM outcomes").to_dicts()
        rows = query(con, "FROM findings ORDER BY epoch").to_dicts()
        tokens = query(con, "SELECT max(tokens) AS n FROM spent")["n"].item()
    assert {name: getattr(found, name) for name in row} == row
    assert found.tokens == tokens
    assert {(one.rule, one.subject, one.last_epoch) for one in found.findings} == {
        (one["rule"], one["subject"], one["epoch"])
        for one in {(one["rule"], one["subject"]): one for one in rows}.values()
    }
    grave = [("failure", "warning", "note").index(one.severity) for one in found.recent]
    newest = [-one.last_epoch for one in found.recent]
    assert list(zip(newest, grave, strict=True)) == sorted(zip(newest, grave, strict=True))
    assert len(set(grave)) > 1


def test_each_domain_of_several_has_a_line() -> None:
    desk = DomainOutcome("desk", 0.25, 0.5, 6, 0.375, 0.5, 0.625)
    lines = outcome(domains=(desk, DomainOutcome("sums", None, 0.125, *[None] * 4))).lines
    assert lines[2:4] == [
        "desk: P(answer) 0.250 -> 0.500, success 0.38 on 6 new tasks, 50% of them in the band, "
        "62% of the groups with signal",
        "sums: P(answer) 0.125",
    ]
    assert DomainOutcome("sums", *[None] * 6).line(None) == "sums: nothing yet"
    assert outcome(domains=(desk,)).values["domains"][0]["p_hat"] == 0.375
    assert set(outcome().values) == {"outcome", "findings"}


@mutation(
    "lines keep quiet about a fixed set", OUTCOME, "lines += [one.line for one in self.fixed_sets]",
    "pass",
)  # fmt: skip
@mutation(
    "a page keeps quiet about a fixed set", OUTCOME, "for fixed in one.fixed_sets:",
    "for fixed in one.fixed_sets[:0]:",
)  # fmt: skip
def test_a_fixed_set_is_said_wherever_the_outcome_is() -> None:
    chosen = FixedSet("openenv", 40, 17)
    said = outcome(fixed_sets=(chosen,))
    assert chosen.line in said.lines and said.values["fixed_sets"] == (asdict(chosen),)
    assert chosen.line == (
        "openenv: pi_env writes no tasks and chooses among 40 that are there (a curriculum over a "
        "fixed set); the run has played 17 of them"
    )
    assert FixedSet("openenv", 40).line.endswith("(a curriculum over a fixed set)")
    (head,) = [one for one in headlines(said) if one.label == "fixed set"]
    assert (head.value, head.note[:23]) == ("17 of 40", "tasks of openenv played")


@mutation(
    "a run of one domain has a line for it", OUTCOME, "if domain != SEVERAL:", "if False:"
)  # fmt: skip
@pytest.mark.slow
def test_the_domains_of_a_run_are_what_the_view_says(tmp_path: Path) -> None:
    assert outcome_of_run(small_root(tmp_path / "one"), "run-a").domains == ()
    store = LocalStore(tmp_path / "several")
    log = RunLog(store, "run-a")
    log.open({"arm": "genenv", "domain": {"name": "several"}, "seed": 0, "epochs": 2}, START)
    for epoch in range(3):
        commit_epoch(store, log, epoch)
    found = outcome_of_run(store, "run-a")
    with open_tables(store, ["run-a"]) as con:
        rows = query(con, "FROM domains ORDER BY epoch").to_dicts()
    (one,) = found.domains  # the only family, k1, begins with this name
    assert found.measure == "answer_probability"
    assert (one.domain, one.start, one.value) == (
        "k1", rows[0]["answer_probability"], rows[-1]["answer_probability"],
    )  # fmt: skip
    last = ("tasks", "p_hat", "share_in_band", "share_signal")
    assert [getattr(one, name) for name in last] == [rows[-1][name] for name in last]


@mutation(
    "epochs with a gap are one span", "genenv_core/report/words.py",
    "each == found[-1][-1] + 1", "each > found[-1][-1]",
)  # fmt: skip
@pytest.mark.parametrize(
    ("numbers", "text"), [([], ""), ([3], "3"), ([0, 1, 2, 5, 7, 8], "0 to 2, 5, 7 to 8")]
)
def test_numbers_that_follow_each_other_are_a_span(numbers: list[int], text: str):
    assert spans(numbers) == text
