"""What `genenv run` prints while it works and at its end.

Invariants: how far a stage is comes as a plain line where one is due, and what each warm start and
pi_env's first texts reached as lines of their own; the last lines say what came out and what is
wrong, as the record of the run has it, and a run whose record cannot be read ends all the same.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from flows.benchmark import measured
from flows.cli.runs.live import RunView
from flows.coevolution import play
from flows.preparing import prepare, prepare_measurement
from genenv_core.config.load import resolve
from genenv_core.config.requests_beside import EpochRequest
from genenv_core.config.schema import RunConfig
from genenv_core.domains.arithmetic import Arithmetic
from genenv_core.errors import QueryError
from genenv_core.report import outcome
from genenv_core.report.outcome import outcome_of_run
from genenv_core.storage.records.runs import RunLog, list_runs
from genenv_core.storage.store.local import LocalStore
from schemas.enums import StageState
from tasks.stage.progress import Event, emit
from tasks.upkeep.opening import open_run
from tests.mutations import mutation
from tests.unit.builders_root import small_root

LIVE = "flows/cli/runs/live.py"
SUMMARY = {"heldout_success": 0.5, "grpo_steps": 1, "rwr_steps": 1}


def closing(root: Path, capsys: pytest.CaptureFixture[str], *, quiet: bool = False) -> str:
    """Return the last lines of the run of a small root."""
    small_root(root)
    config = resolve("tiny", overrides=[f"root={root}", "tracking.enabled=false"])
    config = config.model_copy(update={"run_id": "run-a"})
    with RunView(config, quiet=quiet) as view:
        emit(Event("started", "publish", 1))
        facts = {"summary": SUMMARY, "gates": {}}
        emit(Event("finished", "publish", 1, StageState.COMPUTED, facts=facts))
        capsys.readouterr()
        view.finish(1.0, 2.0)
    return capsys.readouterr().out


@mutation(
    "the last lines do not name the page", LIVE, 'say(f"  genenv view{root}")', "pass",
)  # fmt: skip
@mutation(
    "the last lines forget what is wrong", LIVE,
    "for one in outcome.recent if outcome else ():", "for one in ():",
)  # fmt: skip
@pytest.mark.slow
def test_the_last_lines_say_what_came_out_and_what_is_wrong(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = closing(tmp_path, capsys).splitlines()
    known = outcome_of_run(LocalStore(tmp_path), "run-a")
    for line in known.lines:
        assert line in said
    assert known.recent
    for one in known.recent:
        assert f"{one.severity}: {one.line}" in said
    for command in ("genenv view", "genenv report run-a"):
        assert f"  {command} --root {tmp_path}" in said


@pytest.mark.slow
def test_the_last_lines_hold_the_same_as_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = json.loads(closing(tmp_path, capsys, quiet=True))
    known = outcome_of_run(LocalStore(tmp_path), "run-a")
    assert said["outcome"]["gain"] == known.gain
    assert [one["rule"] for one in said["findings"]] == [one.rule for one in known.findings]


def test_a_run_whose_tables_cannot_be_read_ends_all_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(*_: object) -> None:
        raise QueryError("the [tables] are away")

    monkeypatch.setattr(outcome, "outcome_of_run", gone)
    said = closing(tmp_path, capsys)
    assert "what came out is not known: the [tables] are away\n" in said and "done in 2 s" in said


@mutation("a warm start says again what bootstrap said", LIVE, "if line not in before:", "if True:")
@mutation(
    "a run without a terminal is silent while a stage works", LIVE,
    "if event.due and not self._live:", "if False:",
)  # fmt: skip
def test_a_run_says_how_far_bootstrap_is_and_what_it_reached(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = resolve("tiny", overrides=[f"root={tmp_path}", "tracking.enabled=false"])
    warm = {"agent": {"steps": 9, "steps_planned": 9, "loss": 0.25, "target": 0.5}}
    warm["env"] = {"steps": 5, "steps_planned": 5, "loss": 1.0}
    written = {"tasks_generated": 8, "tasks_valid": 6, "agent_action": "updated"}
    with RunView(config, quiet=False):
        emit(Event("started", "bootstrap", 0))
        for due in (False, True):
            emit(Event("advanced", "bootstrap", 0, done=3, total=9, unit="steps", due=due))
        made = {"warm_starts": {"env": warm["env"]}}
        emit(Event("finished", "bootstrap", 0, StageState.COMPUTED, facts=made))
        emit(Event("started", "warm_start", 0))
        emit(Event("finished", "warm_start", 0, StageState.COMPUTED, facts={"warm_starts": warm}))
        emit(Event("started", "publish", 1))
        facts = {"summary": {**SUMMARY, **written}, "gates": {}}
        emit(Event("finished", "publish", 1, StageState.COMPUTED, facts=facts))
    said = capsys.readouterr().out.splitlines()
    assert said.count("bootstrap of epoch 0: 3 of 9 steps") == 1
    assert said.count("pi_env: 5 of 5 steps, loss 1.000") == 1
    assert sum(line.startswith("pi_agent: 9 of 9 steps, loss 0.250") for line in said) == 1
    assert said[-1] == "pi_env wrote 8 texts in epoch 1, 6 of them valid (75%)"


class Fixed(Arithmetic):
    """A domain of one's own over a set of forty tasks."""

    def fixed_tasks(self) -> int:
        return 40


