"""Updates in several processes, with real `accelerate launch`, gloo and the real TRL trainers.

Invariants: the loss, the gradient of every step and every metric of an update in two or three
processes, by DDP and by FSDP2, are those of one process, for GRPO and RWR, for every loss type,
with unequal lengths, with rows that do not divide, with more processes than rows, with LoRA, and
continued from sharded checkpoints; the saved checkpoint is the same; a launched update that is
stopped continues; an error in a process reaches the caller with its class; no process outlives its
parent.

Tolerances: sums are taken in another order, so gradients agree to 1e-5 of their norm and metrics to
1e-4; a normalisation by a process's own tokens instead of the step's would be off by 1e-1 here.
"""

from __future__ import annotations

import math
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
import yaml
from pydantic import ValidationError
from safetensors.torch import load_file
from transformers import TrainingArguments

from genenv_core.config.sections.training import LoraConfig, TrainingConfig
from genenv_core.engines.transformers.loading import load_model
from genenv_core.errors import NumericalError, Stopped, TrainingError
from genenv_core.training.policies.ranks import cut
from genenv_core.training.processes.attempts import visible_gpus
from genenv_core.training.processes.launch import accelerate_config
from genenv_core.training.processes.workers import WorkerTrainer
from genenv_core.training.requests import TrainerCheckpoints, UpdateResult
from genenv_core.training.updates.grpo import GrpoRequest
from genenv_core.training.updates.rwr import RwrRequest, of_env
from genenv_core.training.updates.table import run_update
from genenv_core.training.warm_start.request import noted_steps
from tests.unit.training.builders_training import (
    grpo_of,
    grpo_rows,
    load,
    mixed_rows,
    moved,
    rwr_of,
    rwr_rows,
    tiny_checkpoint,
    weights,
)
from tests.unit.training.program_cases import Request, compute
from tests.waiting import BOUND_S, until

GROUP = 4
CLOSE = 1e-5
"""Largest difference of two gradients, relative to their norm."""


def grpo_request(home: Path, name: str, groups: int = 5, **settings: Any) -> GrpoRequest:
    """Return 2 passes over groups of unequal lengths, 2 groups a step, fewer in the last."""
    defaults = {"groups_per_step": 2, "passes": 2, "micro_batch_rows": 3, "max_grad_norm": 1000}
    rows = grpo_rows(groups, GROUP, sampler=load(home / "other"), masked=True, completion=(1, 14))
    made = {"group_size": GROUP, "temperature": 0.9, "seed": 3} | defaults | settings
    return grpo_of(home, name, rows, home / "policy", **made)


def rwr_request(
    home: Path, name: str, rows: int = 7, make: Any = rwr_rows, **settings: Any
) -> RwrRequest:
    """Return 4 steps over rows of unequal lengths; the last micro-batch is smaller."""
    defaults = {"max_grad_norm": 1000, "micro_batch_rows": 2, "steps": 4, "steps_per_row": 100}
    defaults["kl_cap"] = 1e6
    generations = make(rows, completion=(1, 14))
    return rwr_of(home, name, generations, home / "policy", home / "other", **defaults | settings)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("launch")
    tiny_checkpoint(path / "policy", seed=1)
    tiny_checkpoint(path / "other", seed=1)
    moved(path / "other", 7).save_pretrained(path / "other")
    return path


def several(request: Any, processes: int) -> Any:
    training = request.training.model_copy(update={"processes": processes})
    return request.model_copy(update={"training": training})


def adapted(request: Any) -> Any:
    lora = TrainingConfig(lora=LoraConfig(rank=4, alpha=8))
    return request.model_copy(update={"training": lora})


def sharing(request: Any) -> Any:
    training = TrainingConfig(rows="shared")
    return request.model_copy(update={"training": training})


def continued(request: Any, home: Path) -> Any:
    """Return the request with trainer checkpoints, which `program_cases` stops and resumes."""
    checkpoints = TrainerCheckpoints(folder=home / f"progress-{request.output.name}", seconds=1e6)
    return request.model_copy(update={"checkpoints": checkpoints})


