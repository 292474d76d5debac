"""What `genenv run` prints while it works and at its end.

Invariants: what is wrong with the tasks of an epoch is in the last lines, with how many epochs have
such a line; without one there is no word of it.
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
