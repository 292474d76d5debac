"""`make bench-gpu` on a machine without a GPU.

Invariants: without a GPU it says so in one line and measures nothing; the whole of it runs on the
CPU at a tiny shape, genenv's and TRL's real trainers on the same rows; its shapes are the models'.
"""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from genenv_core.training.memory import Shape
from tests.bench import gpu


def run(*arguments: str) -> list[str]:
    command = [sys.executable, "-m", "tests.bench.gpu", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.splitlines()


def test_shapes_have_the_weights_of_the_models_that_they_are_named_after() -> None:
    counted = {
        name: Shape.of(gpu.config_of(name).to_dict()).parameters for name in ("0.5B", "1.5B", "7B")
    }
    assert counted == {"0.5B": 494_032_768, "1.5B": 1_543_714_304, "7B": 7_615_616_512}


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU, which would be measured")
@pytest.mark.slow
def test_without_a_gpu_it_says_so_in_one_line() -> None:
    (line,) = run()
    assert "no GPU" in line and "--device cpu --shape tiny" in line


@pytest.mark.slow
def test_all_four_trainers_run_at_a_tiny_shape_on_the_cpu() -> None:
    sizes = ["--rows", "16", "--micro", "4", "--prompt", "8", "--completion", "16", "--steps", "3"]
    lines = run("--device", "cpu", "--shape", "tiny", *sizes)
    assert lines[0].startswith("chip: ") and "trl 1." in lines[1]
    assert lines[2].startswith("command: python -m tests.bench.gpu --device cpu --shape tiny")
    rows = [line.split() for line in lines[4:]]
    assert [(row[0], row[3]) for row in rows] == [
        ("grpo", "genenv"),
        ("grpo", "trl"),
        ("rwr", "genenv"),
        ("rwr", "trl"),
    ]
    assert all(float(row[4]) > 0 and float(row[6]) > 0 for row in rows)
