"""`genenv status RUN` shows the newest attempt at each stage and reads only what it shows.

Invariants: it agrees with the run's log; the attempts of merged epochs are not read one by one;
other runs of the root are not opened; a run that a command ended as asked is watched no longer,
until a command takes it on; a stage at work says how far it is, and bootstrap what it reached; what
came out and what is wrong is that of the run's record, and no stage says it a second time.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import polars as pl
import pytest
from rich.console import Console

from flows.cli.runs.status import _picture, show_run, watch_run
from flows.shown.tables import epoch_table, evidence_table, plain_table
from genenv_core.report.outcome import outcome_of_run
from genenv_core.storage import paths
from genenv_core.storage.records.endings import Ending, clear_ending, note_ending, read_ending
from genenv_core.storage.records.runs import RunLog, StageAttempt
from genenv_core.storage.store.leases import Lease
from genenv_core.storage.store.local import LocalStore
from genenv_core.storage.upkeep.compaction import FAN, compact
from tests.examples import some
from tests.mutations import mutation
from tests.unit.builders_root import rows_of, small_root
from tests.unit.builders_runs import open_run, without_fsync, write_epoch, write_run, write_stage
from tests.unit.test_layers import REPOSITORY

EPOCHS = FAN


@pytest.mark.slow
def test_status_reads_what_it_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    store = LocalStore(tmp_path)
    with without_fsync():
        write_run(store, "other", 1, seed=1)
        log = write_run(store, "run-a", EPOCHS)
        compact(store, "run-a")
        again = log.attempts([EPOCHS])[-1].model_copy(update={"state": "running", "seconds": None})
        log.end(log.begin(again).model_copy(update={"state": "failed", "error": "a bad row"}))
        write_epoch(store, "other", 1, seed=1)
    wanted = {(a.epoch, a.stage): (a.attempt, a.state) for a in log.attempts()}
    read: list[str] = []
    real = LocalStore.read

    def noted(self: LocalStore, path: str) -> bytes:
        read.append(path)
        return real(self, path)

    monkeypatch.setattr(LocalStore, "read", noted)
    show_run(store, "run-a", as_json=True)
    answer = json.loads(capsys.readouterr().out)
    found = [StageAttempt.model_validate(stage) for stage in answer["stages"]]
    assert {(a.epoch, a.stage): (a.attempt, a.state) for a in found} == wanted
    assert [(a["stage"], a["state"], a["error"]) for a in answer["unfinished"]] == [
        (again.stage, "failed", "a bad row")
    ]
    assert not [path for path in read if path.startswith(paths.run("other"))]
    events = [path for path in read if path.startswith(paths.attempts("run-a"))]
    assert len(events) == len(set(events)), "an event was read twice"
    # The last epoch has news, and what bootstrap's segment left over; fifteen others are merged.
    opened = {int(path.rsplit("/", 1)[1].split("-")[0]) for path in events}
    assert len(opened) <= 2 < EPOCHS == len(RunLog(store, "run-a").attempts()) // 9


def test_the_table_of_evidence_leaves_out_what_is_unknown(
    capsys: pytest.CaptureFixture[str],
) -> None:
    unknown = dict.fromkeys(
        ("alpha_inside", "measure", "gain", "gain_low", "gain_high", "p_hat", "share_signal")
    ) | dict.fromkeys(("weight_low", "weight_high", "effective_rows"))
    first = {**unknown, "epoch": 1, "distinct_tasks": 0, "agent_rows": 0, "env_rows": 0}
    second = {
        **{"epoch": 2, "distinct_tasks": 64, "agent_rows": 448, "env_rows": 30},
        **{"measure": "answer_probability", "gain": -0.0001, "gain_low": -0.002, "gain_high": 0.01},
        **{"p_hat": 0.625, "alpha_inside": False, "share_signal": 0.8},
        **{"effective_rows": 29.96, "weight_low": 0.98, "weight_high": 1.05},
    }
    Console(width=140).print(evidence_table([first, second]))
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines[1] == ["1", "0", "0", "0"]
    assert "fidelity" not in lines[0]
    assert " ".join(lines[2]) == (
        "2 +0.000 [-0.002, +0.010] P(answer) 0.62 outside 80% 64 448 30 30.0 0.98 to 1.05"
    )
    Console(width=140).print(evidence_table([first, {**second, "fidelity": 0.514}]))
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert (
        lines[0][-1] == "fidelity" and lines[2][-1] == "0.51" and lines[1] == ["1", "0", "0", "0"]
    )


@mutation(
    "a wide table is squeezed", "flows/shown/tables.py",
    "for one in (*found[-1], place)) > width + 1", "for one in (*found[-1], place)) > 10_000",
)  # fmt: skip
@pytest.mark.parametrize("width", [20, 80])
def test_a_wide_table_goes_on_below_itself_and_cuts_nothing(
    width: int, capsys: pytest.CaptureFixture[str]
) -> None:
    titles = ["epoch", *(f"column{n}" for n in range(12))]
    rows = [{title: f"{n}.{title}" for title in titles} for n in (1, 2)]
    table = plain_table()
    for title in titles:
        table.add_column(title, no_wrap=True)
    for row in rows:
        table.add_row(*row.values())
    Console(width=width).print(table)
    shown = capsys.readouterr().out
    assert "…" not in shown
    assert all(len(line.rstrip()) <= width for line in shown.splitlines())
    words = shown.split()
    assert all(words.count(row[title]) == 1 for row in rows for title in titles[1:])
    assert words.count("epoch") == words.count("1.epoch") > 1


def test_a_column_of_a_block_is_as_it_was_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    table = plain_table()
    table.add_column("epoch", no_wrap=True)
    table.add_column("name", justify="right", max_width=6, no_wrap=True)
    table.add_column("remark", min_width=9, vertical="bottom", overflow="fold")
    table.add_row("1", "a long name", "a")
    Console(width=80).print(table)
    assert capsys.readouterr().out.splitlines()[1].rstrip() == "1     a lon… a"
    Console(width=16).print(table)
    assert [line.split() for line in capsys.readouterr().out.splitlines()] == [
        ["epoch", "name"], ["1", "a", "lon…"], ["epoch", "remark"], ["1", "a"]
    ]  # fmt: skip


@mutation(
    "remarks are folded to a letter a line", "flows/shown/tables.py",
    "min(whole, FOLDED))", "min(whole, 1))",
)  # fmt: skip
@pytest.mark.parametrize("width", [40, 80, 120])
def test_remarks_have_room_for_words(width: int, capsys: pytest.CaptureFixture[str]) -> None:
    said = "no group of D_train carries a signal in this epoch"
    row = {"epoch": 7, "p_hat": 0.5, "heldout_success": 0.125, "heldout_success_greedy": 0.25}
    # At 80 characters one is left beside these numbers.
    row |= {"seconds": 9.8, "mean_difficulty": 2.5}
    row |= {"agent_action": "skipped", "agent_note": said, "env_action": "updated"}
    row |= {"grpo_steps": 0, "rwr_steps": 0}
    Console(width=width).print(epoch_table([{**row, "epoch": epoch} for epoch in (6, 7)]))
    shown = capsys.readouterr().out
    assert all(len(line.rstrip()) <= width for line in shown.splitlines()) and "…" not in shown
    assert all(shown.split().count(word) >= 2 for word in said.split())
    assert len(shown.splitlines()) <= (17 if width == 40 else 9)


def test_every_table_is_of_this_kind() -> None:
    """A module that makes a table of its own would squeeze it."""
    here = REPOSITORY / "flows"
    paths = [path for name in ("cli", "shown") for path in (here / name).rglob("*.py")]
    makers = [path for path in paths if re.search(r"\bTable\(", path.read_text())]
    assert makers == [here / "shown" / "tables.py"]


@mutation(
    "the table of epochs hides what was lost", "flows/shown/tables.py",
    'if row.get("attempts_lost"):', "if False:",
)  # fmt: skip
def test_the_table_of_epochs_counts_what_was_lost(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"epoch": 1, "attempts_lost": 0}, {"epoch": 2, "attempts_lost": 5}]
    Console(width=140).print(epoch_table(rows))
    _, first, second = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert first == "1"
    assert second == "2 5 attempts lost: genenv sql 'FROM failures'"


@mutation(
    "the table of epochs hides what was refilled", "flows/shown/tables.py",
    'if row.get("tasks_refilled"):', "if False:",
)  # fmt: skip
def test_the_table_of_epochs_says_how_many_tasks_were_refilled(
    capsys: pytest.CaptureFixture[str],
) -> None:
    rows = [{"epoch": number, "tasks_refilled": count} for number, count in ((1, 0), (2, 7))]
    Console(width=140).print(epoch_table([*rows, {"epoch": 3, "tasks_refilled": None}]))
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()[1:]]
    assert lines == ["1", "2 7 tasks refilled", "3"]


@mutation(
    "a run that ended early as asked is watched for ever", "flows/cli/runs/status.py",
    "return complete or bool(stuck) or stopped", "return complete or bool(stuck)",
)  # fmt: skip
@pytest.mark.slow
def test_a_run_that_was_to_end_early_is_watched_no_longer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = LocalStore(tmp_path)
    log = write_run(store, "run-a", 1)
    log.open({**log.info().config, "epochs": 3}, log.info().started_at)
    assert not _picture(store, "run-a").ended  # between two stages nothing is at work either
    note_ending(store, "run-a", Ending(stage="publish", epoch=1))
    watch_run(store, "run-a")
    told = " ".join(capsys.readouterr().out.split())
    assert "ended after publish of epoch 1, as asked; go on with: genenv resume run-a" in told
    show_run(store, "run-a", as_json=True)
    assert json.loads(capsys.readouterr().out)["ended_after"] == {"stage": "publish", "epoch": 1}
    log.begin(log.attempts([1])[-1].model_copy(update={"state": "running", "epoch": 2}))
    assert not _picture(store, "run-a").ended  # a command has begun a stage
    clear_ending(store, "run-a")
    clear_ending(store, "run-a")
    assert read_ending(store, "run-a") is None
    (tmp_path / paths.run_ending("run-a")).write_text("{}")
    assert read_ending(store, "run-a") is None  # damaged


@mutation(
    "status keeps the findings to itself", "flows/cli/runs/status.py",
    "        for one in picture.outcome.recent\n", "        for one in ()\n",
)  # fmt: skip
@pytest.mark.slow
def test_status_says_what_came_out_and_what_is_wrong(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = small_root(tmp_path)
    known = outcome_of_run(store, "run-a")
    show_run(store, "run-a", as_json=False)
    told = " ".join(capsys.readouterr().out.split())
    assert " ".join(known.lines) in told
    assert known.recent
    for one in known.recent:
        assert f"{one.severity}: {one.line}" in told
    show_run(store, "run-a", as_json=True)
    answer = json.loads(capsys.readouterr().out)
    assert answer["outcome"]["gain"] == known.gain
    assert [one["rule"] for one in answer["findings"]] == [one.rule for one in known.findings]


@mutation(
    "status says twice what a stage and a finding say", "flows/cli/runs/status.py",
    "told = stage in TOLD_HERE and (epoch, LAST) in last", "told = False",
)  # fmt: skip
@pytest.mark.slow
def test_a_stage_warns_until_its_epoch_has_ended(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    log = write_run(store, "run-a", 1)
    for stage, fact in (("rollout", "half_broken"), ("evaluate", "endless")):
        made = write_stage(store, stage, 2, tables={}, facts={fact: f"{stage} is odd"})
        log.note_key(2, stage, made.key)
        first = {"stage": stage, "epoch": 2, "stage_key": made.key, "state": "computed"}
        where = {"run_id": "run-a", "host": "h", "pid": 1, "started_at": log.info().started_at}
        log.end(log.begin(StageAttempt.model_validate({**first, **where, "seconds": 1.0})))
    assert sorted(_picture(store, "run-a").troubles) == ["evaluate is odd", "rollout is odd"]
    attempt = log.attempts([1])[-1]
    assert attempt.stage == "publish"
    log.end(log.begin(attempt.model_copy(update={"epoch": 2})))
    assert _picture(store, "run-a").troubles == ["evaluate is odd"]


@mutation(
    "status says twice what is wrong with an epoch under way", "flows/cli/runs/status.py",
    "if not outcome.says(name, epoch)", "if name",
)  # fmt: skip
@mutation(
    "a finding of another epoch hides what a stage says", "genenv_core/report/outcome.py",
    "one.rule in rules and one.first_epoch <= epoch <= one.last_epoch", "one.rule in rules",
)  # fmt: skip
@pytest.mark.parametrize(("fact", "said"), [("all_broken", 0), ("endless", 1)])
@pytest.mark.parametrize("epoch", some((2, 3), (3,)))
def test_what_a_finding_says_of_an_epoch_under_way_is_said_once(
    fact: str, said: int, epoch: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = LocalStore(tmp_path)
    log = write_run(store, "run-a", 1)
    log.open({**log.info().config, "epochs": 3}, log.info().started_at)
    traces = rows_of("traces", 2).with_columns(error=pl.lit("gone"), finish_reason=pl.lit("stop"))
    for one, tables in ((2, {"traces": traces}), (3, {})):
        facts = {fact: "it is odd"} if one == epoch else {}
        made = write_stage(store, "rollout", one, tables=tables, facts=facts)
        log.note_key(one, "rollout", made.key)
        first = {"stage": "rollout", "epoch": one, "stage_key": made.key, "state": "computed"}
        where = {"run_id": "run-a", "host": "h", "pid": 1, "started_at": log.info().started_at}
        log.end(log.begin(StageAttempt.model_validate({**first, **where, "seconds": 1.0})))
    show_run(store, "run-a", as_json=False)
    lines = " ".join(capsys.readouterr().out.split())
    assert lines.count("attempts ended in an error: gone") == 1
    assert lines.count("it is odd") == (1 if epoch == 3 else said)


@mutation(
    "status does not say how far a stage is", "flows/cli/runs/status.py",
    "words = attempt.error or picture.progress.get((attempt.epoch, attempt.stage))",
    "words = attempt.error",
)  # fmt: skip
def test_status_says_how_far_a_stage_is_and_what_bootstrap_reached(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = LocalStore(tmp_path)
    warm = {"env": {"steps": 5, "steps_planned": 9, "loss": 1.0}}
    log = open_run(store, "run-a", 1)
    write_stage(store, "bootstrap", 0, tables={}, facts={"warm_starts": warm})
    write_epoch(store, "run-a", 0)
    (attempt,) = log.attempts([0])
    log.begin(attempt.model_copy(update={"state": "running", "epoch": 1, "seconds": None}))
    lease = Lease(host="h", pid=1, process="p", token="t", doing="3 of 8 groups")
    store.create(paths.lease(attempt.stage, attempt.stage_key), lease.to_bytes())
    show_run(store, "run-a", as_json=False)
    told = capsys.readouterr().out
    assert f"running {attempt.stage} of epoch 1, attempt 1 (h pid 1): 3 of 8 groups\n" in told
    assert "start: pi_env: 5 of 9 steps, loss 1.000\n" in told
    show_run(store, "run-a", as_json=True)
    answer = json.loads(capsys.readouterr().out)
    assert [one["progress"] for one in answer["unfinished"]] == ["3 of 8 groups"]
    assert answer["bootstrap"] == ["pi_env: 5 of 9 steps, loss 1.000"]
