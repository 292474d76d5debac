"""`make bench-gpu` on a machine without a GPU.

Invariants: without a GPU it prints one line and measures nothing; all of it runs on the CPU at a
tiny shape, genenv's and TRL's real trainers on the same rows; a measurement that fails, or takes
too long, prints a line and ends no other; its shapes are the models'.
"""

from __future__ import annotations

import subprocess
import sys
import time
from typing import Any

import pytest
import torch

from genenv_core.training.memory.estimate import GB, DecoderShape, estimate
from tests.bench import gpu, gpu_plan
from tests.mutations import mutation

SIZES = ["--rows", "16", "--micro", "4", "--prompt", "8", "--completion", "16", "--steps", "3"]


def run(*arguments: str) -> list[str]:
    command = [sys.executable, "-m", "tests.bench.gpu", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.splitlines()


def plan(**changes: Any) -> gpu_plan.Plan:
    values: dict[str, Any] = {"update": "grpo", "who": "trl", "shape": "tiny", "device": "cpu"}
    values |= {"rows": 16, "micro": 4, "prompt": 8, "completion": 16, "steps": 3, "lora": 0}
    return gpu_plan.Plan(**values | changes)


def test_shapes_have_the_weights_of_the_models_that_they_are_named_after() -> None:
    counted = {
        name: DecoderShape.of(gpu_plan.config_of(name).to_dict()).parameters
        for name in ("0.5B", "1.5B", "7B")
    }
    assert counted == {"0.5B": 494_032_768, "1.5B": 1_543_714_304, "7B": 7_615_616_512}


def test_the_limit_counts_products_and_no_gradients_of_what_lora_leaves_alone() -> None:
    assert gpu_plan.flops(plan(shape="0.5B")) == 6 * 494_032_768
    looked_up = 152_064 * 3584
    assert gpu_plan.flops(plan(shape="7B", lora=32)) == 4 * (7_615_616_512 - looked_up)


@mutation(
    "frozen weights of a bench count as float32", "tests/bench/gpu_plan.py",
    "stored_bytes=2 if frozen_in_half(plan) else 4", "stored_bytes=4",
)  # fmt: skip
@pytest.mark.parametrize(
    ("update", "shape", "lora", "peak_gb"),
    [
        ("grpo", "0.5B", 0, 9.35), ("rwr", "0.5B", 0, 20.54),
        ("grpo", "1.5B", 0, 28.46), ("rwr", "1.5B", 0, 44.22), ("grpo", "7B", 32, 19.10),
    ],
)  # fmt: skip
def test_estimates_are_a_little_above_the_peaks_of_an_h200(
    update: str, shape: str, lora: int, peak_gb: float
) -> None:
    """The peaks of docs/performance.md, without CUDA's own memory, which torch does not count."""
    options = gpu.parser().parse_args([])
    sizes = {name: getattr(options, name) for name in ("rows", "micro", "prompt", "completion")}
    found = plan(device="cuda", update=update, shape=shape, lora=lora, **sizes)
    needed = estimate(gpu_plan.job_of(found))
    said = (needed.total(found.micro) - needed.fixed["runtime"]) / GB
    assert 1.03 < said / peak_gb < 1.2


@pytest.mark.parametrize(
    ("memory_gb", "update", "lora", "micro"),
    [(200, "grpo", 0, 4), (139, "grpo", 32, 4), (80, "rwr", 32, 4), (24, "rwr", 32, 1)],
)
def test_what_does_not_fit_trains_adapters_and_then_fewer_rows(
    monkeypatch: pytest.MonkeyPatch, memory_gb: int, update: str, lora: int, micro: int
) -> None:
    free = (int(memory_gb * 1e9), 0)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: free)
    found = gpu.fitting(gpu.parser().parse_args([]), "7B", update)
    assert (found.lora, found.micro) == (lora, micro)


@pytest.mark.slow
def test_a_measurement_without_enough_time_is_reported() -> None:
    now = time.monotonic()
    assert gpu._measured(plan(), now + 5) == "not measured: the time of --minutes was over"
    assert gpu._measured(plan(limit_s=0.6), now + 900) == "not done in 1 s"


@pytest.mark.slow
def test_a_failed_measurement_is_reported_in_one_line() -> None:
    measured = gpu._measured(plan(rows=12), time.monotonic() + 900)
    assert isinstance(measured, str) and measured.startswith("failed: ")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU, which would be measured")
@pytest.mark.slow
def test_without_a_gpu_it_says_so_in_one_line() -> None:
    (line,) = run()
    assert "no GPU" in line and "--device cpu --shape tiny" in line


@pytest.mark.slow
def test_all_four_trainers_run_at_a_tiny_shape_on_the_cpu() -> None:
    lines = run("--device", "cpu", "--shape", "tiny", *SIZES)
    head = "\n".join(lines[:7])
    assert "- chip: " in head and ", trl 1." in head and "- commit: " in head
    assert "- command: python -m tests.bench.gpu --device cpu --shape tiny" in head
    assert lines[7].startswith("| update | shape |") and set(lines[8]) == {"|", "-"}
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines[9:]]
    assert [(row[0], row[4]) for row in rows] == [
        ("grpo", "trl"),
        ("grpo", "genenv"),
        ("rwr", "trl"),
        ("rwr", "genenv"),
    ]
    assert all(len(row) == len(gpu.COLUMNS) for row in rows)
    assert all(float(row[5]) > 0 and float(row[8]) > 0 for row in rows)
    assert all(float(row[7]) > 0 for row in rows if row[4] == "genenv")
