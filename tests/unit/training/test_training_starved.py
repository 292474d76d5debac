"""Updates that run out of memory, in real processes with the real TRL trainers.

The lack of memory is simulated, on CPUs that count as GPUs; the rest is real: the processes end,
others start with half the rows, from the last trainer checkpoint or the beginning.

Invariants: the result is that of an update that never ran out; no step is lost or done twice; an
update on CPUs, or with micro-batches of one row, is refused as before.
"""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from genenv_core.config.sections.training import TrainingConfig
from genenv_core.errors import OutOfMemory, Stopped, TrainingError
from genenv_core.training.loop.checkpoints import request_digest
from genenv_core.training.processes import attempts, launch
from genenv_core.training.processes.attempts import attempted
from genenv_core.training.processes.launch import Launcher
from genenv_core.training.processes.workers import WorkerTrainer
from genenv_core.training.requests import TrainerCheckpoints, UpdateResult
from genenv_core.training.updates.grpo import GrpoRequest
from genenv_core.training.updates.own import OwnRequest
from genenv_core.training.updates.rwr import RwrRequest
from genenv_core.training.updates.table import run_update
from tests.mutations import mutation
from tests.unit.training.builders_training import (
    grpo_of,
    grpo_rows,
    load,
    rwr_of,
    rwr_rows,
    tiny_checkpoint,
    weights,
)

Request = GrpoRequest | RwrRequest


@pytest.fixture
def as_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TrainingConfig, "yields", property(lambda _: True))
    monkeypatch.setattr(launch, "PROGRAM", "tests.unit.training.program_starved")


def request_of(home: Path, kind: str) -> Request:
    policy = tiny_checkpoint(home / "policy", seed=1)
    training = TrainingConfig(processes=2)
    checkpoints = TrainerCheckpoints(folder=home / "progress", seconds=0)
    shared: dict[str, Any] = {"training": training, "checkpoints": checkpoints}
    if kind == "grpo":
        rows = grpo_rows(5, 4, sampler=load(policy), masked=True)
        shared |= {"groups_per_step": 2, "micro_batch_rows": 4, "passes": 2}
        return grpo_of(home, "out", rows, policy, **shared)
    shared |= {"micro_batch_rows": 8, "steps": 4, "kl_cap": 1e6}
    return rwr_of(home, "out", rwr_rows(12), policy, policy, **shared)


def undisturbed(home: Path, request: Request) -> UpdateResult:
    alone = {"training": TrainingConfig(), "checkpoints": None, "output": home / "alone"}
    return run_update(request.model_copy(update=alone))


@pytest.mark.slow
@pytest.mark.usefixtures("as_gpus")
@pytest.mark.parametrize(("kind", "step", "rows"), [("grpo", 3, 3), ("rwr", 0, 3)])
def test_an_update_without_memory_goes_on_with_smaller_micro_batches(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    kind: Any,
    step: int,
    rows: int,
) -> None:
    request = request_of(tmp_path, kind)
    monkeypatch.setenv("GENENV_STARVED", f"{step}:{rows}")
    with caplog.at_level(logging.INFO, "genenv.training"):
        result = WorkerTrainer().update(request)
    expected = undisturbed(tmp_path, request)
    # Steps before the want of memory were taken once: what came after continued from them.
    assert (result.steps, result.resumed_at) == (expected.steps, step)
    assert result.metrics == pytest.approx(expected.metrics, rel=1e-3, abs=1e-5)
    one, other = weights(expected.checkpoint), weights(result.checkpoint)
    assert max(float((one[n] - other[n]).abs().max()) for n in one) < 1e-5
    warned = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    # Micro-batches are cut evenly: of 12 generations with at most 4 a process has two of 3.
    before, after = {"grpo": (4, 2), "rwr": (8, 4)}[kind]
    assert len(warned) == 1
    assert f"memory ran out with micro_batch_rows={before}: it goes on with {after};" in warned[0]


