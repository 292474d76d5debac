"""What `genenv what-if` may change of a run's settings, and what the evidence of it counts.

Invariants: only fields that choose among the tasks written are foreseen, every other one is refused
with the command that plays it; coverage counts the means that their intervals hold, by rule and by
measure, and refused cases apart.
"""

from __future__ import annotations

from typing import Any

import pytest

from flows.evidence.foreseen import RULES, coverage
from genenv_core.config.load import resolve
from genenv_core.errors import ConfigError
from genenv_core.evidence.foreseen import other_rule
from tests.mutations import mutation

CONFIG = resolve("quickstart").model_copy(update={"run_id": "one"})


def test_fields_of_the_choice_are_foreseen() -> None:
    found = other_rule(CONFIG, ["generation.random_share=0.3", "curriculum.alpha=0.6"])
    assert (found.generation.random_share, found.curriculum.alpha) == (0.3, 0.6)
    assert found.generation.candidates == CONFIG.generation.candidates
    assert all(other_rule(CONFIG, given) for given in RULES.values())


@mutation(
    "whatever is set is foreseen", "genenv_core/evidence/foreseen.py",
    "if field not in CHOOSES.get(section, ()):", "if False:",
)  # fmt: skip
@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("rollout.n=4", "rollout.n"),
        ("generation.temperature=0.5", "generation.temperature"),
        ("generation.prediction_epochs=3", "generation.prediction_epochs"),
        ("curriculum.level=batch", "curriculum.level"),
        ("rwr.lambda=0", "rwr.lambda"),
        ("epochs=9", "epochs"),
        ("domain.options.explain=true", "domain.options.explain"),
        ("domain.options.explain=null", "domain.options.explain"),
    ],
)
def test_other_fields_are_refused(given: str, name: str) -> None:
    told = rf"--set {name}: it changes more than .* genenv run --from one@EPOCH --set {name}=VALUE"
    with pytest.raises(ConfigError, match=told):
        other_rule(CONFIG, [given])
    with pytest.raises(ConfigError, match="--set is missing"):
        other_rule(CONFIG, [])


def row(rule: str, measure: str, played: float) -> dict[str, Any]:
    values = {"unseen": 4, "foreseen": 0.5, "low": 0.4, "high": 0.6, "played": played}
    return {"rule": rule, "measure": measure, **values}


@mutation(
    "an interval holds what is above it", "flows/evidence/foreseen.py",
    'row["low"] <= row["played"] <= row["high"]', 'row["low"] <= row["played"]',
)  # fmt: skip
def test_coverage() -> None:
    rows = [row("a", "p_hat", 0.45), row("a", "p_hat", 0.65), row("b", "r_env", 0.6)]
    lines = coverage([*rows, {"rule": "b", "refused": "no"}])
    assert lines[1:] == [
        "a | p_hat | 2 | 4 | 0.500 | 0.100 | 0.112 | -0.050",
        "b | r_env | 1 | 4 | 1.000 | 0.100 | 0.100 | -0.100",
        "all | p_hat | 2 | 4 | 0.500 | 0.100 | 0.112 | -0.050",
        "all | r_env | 1 | 4 | 1.000 | 0.100 | 0.100 | -0.100",
        "all | all | 3 | 4 | 0.667 | 0.100 | 0.108 | -0.067",
        "refused: 1",
    ]
