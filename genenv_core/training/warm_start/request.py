"""What a warm start is asked for and what it did; light, because the parent of workers loads it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import Field

from genenv_core.config.sections.models import BootstrapConfig
from genenv_core.record import Record
from genenv_core.types import JsonObject, Policy


class WarmStartRequest(Record):
    """One warm start: a policy of a domain, and the folder of its checkpoint.

    The file `steps`, where one is named, grows by one byte a step.
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
    """What a warm start did.

    `metrics`: loss (mean of the last tenth of the steps), parameters, tokens (trained on, padding
    included), and for pi_agent accuracy (greedy, on fresh seed examples, once 50 steps are done).
    `cpu_s` is this process's and differs between equal runs.
    """

    policy: Policy
    checkpoint: Path
    steps: int
    metrics: dict[str, float]
    cpu_s: float