@mutation(
    "processes that lost their connection hide which one had no memory",
    "genenv_core/training/processes/launch.py", 'if "rows" in error:', "if False:",
)  # fmt: skip
def test_the_want_of_memory_of_one_process_is_the_callers_error(tmp_path: Path) -> None:
    lost = {"kind": "TrainingError", "message": "connection closed by peer"}
    starved = {"kind": "OutOfMemory", "message": "rwr ran out of memory with 1", "rows": 1}
    for rank, error in enumerate((lost, starved, lost)):
        (tmp_path / launch.ERROR.format(rank)).write_text(json.dumps(error))
    with pytest.raises(OutOfMemory, match="rwr ran out of memory with 1") as caught:
        Launcher()._outcome("rwr", tmp_path, 1)
    assert caught.value.rows == 1


def sizes(request: Request, fitting: int) -> list[int]:
    """Return the micro-batches of an update that always runs out of memory, as it was asked for.

    At most `fitting` rows are what an attempt begins with.
    """
    asked: list[int] = []

    def attempt(one: Any) -> UpdateResult:
        asked.append(one.settings.micro_batch_rows)
        if len(asked) > 9:
            raise Stopped("it would never end")
        raise OutOfMemory("no memory", min(fitting, one.settings.micro_batch_rows))

    with pytest.raises(OutOfMemory):
        attempted(request, attempt)
    return asked


def test_rows_are_halved_from_what_fitted_down_to_one(tmp_path: Path, as_gpus: None) -> None:
    # Asked for 8, and 6 was what the estimate allowed.
    assert sizes(request_of(tmp_path, "rwr"), fitting=6) == [8, 3, 1]


def test_on_cpus_no_other_size_is_tried(tmp_path: Path) -> None:
    assert sizes(request_of(tmp_path, "rwr"), fitting=8) == [8]


@mutation(
    "two updates share a GPU", "genenv_core/training/processes/attempts.py",
    "if request.training.on_gpus", "if False",
)  # fmt: skip
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_updates_on_gpus_take_turns(tmp_path: Path, device: str) -> None:
    training = TrainingConfig.model_validate({"device": device})
    request = request_of(tmp_path, "rwr").model_copy(update={"training": training})

    def attempt(_: Any) -> Any:
        return attempts._GPUS.locked()

    assert attempted(request, attempt) == (device == "cuda")
    assert not attempts._GPUS.locked()


def test_a_trainer_checkpoint_serves_another_micro_batch_on_gpus_alone(tmp_path: Path) -> None:
    request = request_of(tmp_path, "rwr")
    settings = request.settings.model_copy(update={"micro_batch_rows": 4})
    for device, same in (("cpu", False), ("cuda", True)):
        training = request.training.model_copy(update={"device": device})
        here = request.model_copy(update={"training": training})
        other = here.model_copy(update={"settings": settings})
        digests = {request_digest(made) for made in (here, other)}
        assert (len(digests) == 1) is same


@mutation(
    "a halved update names its loss as a section", "genenv_core/training/processes/attempts.py",
    "UPDATES[request.loss].rows_field, rows,", 'f"{request.loss}.micro_batch_rows", rows,',
)  # fmt: skip
@mutation(
    "a launched update names its loss as a section", "genenv_core/training/processes/launch.py",
    "lower {UPDATES[loss].rows_field} and run", "lower {loss}.micro_batch_rows and run",
)  # fmt: skip
def test_the_field_to_lower_is_one_of_the_configuration(
    tmp_path: Path, as_gpus: None, caplog: pytest.LogCaptureFixture
) -> None:
    """An algorithm of one's own has its settings in section grpo."""
    plain = dict(request_of(tmp_path, "grpo"))
    request = OwnRequest(**plain, algorithm="mine.py:Mine", options={})
    with pytest.raises(OutOfMemory):
        attempted(request, lambda one: starved(one.settings.micro_batch_rows))
    halved = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    assert [line.partition("set ")[2].split()[0] for line in halved] == [
        "grpo.micro_batch_rows=2", "grpo.micro_batch_rows=1",
    ]  # fmt: skip
    with pytest.raises(TrainingError, match=r"lower grpo\.micro_batch_rows and run again"):
        Launcher()._outcome(request.loss, tmp_path / "empty", 1)


def starved(rows: int) -> UpdateResult:
    raise OutOfMemory("no memory", rows)
