"""What the start reached, in lines.

Invariants: a warm start's line says whether its target was met, or that so few steps were not
looked at; a given model has no line, and its first texts have none; nothing is said of what is not
measured yet.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from genenv_core.config.sections.models import BootstrapConfig
from genenv_core.config.stages import WARM_STARTS
from genenv_core.epoch.reached import reached_lines
from genenv_core.training.warm_start.request import WarmStartResult, warm_started
from genenv_core.types import Policy
from tests.mutations import mutation

REACHED = "genenv_core/epoch/reached.py"
SETTINGS = BootstrapConfig(agent_steps=300, env_steps=200, agent_target=0.5)
MEASURED = {"heldout_success": 0.208, "heldout_answer_probability": 0.112}
FIRST = {"epoch": 1, "tasks_generated": 16, "tasks_valid": 12}


def facts(**metrics: dict[str, float]) -> dict[str, Any]:
    """Return the facts of bootstrap after warm starts of 150 steps with these metrics."""
    made = {
        policy: WarmStartResult(
            policy=Policy(policy), checkpoint=Path("c"), steps=150, metrics=told, cpu_s=1.0
        )
        for policy, told in metrics.items()
    }
    return {WARM_STARTS: {policy: warm_started(one, SETTINGS) for policy, one in made.items()}}


@mutation(
    "a target that was missed counts as reached", REACHED,
    'told["accuracy"] >= told["target"]', 'told["accuracy"] >= 0',
)  # fmt: skip
def test_what_bootstrap_reached_is_said() -> None:
    both = facts(agent={"loss": 0.25, "accuracy": 0.125}, env={"loss": 1.5})
    assert reached_lines(both, MEASURED, FIRST) == [
        "pi_agent: 150 of 300 steps, loss 0.250, answers 0.125 of fresh examples exactly: "
        "bootstrap.agent_target 0.5 not reached",
        "pi_env: 150 of 200 steps, loss 1.500",
        "pi_agent on the test tasks in epoch 0: sampled 0.208, P(answer) 0.112",
        "pi_env wrote 16 texts in epoch 1, 12 of them valid (75%)",
    ]
    assert len(reached_lines(both, {}, {})) == 2


@pytest.mark.parametrize(
    "accuracy, words",
    [
        ({"accuracy": 0.5}, "bootstrap.agent_target 0.5 reached"),
        ({}, "bootstrap.agent_target 0.5 not looked at in so few steps"),
    ],
)
def test_a_target_is_met_or_was_not_looked_at(accuracy: dict[str, float], words: str) -> None:
    (line,) = reached_lines(facts(agent={"loss": 0.25, **accuracy}), {}, {})
    assert line.endswith(words)


def test_a_given_model_is_left_as_it_is_or_taught() -> None:
    told = {"steps": 12.0, "steps_planned": 60.0, "right": 41.0, "of": 64.0, "reached": 41 / 64}
    both = {"env": told | {"loss": 0.5, "target": 0.6}, "agent": told | {"steps": 0, "target": 0.7}}
    assert reached_lines({WARM_STARTS: both}, {}, {}) == [
        "pi_env: 12 of 60 steps, loss 0.500, 41 of 64 texts are valid tasks: "
        "warm_start.env_target 0.6 reached",
        "pi_agent: 0 of 60 steps, left as it was given, answers 41 of 64 fresh examples exactly: "
        "warm_start.agent_target 0.7 not reached",
    ]


@mutation(
    "the first texts of a given model are counted", REACHED,
    "if not written or Policy.ENV not in", "if not written or not",
)  # fmt: skip
def test_a_given_model_reached_nothing_in_bootstrap() -> None:
    lines = reached_lines(facts(agent={"loss": 0.25}), MEASURED, FIRST)
    assert [line.split(" ")[0] for line in lines] == ["pi_agent:", "pi_agent"]
    assert reached_lines({}, MEASURED, FIRST) == []
