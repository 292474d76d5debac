"""Gates of a checkpoint: names the first one that keeps a candidate from being published."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from genenv_core.algorithm.selection import TOLERANCE
from genenv_core.checks import not_finite
from genenv_core.config.sections.evaluation import GatesConfig
from schemas.enums import Gate


@dataclass(frozen=True, slots=True)
class GateResult:
    """The outcome: `gate` is open, or names the first closed gate, with value and limit."""

    gate: Gate = Gate.OPEN
    detail: str = ""


def agent_gate(
    metrics: Mapping[str, float],
    gates: GatesConfig,
    *,
    validation: float,
    current: float,
) -> GateResult:
    """Return the gate of a pi_agent candidate: NaN, truth, entropy, reward spread, validation drop.

    `validation` is the candidate's success, `current` that of the checkpoint it would replace. Both
    are fractions, so the limit of their drop has a tolerance. Where pi_env played the tools, the
    metric `fidelity` is the mean over the answers that the candidate learned from.
    """
    measured = {**metrics, "validation": validation, "validation_current": current}
    if bad := not_finite(sorted(measured.items())):
        return GateResult(Gate.NON_FINITE, bad)
    if not _is_true(metrics, gates):
        return _untrue(metrics, gates, "the tools' answers that it learned from have")
    if metrics["entropy"] < gates.min_entropy:
        return GateResult(
            Gate.ENTROPY,
            f"mean token entropy {metrics['entropy']:.4f} < gates.min_entropy "
            f"{gates.min_entropy:g}",
        )
    if metrics["reward_std"] < gates.min_reward_std:
        return GateResult(
            Gate.REWARD_STD,
            f"reward std {metrics['reward_std']:.4f} < gates.min_reward_std "
            f"{gates.min_reward_std:g}",
        )
    if current - validation > gates.max_validation_drop + TOLERANCE:
        return GateResult(
            Gate.VALIDATION_DROP,
            f"validation success {validation:.4f} is {current - validation:.4f} below the current "
            f"checkpoint's, gates.max_validation_drop {gates.max_validation_drop:g}",
        )
    return GateResult()


def env_gate(metrics: Mapping[str, float], gates: GatesConfig) -> GateResult:
    """Return the gate of a pi_env candidate: NaN, truth, then KL to the initial simulator.

    The metric `fidelity`, where pi_env plays the tools, is that of the candidate's own answers.
    """
    if bad := not_finite(sorted(metrics.items())):
        return GateResult(Gate.NON_FINITE, bad)
    if not _is_true(metrics, gates):
        return _untrue(metrics, gates, "its answers in the place of the tools have")
    if metrics["kl_env"] > gates.max_kl_env:
        return GateResult(
            Gate.KL_ENV,
            f"KL to the initial simulator {metrics['kl_env']:.3f} nats a sequence > "
            f"gates.max_kl_env {gates.max_kl_env:g}",
        )
    return GateResult()


def _is_true(metrics: Mapping[str, float], gates: GatesConfig) -> bool:
    return metrics.get("fidelity", 1.0) >= gates.min_fidelity - TOLERANCE


def _untrue(metrics: Mapping[str, float], gates: GatesConfig, what: str) -> GateResult:
    return GateResult(
        Gate.FIDELITY,
        f"{what} mean fidelity {metrics['fidelity']:.4f} < gates.min_fidelity "
        f"{gates.min_fidelity:g}",
    )
