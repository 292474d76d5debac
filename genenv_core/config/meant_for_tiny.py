"""Finds settings that fit the tiny models of bootstrap, and ruin a given model or teach it nothing.

A rate of 1e-4 moves a model of 0.2 M weights within a few steps. Three steps at that rate took
SmolLM2-135M to a KL of 6e7: it then repeated one word. A rate for whole weights hardly moves
adapters: after 24 steps of a warm start at 3e-5, SmolLM2-135M with adapters of rank 16 answered 1
of 32 examples; with whole weights it answers 12 after six steps.
"""

from __future__ import annotations

from genenv_core.config.load import resolve
from genenv_core.config.schema import RunConfig
from genenv_core.config.sections.data import DomainConfig
from genenv_core.config.sections.updates import UpdateSettings
from genenv_core.config.stages import STAGES, update_of
from genenv_core.types import Policy

MADE = "bootstrap"
"""The value of `models.agent` and `models.env` where bootstrap makes the model."""

ADAPTERS_FASTER = 10
"""How many times the rate of whole weights adapters want."""

EXPLAINED = ("desk", "trails")
"""Domains whose prompts hold their rules only with the option `explain`."""


def meant_for_tiny(config: RunConfig) -> list[str]:
    """Return a warning for each field of a run of given models that suits only tiny ones.

    A learning rate suits only tiny models from its default upwards. The warning names the value of
    a preset for given models: paper-small for adapters, else paper.
    """
    name = "paper-small" if config.training.lora.rank else "paper"
    lines = [
        line
        for policy in Policy
        if getattr(config.models, policy) != MADE and (line := _rate(config, policy, name))
    ]
    given = {config.models.agent, config.models.env} != {MADE}
    if given:
        lines += [
            f"{field} is off, so a given model reads tasks of {domain} without the rules, which "
            f"tiny models are trained on; preset {name} has true: {remedy}"
            for domain, field, remedy in _unexplained(config.domain)
        ]
    return [*lines, *_slow_adapters(config)]


def _slow_adapters(config: RunConfig) -> list[str]:
    """Return a warning where a warm start trains adapters at a rate for whole weights, else []."""
    own, rank = config.warm_start, config.training.lora.rank
    usual = type(own).model_fields["learning_rate"].default
    if not (config.warm_started and rank and own.learning_rate <= usual):
        return []
    better = ADAPTERS_FASTER * own.learning_rate
    return [
        f"warm_start.learning_rate is {own.learning_rate:g}, which is for whole weights, and "
        f"adapters (training.lora.rank {rank}) learn little at it: --set "
        f"warm_start.learning_rate={better:g}"
    ]


def _rate(config: RunConfig, policy: Policy, preset: str) -> str:
    """Return the warning about the rate of a policy's update, '' for a rate that may stay."""
    section = STAGES[update_of(policy)].settings
    own: UpdateSettings = getattr(config, section)
    if own.learning_rate < type(own).model_fields["learning_rate"].default:
        return ""
    better = getattr(resolve(preset), section).learning_rate
    return (
        f"{section}.learning_rate is {own.learning_rate:g}, which is for the tiny models of "
        f"bootstrap and ruins a pretrained one; preset {preset} has {better:g}: --set "
        f"{section}.learning_rate={better:g}"
    )


def _unexplained(domain: DomainConfig) -> list[tuple[str, str, str]]:
    """Return (name, field, remedy) of each domain whose prompts do not explain its rules."""
    own = "domain.options.explain"
    found = [(domain.name, domain.options, own, f"--set {own}=true")]
    for place, part in enumerate(domain.options.get("parts", [])):
        field = f"domains[{place}].options.explain"
        found.append((part.get("name"), part.get("options") or {}, field, "set it there"))
    return [
        (name, field, remedy)
        for name, options, field, remedy in found
        if name in EXPLAINED and not options.get("explain")
    ]
