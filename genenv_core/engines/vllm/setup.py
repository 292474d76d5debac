"""What the engine `vllm` is opened with. Importing this loads no HTTP client."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from genenv_core.config.vllm import VllmConfig, VllmServing


@dataclass(frozen=True, slots=True)
class VllmSetup:
    """What the engine needs beside the checkpoint.

    `name` is what the model is called, unique to the checkpoint's content. `logprobs_mode` is
    `processed_logprobs` unless a nucleus cuts the distribution. `check` is called often and may
    raise, to end a wait.
    """

    name: str
    config: VllmConfig
    serving: VllmServing
    log: Path
    logprobs_mode: str = "processed_logprobs"
    check: Callable[[], None] = field(default=lambda: None)
