"""One GPU beside a CPU: `make test-gpu`.

Invariants: the engine samples the tokens that it samples on a CPU, in batches and in sessions; the
loss, the gradient of every step and every metric of an update are those of a CPU, for GRPO and RWR,
with LoRA, with shared beginnings, and continued from a trainer checkpoint; bfloat16 costs as much
precision as on a CPU; the same update twice has the same bits, also after others in its process; an
update that is stopped continues; a worker that stays gives the GPU's memory back.

Tolerances: sums are taken in another order. TF32 would be off by 1e-3.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from genenv_core.config.sections.training import TrainingConfig
from genenv_core.engines.transformers.engine import TransformersEngine
from genenv_core.engines.transformers.gap import Sampled, logprob_gap
from genenv_core.engines.transformers.scoring import ScoringArithmetic
from genenv_core.errors import Stopped
from genenv_core.training.processes.workers import WorkerTrainer
from genenv_core.training.requests import TrainerCheckpoints, UpdateResult
from genenv_core.training.updates.table import run_update
from genenv_core.types import Completion
from tests.unit.builders_engine import (
    GREEDY,
    PARAMS,
    random_prompts,
    requests_of,
    tiny_model,
)
from tests.unit.training import test_training_launch as launching
from tests.unit.training.builders_training import weights
from tests.unit.training.program_cases import compute
from tests.unit.training.test_training_launch import (
    NAMES,
    cases,
    difference,
    function_weights,
    grpo_request,
    rwr_request,
)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no GPU here"),
]

CLOSE = 1e-5
"""Largest difference of two gradients in float32, relative to their norm."""
home = launching.home


@pytest.fixture(scope="module")
def engines(tmp_path_factory: pytest.TempPathFactory) -> tuple[TransformersEngine, ...]:
    path = tmp_path_factory.mktemp("engine")
    tiny_model().save_pretrained(path)
    return tuple(TransformersEngine.load(path, threads=1, device=on) for on in ("cpu", "cuda"))


def same(ours: list[Completion], theirs: list[Completion]) -> float:
    """Return the share of completions with equal tokens; their logprobs are equal, nearly."""
    assert all(one.token_ids for one in (*ours, *theirs))
    equal = [(a, b) for a, b in zip(ours, theirs, strict=True) if a.token_ids == b.token_ids]
    for a, b in equal:
        assert a.logprobs == pytest.approx(b.logprobs, abs=1e-4)
    return len(equal) / len(ours)


@pytest.mark.parametrize("params", [PARAMS, GREEDY], ids=["sampled", "greedy"])
def test_the_engine_samples_what_it_samples_on_a_cpu(engines: Any, params: Any) -> None:
    requests = requests_of(random_prompts(48, shortest=3, longest=60))
    cpu, gpu = (engine.sample(requests, params) for engine in engines)
    assert same(cpu, gpu) > 0.95
    assert engines[1].sample(requests, params) == gpu


def test_a_session_samples_what_a_batch_does(engines: Any) -> None:
    requests = requests_of(random_prompts(48, shortest=3, longest=60))
    session = engines[1].open_session(PARAMS)
    found: dict[int, Completion] = {}
    for tag, request in enumerate(requests):
        session.submit(tag, request, PARAMS.max_tokens)
        found |= dict(session.advance())
    while session.computes:
        found |= dict(session.advance())
    session.close()
    made = [found[tag] for tag in range(len(requests))]
    assert same(engines[1].sample(requests, PARAMS), made) > 0.95


def test_tokens_are_scored_on_the_gpu_as_they_were_sampled(tmp_path: Path) -> None:
    path = tmp_path
    tiny_model().save_pretrained(path)
    requests = requests_of(random_prompts(16, shortest=3, longest=60))
    engine = TransformersEngine.load(path, threads=1, device="cuda")
    rows = [
        Sampled(asked.prompt_ids, said.token_ids, said.logprobs, [1] * len(said.token_ids))
        for asked, said in zip(requests, engine.sample(requests, PARAMS), strict=True)
    ]
    for precision, most in (("float32", 1e-4), ("bfloat16", 0.1)):
        scored = ScoringArithmetic(1, "cuda", precision)
        gap = logprob_gap(path, rows, temperature=1.0, arithmetic=scored)
        assert gap is not None and gap.mean < most


Computed = Callable[[str], Path]


@pytest.fixture(scope="module")
def computed(home: Path) -> Computed:
    """Return a function that returns the results on a CPU ("cpu", "cpu bfloat16") or on a GPU."""
    requests = cases(home)

    @cache
    def made(way: str) -> Path:
        folder = home / way
        folder.mkdir()
        precision = "bfloat16" if way.endswith("bfloat16") else "float32"
        if way.startswith("cpu"):
            for name, request in requests.items():
                training = request.training.model_copy(update={"precision": precision})
                changed = {"output": folder / name, "checkpoints": None, "training": training}
                compute(request.model_copy(update=changed), folder, name)
            return folder
        for name, request in requests.items():
            moved = request.model_copy(update={"output": folder / name})
            if moved.checkpoints:
                moved = launching.continued(moved, folder)
            (folder / f"{name}.request.json").write_text(moved.model_dump_json())
        command = [sys.executable, "-m", "tests.gpu.program_gpu", str(folder), precision]
        command += ["backwards"] if way == "again" else []
        done = subprocess.run(command, capture_output=True, text=True, timeout=500)
        assert done.returncode == 0, done.stderr[-3000:]
        return folder

    return made


def read(folder: Path, name: str) -> tuple[UpdateResult, dict[str, torch.Tensor]]:
    """Return the result of a case, and its gradients as `STEP/WEIGHT`."""
    text = (folder / f"{name}.result.json").read_text()
    return UpdateResult.model_validate_json(text), load_file(
        folder / f"{name}.gradients.safetensors"
    )


def step(gradients: dict[str, torch.Tensor], number: int) -> dict[str, torch.Tensor]:
    """Return the gradients of one step by weight."""
    named = ((key.partition("/"), value) for key, value in gradients.items())
    return {weight: value for (at, _, weight), value in named if at == str(number)}


@pytest.mark.parametrize("name", NAMES)
def test_an_update_has_the_gradients_and_the_loss_of_a_cpu(computed: Computed, name: str) -> None:
    (expected, cpu), (result, gpu) = (read(computed(way), name) for way in ("cpu", "float32"))
    assert (result.steps, result.action) == (expected.steps, expected.action)
    assert result.resumed_at == (1 if "continued" in name else 0)
    if not result.resumed_at:  # else only the steps after its checkpoint are there
        assert difference(step(cpu, 0), step(gpu, 0)) < CLOSE
    kept, made = (function_weights(each.checkpoint) for each in (expected, result))
    assert difference(kept, made) < 10 * CLOSE
    # On a GPU they say which kernels were used as well.
    metrics = {key: result.metrics[key] for key in expected.metrics}
    assert metrics == pytest.approx(expected.metrics, rel=1e-3, abs=1e-5)
    assert set(result.metrics) - set(metrics) <= {"liger_kernels"}


@pytest.mark.parametrize("name", ["grpo-dapo", "grpo-lora", "rwr", "rwr-lora", "grpo-prefixes"])
def test_bfloat16_is_as_far_off_as_on_a_cpu(computed: Computed, name: str) -> None:
    exact, cpu, gpu = (
        step(read(computed(way), name)[1], 0) for way in ("cpu", "cpu bfloat16", "bfloat16")
    )
    assert difference(exact, gpu) == pytest.approx(difference(exact, cpu), rel=0.1)


@pytest.mark.parametrize("name", NAMES)
def test_an_update_twice_has_the_same_bits(computed: Computed, name: str) -> None:
    (_, one), (_, other) = (read(computed(way), name) for way in ("float32", "again"))
    assert one.keys() == other.keys()
    assert [key for key in one if not torch.equal(one[key], other[key])] == []


@pytest.fixture(scope="module")
def trainer() -> Iterator[WorkerTrainer]:
    made = WorkerTrainer()
    yield made
    made.close()


def held(_: object) -> tuple[int, int, int]:
    """Return a worker's process, and the bytes of the GPU that torch holds and uses there."""
    return os.getpid(), torch.cuda.memory_reserved(), torch.cuda.memory_allocated()


