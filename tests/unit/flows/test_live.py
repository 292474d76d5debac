"""What `genenv run` prints while it works and at its end.

Invariants: how far a stage is comes as a plain line where one is due, and what each warm start and
pi_env's first texts reached as lines of their own; what is wrong with the tasks of an epoch is in
the last lines, with how many epochs have such a line; without one there is no word of it.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from flows.cli.runs.live import RunView
from genenv_core.config.load import resolve
from schemas.enums import StageState
from tasks.stage.progress import Event, emit
from tests.mutations import mutation

LIVE = "flows/cli/runs/live.py"
SUMMARY = {"heldout_success": 0.5, "grpo_steps": 1, "rwr_steps": 1}


def closing(root: Path, capsys: pytest.CaptureFixture[str], *notes: str) -> str:
    """Return the last lines of a run whose epochs have these notes."""
    config = resolve("tiny", overrides=[f"root={root}", "tracking.enabled=false"])
    with RunView(config, quiet=False) as view:
        for epoch, note in enumerate(notes, 1):
            emit(Event("started", "publish", epoch))
            facts = {"summary": {**SUMMARY, "tasks_note": note}, "gates": {}}
            emit(Event("finished", "publish", epoch, StageState.COMPUTED, facts=facts))
        capsys.readouterr()
        view.finish(1.0, 2.0)
    return capsys.readouterr().out


@mutation(
    "the last lines forget what is wrong with tasks", LIVE,
    "        if notes:\n", "        if 0:\n",
)  # fmt: skip
def test_the_last_lines_say_what_is_wrong_with_tasks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = closing(tmp_path, capsys, "epoch 1: all alike", "epoch 2: [all] alike")
    assert "warning: epoch 2: [all] alike (2 epochs have such a line)\n" in said
    assert "warning" not in closing(tmp_path, capsys, "", "")


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
