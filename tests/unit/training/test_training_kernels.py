"""The kernels of an update.

Invariants: on a CPU always torch's, whatever is installed; on a GPU Liger's where the package is
installed, loads and knows the architecture, and the log and the metrics name them; `liger` gives
Liger's kernels or an error; Liger is applied to the bare model, without its losses.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from genenv_core.config.sections.training import LoraConfig, TrainingConfig
from genenv_core.errors import TrainingError
from genenv_core.training.policies import kernels
from genenv_core.training.policies.weights import load_policy
from tests.unit.training.builders_training import tiny_checkpoint

Installed = list[dict[str, Any]]


def config(**values: Any) -> TrainingConfig:
    return TrainingConfig(device="cuda", **values)


def install(
    monkeypatch: pytest.MonkeyPatch, apply: Callable[..., None], architectures: tuple[str, ...]
) -> None:
    """Install a double of Liger that has only the three names in use.

    Liger itself needs Triton, which needs a GPU. Another test checks the names and options against
    the real package where that is installed.
    """
    top, inner, patch = (
        ModuleType(f"liger_kernel{name}")
        for name in ("", ".transformers", ".transformers.monkey_patch")
    )
    top.__path__ = inner.__path__ = []
    vars(inner)["_apply_liger_kernel_to_instance"] = apply
    vars(patch)["MODEL_TYPE_TO_APPLY_LIGER_FN"] = dict.fromkeys(architectures)
    for module in (top, inner, patch):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr(kernels, "find_spec", lambda _: SimpleNamespace())
    monkeypatch.setattr(kernels, "version", lambda _: "0.0")


@pytest.fixture
def applied(monkeypatch: pytest.MonkeyPatch) -> Installed:
    """Return a list that fills with the options of each call of Liger."""
    calls: Installed = []
    install(monkeypatch, lambda **options: calls.append(options), ("qwen2", "llama"))
    return calls


def model(architecture: str = "qwen2") -> Any:
    return SimpleNamespace(config=SimpleNamespace(model_type=architecture))


def test_a_cpu_computes_with_torch_whatever_is_installed(applied: Installed) -> None:
    for wanted in ("auto", "torch"):
        assert kernels.use_kernels(model(), TrainingConfig(kernels=wanted)) == "torch"
    assert applied == [] and TrainingConfig().kernels == "auto"


def test_a_gpu_computes_with_liger_where_it_is_installed(
    applied: Installed, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "genenv.training"):
        given = model()
        assert kernels.use_kernels(given, config()) == "liger"
    losses = {"cross_entropy": False, "fused_linear_cross_entropy": False}
    assert applied == [{"model": given} | losses]
    assert caplog.messages == ["kernels=liger device=cuda liger_kernel=0.0"]
    assert kernels.use_kernels(model(), config(kernels="torch")) == "torch" and len(applied) == 1


def test_without_liger_auto_takes_torch_and_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(kernels, "find_spec", lambda _: None)
    with caplog.at_level(logging.INFO, "genenv.training"):
        assert kernels.use_kernels(model(), config()) == "torch"
    assert caplog.messages == ["kernels=torch device=cuda: liger-kernel is not installed"]


def _no_triton(**_: Any) -> None:
    raise ImportError("no module named triton")


@pytest.mark.parametrize(
    ("apply", "architecture", "reason"),
    [
        (_no_triton, "qwen2", "no module named triton"),
        (lambda **_: None, "gpt2", "liger-kernel has no kernels for models of type 'gpt2'"),
    ],
    ids=["it does not load", "it does not know the model"],
)
def test_without_usable_liger_auto_takes_torch_and_liger_is_an_error(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    apply: Callable[..., None],
    architecture: str,
    reason: str,
) -> None:
    install(monkeypatch, apply, ("qwen2",))
    assert kernels.use_kernels(model(architecture), config()) == "torch"
    assert caplog.messages == [f"kernels=torch device=cuda: {reason}"]
    with pytest.raises(TrainingError, match=f"{reason}; set training.kernels=torch"):
        kernels.use_kernels(model(architecture), config(kernels="liger"))


@pytest.mark.parametrize("rank", [0, 4])
def test_a_policy_gets_its_kernels_before_its_adapter_and_says_so(
    tmp_path: Path, applied: Installed, rank: int
) -> None:
    lora = LoraConfig(rank=rank, alpha=8) if rank else LoraConfig()
    folder = tiny_checkpoint(tmp_path / "policy")
    policy = load_policy(folder, config(lora=lora))
    assert [type(call["model"]).__name__ for call in applied] == ["Qwen2ForCausalLM"]
    assert policy.metrics == {"liger_kernels": 1.0}
    assert load_policy(folder, TrainingConfig(lora=lora)).metrics == {}


@pytest.mark.parametrize("architecture", ["qwen2", "qwen3", "llama"])
def test_liger_itself_has_these_names_and_takes_these_options(architecture: str) -> None:
    pytest.importorskip("triton", reason="Liger needs Triton, which comes with CUDA's torch")
    pytest.importorskip("liger_kernel", reason="liger-kernel is not installed")
    import inspect

    from liger_kernel.transformers.monkey_patch import (  # pyright: ignore[reportMissingImports]
        MODEL_TYPE_TO_APPLY_LIGER_FN,
        _apply_liger_kernel_to_instance,
    )

    options = inspect.signature(MODEL_TYPE_TO_APPLY_LIGER_FN[architecture]).parameters
    assert {"model", "cross_entropy", "fused_linear_cross_entropy"} <= options.keys()
    assert "model" in inspect.signature(_apply_liger_kernel_to_instance).parameters