def cases(home: Path) -> dict[str, Request]:
    losses = {
        f"grpo-{kind}": grpo_request(home, kind, loss_type=kind, kl_coef=0.05, learning_rate=1e-3)
        for kind in ("dapo", "grpo", "dr_grpo", "bnpo")
    }
    at_home = {"initial": home / "policy"}
    pulled = {"kl_coef": 0.05, "kl_reference": "bootstrap", "learning_rate": 1e-3}
    start = rwr_request(home, "start", kl_cap=1e-4, learning_rate=1e-3)
    return losses | {
        # Two rows in the whole step: with three processes one has none.
        "rwr-few": rwr_request(home, "few", rows=2),
        "rwr": rwr_request(home, "rwr"),
        # Few rows of each kind: some processes have none.
        "rwr-mixed": rwr_request(home, "mixed", make=mixed_rows),
        "rwr-mixed-pull": rwr_request(home, "mp", make=mixed_rows, kl_cap=0.6, learning_rate=3e-3),
        # It starts above the cap: every step pulls.
        "rwr-pull": rwr_request(home, "pull", kl_cap=0.6, learning_rate=3e-3),
        # It starts on pi_env^0 and never comes back under the cap: sent back, and moved off it.
        "rwr-start": start.model_copy(update=at_home),
        "grpo-lora": adapted(grpo_request(home, "lora", kl_coef=0.05, learning_rate=1e-2)),
        "grpo-first": grpo_request(home, "first", reference=home / "other", **pulled),
        "grpo-first-lora": adapted(
            grpo_request(home, "first-lora", reference=home / "policy", **pulled)
        ),
        "rwr-lora": adapted(rwr_request(home, "rwr-lora").model_copy(update=at_home)),
        "grpo-continued": continued(grpo_request(home, "continued", learning_rate=1e-3), home),
        # Resumed, tokens are left out by the weights of the start. One row a micro-batch: of three
        # processes that score 20 rows, one has none at the end.
        "grpo-near-continued": continued(
            grpo_request(home, "near", learning_rate=1e-3, max_mismatch=0.8, micro_batch_rows=1),
            home,
        ),
        "rwr-continued": continued(rwr_request(home, "rwr-continued"), home),
        "grpo-prefixes": sharing(grpo_request(home, "prefixes", kl_coef=0.05, max_mismatch=0.8)),
        "rwr-prefixes": sharing(rwr_request(home, "rwr-prefixes", make=mixed_rows)),
    }


NAMES = (
    "grpo-dapo",
    "grpo-grpo",
    "grpo-dr_grpo",
    "grpo-bnpo",
    "rwr-few",
    "rwr",
    "rwr-mixed",
    "rwr-mixed-pull",
    "rwr-pull",
    "rwr-start",
    "grpo-lora",
    "grpo-first",
    "grpo-first-lora",
    "rwr-lora",
    "grpo-continued",
    "grpo-near-continued",
    "rwr-continued",
    "grpo-prefixes",
    "rwr-prefixes",
)
SHARED = {
    "ddp-2": ("program_cases", 2, NAMES),
    "ddp-3": ("program_cases", 3, NAMES),
    "fsdp2-2": ("program_fsdp", 2, NAMES),
    # Of a sharded reference, too; pi_env's update takes FSDP2, and there are no checkpoints.
    "zero3-2": ("program_zero", 2, NAMES[:2] + NAMES[3:4] + NAMES[10:13]),
}
"""How processes share an update -> the module that each of them runs, how many, which cases."""
STRATEGIES = {"program_cases": "ddp", "program_fsdp": "fsdp2", "program_zero": "zero3"}


def launch_all(folder: Path, requests: dict[str, Request], module: str, processes: int) -> None:
    folder.mkdir()
    for name, request in requests.items():
        moved = several(request, processes).model_copy(update={"output": folder / name})
        if moved.checkpoints:
            moved = continued(moved, folder)
        (folder / f"{name}.request.json").write_text(moved.model_dump_json())
    # accelerate's configuration is genenv's own; only the module lets sharding run on CPUs.
    strategy = {"strategy": STRATEGIES[module]}
    if module == "program_zero":  # which accelerate does not start for CPUs
        strategy["device"] = "cuda"
    training = TrainingConfig(processes=processes).model_copy(update=strategy)
    config = folder / "accelerate.yaml"
    config.write_text(yaml.safe_dump(accelerate_config(training)))
    command = [sys.executable, "-m", "accelerate.commands.launch", "--config_file", str(config)]
    run_it = ["-m", f"tests.unit.training.{module}", str(folder)]
    cpu = os.environ | {"DS_ACCELERATOR": "cpu"}
    done = subprocess.run([*command, *run_it], capture_output=True, text=True, timeout=500, env=cpu)
    assert done.returncode == 0, done.stderr[-3000:]


