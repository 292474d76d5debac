"""Says in lines how far each warm start came, and how well the first models do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from genenv_core.config.stages import WARM_STARTS
from genenv_core.types import Policy


def warm_start_lines(bootstrap: Mapping[str, Any]) -> list[str]:
    """Return a line for each warm start, from the facts of the stage that has `WARM_STARTS`."""
    warm_starts: Mapping[str, Mapping[str, float]] = bootstrap.get(WARM_STARTS, {})
    return [warm_start_line(policy, told) for policy, told in warm_starts.items()]


def first_texts_line(bootstrap: Mapping[str, Any], epoch: Mapping[str, Any]) -> str:
    """Return how many of the first texts of a warm-started pi_env are valid, or ''.

    `epoch` is the row of `epochs` of epoch 1: the checkpoint of bootstrap wrote its texts.
    """
    written = epoch.get("tasks_generated")
    if not written or Policy.ENV not in bootstrap.get(WARM_STARTS, {}):
        return ""
    valid = epoch["tasks_valid"]
    return f"pi_env wrote {written} texts in epoch 1, {valid} of them valid ({valid / written:.0%})"


def agent_line(measured: Mapping[str, float | None]) -> str:
    """Return how the first pi_agent does on the test tasks, from the columns of `epochs`."""
    named = {
        "sampled": measured.get("heldout_success"),
        "greedy": measured.get("heldout_success_greedy"),
        "P(answer)": measured.get("heldout_answer_probability"),
    }
    values = [f"{name} {value:.3f}" for name, value in named.items() if value is not None]
    return f"pi_agent on the test tasks in epoch 0: {', '.join(values)}" if values else ""


def reached_lines(
    bootstrap: Mapping[str, Any],
    measured: Mapping[str, float | None],
    epoch: Mapping[str, Any],
) -> list[str]:
    """Return the lines of all three functions above; a mapping without its values gives no line.

    `bootstrap` are the facts of that stage, `measured` and `epoch` rows of `epochs` as above.
    """
    lines = [*warm_start_lines(bootstrap), agent_line(measured), first_texts_line(bootstrap, epoch)]
    return [line for line in lines if line] if WARM_STARTS in bootstrap else []


def warm_start_line(policy: str, told: Mapping[str, float]) -> str:
    """Return what one warm start reached; `told` is its part of `WARM_STARTS`."""
    line = f"pi_{policy}: {told['steps']:.0f} of {told['steps_planned']:.0f} steps, "
    line += f"loss {told['loss']:.3f}" if "loss" in told else "left as it was given"
    if "right" in told:
        done = "answers {:.0f} of {:.0f} fresh examples exactly"
        if policy == Policy.ENV:
            done = "{:.0f} of {:.0f} texts are valid tasks"
        met = "reached" if told["reached"] >= told["target"] else "not reached"
        named = f"warm_start.{policy}_target {told['target']:g}"
        return f"{line}, {done.format(told['right'], told['of'])}: {named} {met}"
    if "target" not in told:
        return line
    target = f"bootstrap.agent_target {told['target']:g}"
    if "accuracy" not in told:
        return f"{line}, {target} not looked at in so few steps"
    met = "reached" if told["accuracy"] >= told["target"] else "not reached"
    return f"{line}, answers {told['accuracy']:.3f} of fresh examples exactly: {target} {met}"
