"""Lists the GPUs of this machine by the driver's own tool, without loading torch."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass

_QUERY = ("nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader,nounits")
_MIB = 2**20
ANSWER_S = 20.0
"""Seconds that the driver may take to answer."""


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU: its name and its memory in bytes."""

    name: str
    memory: float


def gpus() -> list[Gpu]:
    """Return the GPUs of this machine, [] without a GPU or a driver."""
    if shutil.which(_QUERY[0]) is None:
        return []
    try:
        done = subprocess.run(_QUERY, capture_output=True, text=True, timeout=ANSWER_S, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    return [read_gpu(line) for line in done.stdout.splitlines() if line.strip()]


def read_gpu(line: str) -> Gpu:
    """Return the GPU of one line of the tool's answer."""
    name, _, memory = line.rpartition(",")
    return Gpu(name.strip(), float(memory) * _MIB)