Computed = Callable[[str, str], Path]


@pytest.fixture(scope="module")
def computed(home: Path) -> Computed:
    """Return a function of (way of sharing, case) that returns the folder with the results."""
    requests = cases(home)
    assert tuple(requests) == NAMES

    @cache
    def alone(name: str) -> Path:
        made = home / "alone"
        made.mkdir(exist_ok=True)
        whole = requests[name].model_copy(update={"output": made / name, "checkpoints": None})
        compute(whole, made, name)
        return made

    @cache
    def together(way: str) -> Path:
        module, processes, names = SHARED[way]
        launch_all(home / way, {name: requests[name] for name in names}, module, processes)
        return home / way

    return lambda way, name: alone(name) if way == "alone" else together(way)


def function_weights(folder: Path) -> dict[str, torch.Tensor]:
    """Return the weights with which an engine samples, adapters included."""
    return dict(load_model(folder, dtype=torch.float32).named_parameters())


def difference(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> float:
    """Return the distance between two sets of tensors, relative to the norm of the first."""
    assert one.keys() == other.keys()
    gap = sum(float((one[n].double() - other[n].double()).square().sum()) for n in one)
    return math.sqrt(gap / sum(float(g.double().square().sum()) for g in one.values()))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("way", "name"), [(way, name) for way, shared in SHARED.items() for name in shared[2]]
)
def test_several_processes_compute_the_gradients_and_the_loss_of_one(
    computed: Computed, name: str, way: str
) -> None:
    if way == "zero3-2" and find_spec("deepspeed") is None:
        pytest.skip("DeepSpeed is not installed: docs/training.md says how this was run with it")
    alone, folder = computed("alone", name), computed(way, name)
    expected = UpdateResult.model_validate_json((alone / f"{name}.result.json").read_text())
    result = UpdateResult.model_validate_json((folder / f"{name}.result.json").read_text())
    assert (result.steps, result.action) == (expected.steps, expected.action)
    assert result.resumed_at == (1 if "continued" in name else 0)
    if name == "rwr-start":
        assert result.action == "rolled_back" and "moved off it" in result.note
    one = load_file(alone / f"{name}.gradients.safetensors")
    many = load_file(folder / f"{name}.gradients.safetensors")
    if "continued" in name:  # its first step was taken before it was stopped
        last = {key.partition("/")[2]: g for key, g in many.items() if key.startswith("1/")}
        third = {key.partition("/")[2]: g for key, g in one.items() if key.startswith("2/")}
        assert difference(third, last) < 100 * CLOSE
    else:
        first = {key: value for key, value in one.items() if key.startswith("0/")}
        assert difference(first, {key: many[key] for key in first}) < CLOSE
        assert difference(one, many) < 100 * CLOSE  # later steps start apart
    assert result.metrics == pytest.approx(expected.metrics, rel=1e-3, abs=1e-5)
    kept, made = (function_weights(r.checkpoint) for r in (expected, result))
    assert difference(kept, made) < 1e-4
    ours, theirs = (
        {path.name for path in checked.checkpoint.iterdir()} for checked in (result, expected)
    )
    assert ours == theirs
    config = (expected.checkpoint / "config.json").read_text()
    assert (result.checkpoint / "config.json").read_text() == config


