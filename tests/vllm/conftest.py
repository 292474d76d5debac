"""Where vLLM is, and its settings for these machines."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from genenv_core.config.sections.compute import VllmConfig, VllmServing
from genenv_core.engines.vllm.engine import VllmEngine
from genenv_core.engines.vllm.server import VllmSetup
from tests.unit.builders_engine import write_checkpoint

SMALL = {"OMP_NUM_THREADS": "1"}
"""Two cores; what else vLLM's build for CPUs wants, the engine sees to."""

ARGUMENTS = ("--block-size=32",)
"""Tokens that its prefix cache knows as one; on a CPU 128, more than a turn has here."""

CONFIG = VllmConfig(arguments=ARGUMENTS)


@pytest.fixture(scope="session", autouse=True)
def surroundings() -> Iterator[None]:
    """Skip without vLLM; otherwise set small sizes for the session."""
    if not os.environ.get("GENENV_VLLM_PYTHON"):
        pytest.skip("no vLLM here: `make test-vllm` builds its environment and runs these tests")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in SMALL.items():
            patch.setenv(name, value)
        yield


@pytest.fixture(scope="session")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Make two tiny models of one shape; vLLM's CPU attention needs heads of at least 32."""
    shape = {"num_attention_heads": 2, "hidden_size": 64}
    folders = [tmp_path_factory.mktemp(f"model-{seed}") for seed in range(2)]
    return [write_checkpoint(folder, seed=seed, **shape) for seed, folder in enumerate(folders)]


@pytest.fixture(scope="session")
def engine(
    checkpoints: list[Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[VllmEngine]:
    """Start the server that most tests share, because a start takes minutes here."""
    log = tmp_path_factory.mktemp("log") / "vllm.log"
    serving = VllmServing(stall_seconds=20, restarts=4)
    engine = VllmEngine(checkpoints[0], VllmSetup("genenv-first", CONFIG, serving, log))
    yield engine
    members = processes(engine.server_pid)
    assert len(members) >= 3  # the guard, the API server, the engine's own processes
    engine.close()
    assert not [p for p in members if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]


def processes(group: int | None) -> list[psutil.Process]:
    """Return the processes of a server, its guard first."""
    assert group is not None
    return [psutil.Process(group), *psutil.Process(group).children(recursive=True)]
