"""Gates of a checkpoint.

Invariants: a healthy candidate passes; each gate closes alone, only past its limit, and names the
value, the limit and the field to change; a NaN anywhere closes first; a value equal to its limit
closes no gate, in spite of float rounding.
"""

from __future__ import annotations

import math

import pytest

from genenv_core.algorithm.gates import GateResult, agent_gate, env_gate
from genenv_core.config.sections.evaluation import GatesConfig
from schemas.enums import Gate
from tests.mutations import mutation

ALGORITHM_GATES = "genenv_core/algorithm/gates.py"

GATES = GatesConfig(
    max_kl_env=30, min_fidelity=0.4, min_entropy=0.05, min_reward_std=0.1, max_validation_drop=0.1
)
HEALTHY = {"entropy": 0.8, "reward_std": 0.4, "loss": -0.01}


def agent(validation: float = 0.6, current: float = 0.6, **metrics: float) -> GateResult:
    return agent_gate(HEALTHY | metrics, GATES, validation=validation, current=current)


@mutation(
    "the entropy gate is flipped", ALGORITHM_GATES,
    'metrics["entropy"] < gates.min_entropy', 'metrics["entropy"] > gates.min_entropy',
)  # fmt: skip
def test_healthy_candidates_pass() -> None:
    assert agent() == GateResult(Gate.OPEN, "")
    assert env_gate({"kl_env": 3.0, "loss": 1.0}, GATES) == GateResult(Gate.OPEN, "")


@mutation(
    "a better candidate closes the held-out gate", ALGORITHM_GATES,
    "if current - validation >", "if validation - current >",
)  # fmt: skip
@mutation(
    "a lie passes the gates", ALGORITHM_GATES,
    'metrics.get("fidelity", 1.0) >=', 'metrics.get("fidelity", 1.0) >= 0 *',
)  # fmt: skip
@pytest.mark.parametrize(
    ("result", "gate", "texts"),
    [
        (agent(entropy=0.049), Gate.ENTROPY, ("0.0490", "gates.min_entropy 0.05")),
        (agent(reward_std=0.09), Gate.REWARD_STD, ("0.0900", "gates.min_reward_std 0.1")),
        (agent(validation=0.45), Gate.VALIDATION_DROP, ("0.1500", "gates.max_validation_drop 0.1")),
        (agent(fidelity=0.39), Gate.FIDELITY, ("learned from", "0.3900", "gates.min_fidelity 0.4")),
        (env_gate({"kl_env": 30.5}, GATES), Gate.KL_ENV, ("30.500", "gates.max_kl_env 30")),
        (
            env_gate({"kl_env": 2.0, "fidelity": 0.39}, GATES),
            Gate.FIDELITY,
            ("0.3900", "gates.min_fidelity 0.4"),
        ),
    ],
)
def test_each_gate_closes_alone_and_says_why(
    result: GateResult, gate: Gate, texts: tuple[str, str]
) -> None:
    assert result.gate is gate
    for text in texts:
        assert text in result.detail


def test_a_limit_met_exactly_does_not_close() -> None:
    assert agent(entropy=0.05, reward_std=0.1).gate is Gate.OPEN
    assert env_gate({"kl_env": 30.0, "fidelity": 0.4}, GATES).gate is Gate.OPEN
    third = GATES.model_copy(update={"min_fidelity": 0.1 + 0.2})
    assert 0.1 + 0.2 > 0.3  # in floats
    assert (
        agent_gate(HEALTHY | {"fidelity": 0.3}, third, validation=0.6, current=0.6).gate
        is Gate.OPEN
    )
    assert 0.8 - 0.7 > 0.1  # in floats
    assert agent(validation=0.7, current=0.8).gate is Gate.OPEN
    assert agent(validation=0.699, current=0.8).gate is Gate.VALIDATION_DROP


def test_without_simulated_tools_no_fidelity_is_asked_for() -> None:
    strict = GATES.model_copy(update={"min_fidelity": 1.0})
    assert env_gate({"kl_env": 2.0}, strict).gate is Gate.OPEN
    assert agent_gate(HEALTHY, strict, validation=0.6, current=0.6).gate is Gate.OPEN


def test_a_lie_is_named_before_what_it_leads_to() -> None:
    lied = {"fidelity": 0.0}
    assert agent(entropy=0.0, validation=0.0, **lied).gate is Gate.FIDELITY
    assert env_gate({"kl_env": 99.0, **lied}, GATES).gate is Gate.FIDELITY
    assert agent(fidelity=math.nan).gate is Gate.NON_FINITE


def test_a_better_candidate_passes_however_large_the_step() -> None:
    assert agent(validation=1.0, current=0.0).gate is Gate.OPEN


@mutation(
    "the gate of pi_env reads the leash", ALGORITHM_GATES,
    'if metrics["kl_env"] > gates.max_kl_env:',
    'if metrics.get("kl_leash", metrics["kl_env"]) > gates.max_kl_env:',
)  # fmt: skip
def test_pi_env_is_judged_by_fresh_generations_and_not_by_the_leash() -> None:
    fitted = {"kl_env": 30.5, "kl_env_se": 1.0, "kl_leash": 2.0}
    assert env_gate(fitted, GATES).gate is Gate.KL_ENV
    assert env_gate(fitted | {"kl_env": 2.0, "kl_leash": 30.5}, GATES).gate is Gate.OPEN


@mutation(
    "a NaN passes the gates of pi_env", ALGORITHM_GATES, "not_finite(sorted(metrics.items()))", '""'
)
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_nan_closes_first_and_names_the_metric(bad: float) -> None:
    assert agent(loss=bad) == GateResult(Gate.NON_FINITE, f"loss is {bad}")
    assert agent(entropy=bad).gate is Gate.NON_FINITE
    assert agent(loss=bad, entropy=0.0, validation=0.0).gate is Gate.NON_FINITE
    assert env_gate({"kl_env": bad}, GATES) == GateResult(Gate.NON_FINITE, f"kl_env is {bad}")
    assert env_gate({"kl_env": 99.0, "loss": bad}, GATES).gate is Gate.NON_FINITE


def test_a_nan_in_the_evaluation_closes_as_well() -> None:
    assert agent(validation=math.nan) == GateResult(Gate.NON_FINITE, "validation is nan")
    assert agent(current=math.nan) == GateResult(Gate.NON_FINITE, "validation_current is nan")