@pytest.mark.slow
def test_a_launched_update_that_is_stopped_continues_from_its_checkpoint(
    home: Path, tmp_path: Path
) -> None:
    """Both losses continue in several processes among the cases above: the launcher knows none."""
    made = grpo_request(home, "stop")
    checkpoints = TrainerCheckpoints(folder=tmp_path / "progress", seconds=1e6)
    request = several(made, 2).model_copy(
        update={
            "checkpoints": checkpoints, "output": tmp_path / "out", "noted": tmp_path / "losses",
        }
    )  # fmt: skip
    trainer = WorkerTrainer()
    threading.Thread(target=stop_once_started, args=(trainer,)).start()
    with pytest.raises(Stopped, match=r"stopped after step 1 of .*: the same command continues"):
        trainer.update(request)
    names = {path.name for path in (tmp_path / "progress" / "checkpoint-1").iterdir()}
    others = [name for name in names if not name.endswith((".safetensors", ".json"))]
    assert others == ["losses"] and noted_steps(tmp_path / "losses")[0] == 1
    result = WorkerTrainer().update(request)
    assert result.resumed_at == 1
    assert noted_steps(tmp_path / "losses")[0] == result.steps  # once each, by one process
    expected = run_update(made.model_copy(update={"output": tmp_path / "alone"}))
    assert result.steps == expected.steps
    assert result.metrics == pytest.approx(expected.metrics, rel=1e-3, abs=1e-5)
    assert difference(weights(expected.checkpoint), weights(result.checkpoint)) < 1e-4


def stop_once_started(trainer: WorkerTrainer) -> None:
    until(lambda: trainer._launcher._running)
    trainer.request_stop()


@pytest.mark.slow
def test_an_error_in_a_process_is_the_callers_error(home: Path, tmp_path: Path) -> None:
    request = several(rwr_request(home, "nan", learning_rate=1.0, steps=30), 2)
    broken = tiny_checkpoint(tmp_path / "broken", seed=2)
    model = load(broken)
    with torch.no_grad():
        model.lm_head.weight.fill_(math.nan)
    model.save_pretrained(broken)
    with pytest.raises(NumericalError, match="KL of pi_env to its initial is nan"):
        WorkerTrainer().update(request.model_copy(update={"checkpoint": broken}))


@pytest.mark.slow
def test_no_process_of_an_update_outlives_the_one_that_wanted_it(
    home: Path, tmp_path: Path
) -> None:
    request = several(rwr_request(home, "orphans", steps=100_000), 2)
    (tmp_path / "request.json").write_text(request.model_dump_json())
    code = (
        "import sys\n"
        "from genenv_core.training.updates.rwr import RwrRequest\n"
        "from genenv_core.training.processes.workers import WorkerTrainer\n"
        "request = RwrRequest.model_validate_json(open(sys.argv[1]).read())\n"
        "WorkerTrainer().update(request)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", code, str(tmp_path / "request.json")])

    def launched() -> list[psutil.Process]:
        """Return the launcher and the two that compute, once all three are there."""
        assert parent.poll() is None, "the process that wanted the update ended by itself"
        below = psutil.Process(parent.pid).children(recursive=True)
        return below if len(below) >= 3 else []

    try:
        family = until(launched)
    finally:
        parent.kill()
        parent.wait()
    gone, alive = psutil.wait_procs(family, timeout=BOUND_S)
    assert alive == [] and len(gone) >= 3


