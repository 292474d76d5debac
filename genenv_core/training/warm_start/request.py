"""The request and the result of a warm start; loads no torch, as parents of workers import it."""

from __future__ import annotations

import os
from array import array
from pathlib import Path
from typing import Any

from pydantic import Field

from genenv_core.config.sections.models import BootstrapConfig
from genenv_core.record import Record
from genenv_core.types import JsonObject, Policy


class WarmStartRequest(Record):
    """One warm start: a policy of a domain, and the folder of its checkpoint.

    The file `steps`, where one is named, grows with each step: see `note_step`.
    """

    policy: Policy
    domain_name: str
    domain_options: JsonObject = Field(default_factory=dict[str, Any])
    output: Path
    settings: BootstrapConfig
    seed: int
    threads: int = Field(ge=1)
    steps: Path | None = None


class WarmStartResult(Record):
    """The result of a warm start.

    `metrics`: loss (mean of the last tenth of the steps), parameters, tokens (trained on, padding
    included), and for pi_agent accuracy (greedy, on fresh seed examples, once 50 steps are done).
    `cpu_s` is this process's and differs between equal runs.
    """

    policy: Policy
    checkpoint: Path
    steps: int
    metrics: dict[str, float]
    cpu_s: float


RECENT = 20
"""Steps over which to average the loss for a person who watches."""


def note_step(steps: Path, loss: float) -> None:
    """Append the loss of a finished step to a file of float64, 8 bytes each, in machine order."""
    with steps.open("ab") as file:
        file.write(array("d", [loss]).tobytes())


def noted_steps(steps: Path) -> tuple[int, float | None]:
    """Return the number of finished steps in such a file, and the mean loss of the last `RECENT`.

    The loss is None before the first step, also where there is no file yet.
    """
    losses = array("d")
    try:
        with steps.open("rb") as file:
            done = file.seek(0, os.SEEK_END) // losses.itemsize
            file.seek(max(0, done - RECENT) * losses.itemsize)
            losses.frombytes(file.read(min(done, RECENT) * losses.itemsize))
    except FileNotFoundError:
        return 0, None
    return done, sum(losses) / len(losses) if losses else None


def warm_started(result: WarmStartResult, settings: BootstrapConfig) -> dict[str, float]:
    """Return how far a warm start came: `steps` of `steps_planned`, and its own metrics.

    Those are loss, parameters and tokens, and for pi_agent accuracy, with the `target` at which it
    stops. Accuracy is missing where the warm start ended before its first measurement.
    """
    agent = result.policy is Policy.AGENT
    planned = settings.agent_steps if agent else settings.env_steps
    target = {"target": settings.agent_target} if agent else {}
    return {**result.metrics, "steps": result.steps, "steps_planned": planned, **target}
