"""One stage or one epoch of a run, and a stage that fails on purpose.

Invariants: a stage is found with the inputs that the run would give it, or an error names the
missing one; a fault is refused unless it is allowed, and ends with the first attempt; the error of
a failed stage is raised, also when others wait for that stage.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from flows.planner import planned_stage, state_before
from flows.preparing import prepare
from genenv_core.errors import ConfigError, StageError
from tasks.stage.inputs import identities
from tests.pipeline.builders import computed, run, states, tiny


def test_a_stage_of_a_run_is_found_with_its_inputs(api: None, tiny_root: Path):
    # Settings of its own, so that epoch 2 is nobody's yet.
    config = tiny(tiny_root, "curriculum.beta=4.5", epochs=1, run_id="parts")
    run(config)
    asked = prepare(config)
    rollout = planned_stage(asked, "rollout", 1)
    assert rollout.status == "hit"
    assert set(identities(rollout.inputs)) == {"tasks", "bootstrap", "agent"}
    assert planned_stage(asked, "bootstrap", 1).epoch == 0
    following = planned_stage(asked, "generate_tasks", 2)
    assert (following.status, following.epoch) == ("miss", 2)
    assert following.inputs.env == state_before(asked, 2).env
    for stage, number in (("rollout", 2), ("generate_tasks", 3), ("evaluate", 2)):
        with pytest.raises(ConfigError, match="generate_tasks of epoch 2 of run parts is not"):
            planned_stage(asked, stage, number)
    with pytest.raises(ConfigError, match="no rollout in epoch 0"):
        planned_stage(asked, "rollout", 0)
    with pytest.raises(ConfigError, match="generate_tasks of epoch 2 of run parts is not"):
        state_before(asked, 3)


def test_a_stage_that_fails_on_purpose(api: None, tiny_root: Path, monkeypatch: pytest.MonkeyPatch):
    fault = ("execution.test_fault=evaluate:1", "evaluation.samples=2")
    config = tiny(tiny_root, *fault, epochs=1, run_id="fault")
    monkeypatch.delenv("GENENV_TEST_FAULTS", raising=False)
    with pytest.raises(ConfigError, match=r"execution\.test_fault 'evaluate:1' is for"):
        run(config)
    assert states(config) == []
    monkeypatch.setenv("GENENV_TEST_FAULTS", "1")
    with pytest.raises(StageError, match=r"evaluate of epoch 1: execution\.test_fault"):
        run(config)
    before = states(config)
    run(config)
    assert computed(states(config)[len(before) :]) == {(1, "evaluate"), (1, "publish")}