def over_a_fixed_set(folder: Path, *settings: str) -> RunConfig:
    """Return the configuration of a run over forty tasks."""
    own = [f"root={folder / 'root'}", f"domain.name={__name__}:Fixed"]
    config = resolve("tiny", overrides=[*own, "tracking.enabled=false", *settings])
    return config.model_copy(update={"run_id": "run-a"})


@mutation(
    "the first lines keep quiet about a fixed set", LIVE,
    "in event.facts.get(FIXED_SETS, {}).items():", "in ():",
)  # fmt: skip
@mutation(
    "nobody counts the fixed sets before a run", "flows/preparing.py",
    "        return _fixed(config, domain)\n", "        return {}\n",
)  # fmt: skip
@mutation(
    "a run does not note its fixed set", "tasks/upkeep/opening.py",
    "open(values, datetime.now(UTC), fixed, folder)",
    "open(values, datetime.now(UTC), folder=folder)",
)  # fmt: skip
def test_a_run_over_a_fixed_set_says_so_first_and_last(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flows.coevolution.begin", lambda prepared: None)
    root, config = tmp_path / "root", over_a_fixed_set(tmp_path)
    name = config.domain.name
    with RunView(config, quiet=False):
        play(prepare(config))
    first = f"{name}: pi_env writes no tasks and chooses among 40 that are there"
    assert capsys.readouterr().out.splitlines()[1].startswith(first)
    (last,) = outcome_of_run(LocalStore(root), "run-a").fixed_sets
    assert (last.domain, last.tasks, last.played) == (name, 40, 0)
    open_run(config.model_copy(update={"domain": resolve("tiny").domain}), {})
    assert outcome_of_run(LocalStore(root), "run-a").fixed_sets == ()


MEASURED = (
    "arm=base", "benchmark.url=http://127.0.0.1:1/v1", "benchmark.model_name=m",
    "benchmark.certify_base=2",
)  # fmt: skip


@mutation(
    "a run is opened without its fixed sets", "flows/coevolution.py",
    "open_run(config, prepared.fixed, said)", "open_run(config, {}, said)", by="[run]",
)  # fmt: skip
@mutation(
    "a measurement is opened without its fixed sets", "flows/benchmark.py",
    "open_run(prepared.config, prepared.fixed)", "open_run(prepared.config, {})",
    by="[measurement]",
)  # fmt: skip
@mutation(
    "one epoch opens its run without its fixed sets", "flows/deploy/deployed.py",
    "open_run(config, prepared.fixed)", "open_run(config, {})", by="[epoch]",
)  # fmt: skip
@pytest.mark.parametrize("flow", ["run", "measurement", "epoch"])
def test_whatever_opens_a_run_notes_the_fixed_sets_that_were_prepared(
    flow: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = over_a_fixed_set(tmp_path, *(MEASURED if flow == "measurement" else ()))
    if flow == "run":
        monkeypatch.setattr("flows.coevolution.begin", lambda prepared: None)
        play(prepare(config))
    elif flow == "measurement":
        monkeypatch.setattr("flows.benchmark.benchmark", lambda *_: None)
        measured(prepare_measurement(config))
    else:
        from flows.deploy import deployed

        for name in ("state_before", "_carry_out"):
            monkeypatch.setattr(deployed, name, lambda *_: None)
        monkeypatch.setattr(deployed, "recorded", lambda request: config)
        deployed.epoch.fn(EpochRequest(run_id="run-a", epoch=1))
    store = LocalStore(tmp_path / "root")
    (run,) = list_runs(store)
    assert RunLog(store, run).info().fixed_tasks == {config.domain.name: 40}
