"""Where vLLM is, and what it is told about these machines."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.builders_engine import write_checkpoint

SMALL = {
    # Two cores and little memory; binding to cores would fight with whatever else runs.
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "OMP_NUM_THREADS": "1",
    # Compiling the sampler takes longer than all that is sampled here.
    "TORCHDYNAMO_DISABLE": "1",
}

ARGUMENTS = ("--enforce-eager", "--no-enable-chunked-prefill", "--max-num-batched-tokens=4096")
"""vLLM 0.31 on a CPU dies of a seeded request whose prompt is taken in several steps (it winds the
seed's generator back, which CPU generators cannot): so no prompt may be cut."""


@pytest.fixture(scope="session", autouse=True)
def surroundings() -> Iterator[None]:
    """Skip without vLLM; else set the variables of its CPU build for the session."""
    if not os.environ.get("GENENV_VLLM_PYTHON"):
        pytest.skip("no vLLM here: `make test-vllm` builds its environment and runs these tests")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in SMALL.items():
            patch.setenv(name, value)
        yield


@pytest.fixture(scope="session")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two tiny models of one shape; vLLM's CPU attention wants heads of 32 and more."""
    shape = {"num_attention_heads": 2, "hidden_size": 64}
    folders = [tmp_path_factory.mktemp(f"model-{seed}") for seed in range(2)]
    return [write_checkpoint(folder, seed=seed, **shape) for seed, folder in enumerate(folders)]