@pytest.mark.parametrize("rows", range(1, 30))
@pytest.mark.parametrize("most", [1, 3, 64])
@pytest.mark.parametrize("processes", [1, 2, 3])
def test_micro_batches_cover_a_step_once_evenly_and_as_often_for_each_process(
    rows: int, most: int, processes: int
) -> None:
    parts = cut(rows, most=most, processes=processes)
    assert [row for start, stop in parts for row in range(start, stop)] == list(range(rows))
    sizes = [stop - start for start, stop in parts]
    assert max(sizes) <= most and max(sizes) - min(sizes) <= 1
    assert len(parts) % processes == 0
    assert len(parts) - processes < -(-rows // most)  # no more than are needed


def launched_as(training: TrainingConfig, home: Path) -> tuple[Any, dict[str, str]]:
    """Return the arguments and environment that `accelerate launch` makes of the configuration."""
    from accelerate.commands import launch
    from accelerate.utils.launch import prepare_multi_gpu_env, prepare_simple_launcher_cmd_env

    path = home / "accelerate.yaml"
    path.write_text(yaml.safe_dump(accelerate_config(training)))
    words = ["--config_file", str(path), "-m", "some.module"]
    parsed = launch.launch_command_parser().parse_args(words)
    arguments, _, _ = launch._validate_launch_command(parsed)
    if arguments.multi_gpu or arguments.use_fsdp:
        return arguments, prepare_multi_gpu_env(arguments)
    if arguments.use_deepspeed:
        return arguments, {}
    return arguments, prepare_simple_launcher_cmd_env(arguments)[1]


def test_accelerate_reads_its_configuration_as_it_is_meant(tmp_path: Path) -> None:
    """This covers what works without GPUs and without DeepSpeed."""
    ddp, environment = launched_as(TrainingConfig(device="cuda", processes=4), tmp_path)
    assert ddp.multi_gpu and ddp.num_processes == 4
    assert environment["ACCELERATE_MIXED_PRECISION"] == "no"
    sharded = TrainingConfig(device="cuda", processes=8, strategy="fsdp2", precision="bfloat16")
    fsdp, environment = launched_as(sharded, tmp_path)
    assert fsdp.use_fsdp and fsdp.num_processes == 8
    assert (environment["ACCELERATE_USE_FSDP"], environment["FSDP_VERSION"]) == ("true", "2")
    assert environment["FSDP_AUTO_WRAP_POLICY"] == "TRANSFORMER_BASED_WRAP"
    assert environment["FSDP_RESHARD_AFTER_FORWARD"] == "true"
    assert environment["FSDP_OFFLOAD_PARAMS"] == "false"
    assert environment["FSDP_CPU_RAM_EFFICIENT_LOADING"] == "false"
    assert environment["ACCELERATE_MIXED_PRECISION"] == "bf16"
    assert not fsdp.use_cpu
    zero = sharded.model_copy(update={"strategy": "zero3"})
    deepspeed, _ = launched_as(zero, tmp_path)
    assert deepspeed.use_deepspeed and deepspeed.zero_stage == 3
    assert of_env(zero) == sharded and of_env(sharded) is sharded


@pytest.mark.parametrize(
    ("given", "processes", "shown"),
    [
        (None, 1, "0"),
        (None, 4, "0,1,2,3"),
        ("3,5", 1, "3"),
        ("GPU-a,GPU-b,GPU-c", 2, "GPU-a,GPU-b"),
        ("", 1, ""),
    ],
)
def test_an_update_sees_one_gpu_a_process(given: str | None, processes: int, shown: str) -> None:
    assert visible_gpus(given, processes) == shown


def test_a_process_that_sees_several_gpus_is_refused_by_trl(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So the launcher shows one GPU to each process; DataParallel would split micro-batches."""
    monkeypatch.setattr(TrainingArguments, "n_gpu", property(lambda _: 2))
    with pytest.raises(TrainingError, match=r"does not support `nn\.DataParallel`"):
        run_update(grpo_request(home, "several-gpus"))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"processes": 2, "strategy": "zero3"}, "pip install deepspeed .*training.strategy=fsdp2"),
        ({"kernels": "liger"}, "pip install liger-kernel .*training.kernels=torch"),
    ],
)
def test_a_package_that_is_not_there_is_named_before_work(
    home: Path, changes: dict[str, Any], message: str
) -> None:
    request = grpo_request(home, "missing")
    training = TrainingConfig(device="cuda", **changes)
    with pytest.raises(TrainingError, match=message):
        WorkerTrainer().update(request.model_copy(update={"training": training}))


def test_no_gpu_where_one_is_asked_for_is_an_error_that_says_what_to_do(home: Path) -> None:
    request = grpo_request(home, "no-gpu")
    training = TrainingConfig(device="cuda")
    with pytest.raises(TrainingError, match=r"finds no GPU here.*training\.device=cpu"):
        run_update(request.model_copy(update={"training": training}))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"strategy": "fsdp2", "device": "cuda"}, "does nothing with training.processes 1"),
        ({"strategy": "fsdp2", "processes": 2}, "needs training.device cuda"),
        ({"kernels": "liger"}, "needs training.device cuda"),
        (
            {"lora": {"merge": True}},
            r"training\.lora\.merge does nothing with training\.lora\.rank 0",
        ),
        ({"processes": True}, "should be a number"),
    ],
)
def test_settings_that_would_do_nothing_are_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        TrainingConfig.model_validate(values)