def test_a_worker_stays_and_gives_the_memory_of_the_gpu_back(
    home: Path, tmp_path: Path, trainer: WorkerTrainer
) -> None:
    """What stays is what cuBLAS works with: 66 MB on an H200, and it does not grow."""
    found: list[tuple[int, int, int]] = []
    for number in range(4):
        for made in (grpo_request(home, f"stays-{number}"), rwr_request(home, f"too-{number}")):
            changed = {"training": TrainingConfig(device="cuda"), "output": tmp_path / "out"}
            trainer.update(made.model_copy(update=changed))
        found.append(trainer._call(held, None, "grpo", "grpo.micro_batch_rows", "cuda"))
    assert len({process for process, _, _ in found}) == 1
    assert found[1] == found[-1]
    assert max(found[-1][1:]) < 128 * 2**20


@pytest.mark.parametrize("kind", ["grpo", "rwr"])
def test_an_update_that_is_stopped_continues(
    home: Path, tmp_path: Path, trainer: WorkerTrainer, kind: str
) -> None:
    made = grpo_request(home, "stop") if kind == "grpo" else rwr_request(home, "stop-rwr")
    request = made.model_copy(
        update={
            "training": TrainingConfig(device="cuda"),
            "checkpoints": TrainerCheckpoints(folder=tmp_path / "progress", seconds=1e6),
            "output": tmp_path / "out",
        }
    )
    with pytest.raises(Stopped, match="stopped after step 1 of"):
        run_update(request, lambda: True)
    result = trainer.update(request)
    expected = run_update(made.model_copy(update={"output": tmp_path / "alone"}))
    assert (result.resumed_at, result.steps) == (1, expected.steps)
    assert difference(weights(expected.checkpoint), weights(result.checkpoint)) < 1e-4
