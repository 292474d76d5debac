"""Updates that are killed, stopped or starved, with the real TRL trainers on tiny models.

Invariants: an update killed after any optimizer step, or in the middle of a checkpoint, continues
from the last sealed one and ends on the same bits, metrics, action and note as one never killed,
also in another process; a checkpoint that is torn, altered, incomplete or another request's is
ignored with a warning and changes nothing but the time; an old one goes only after the next is
sealed; the losses that are shown go on where the update does; no pickle is read freely or kept; a
stop ends the update after its step and loses nothing;
workers outlive SIGTERM; lack of memory names the setting to lower.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import signal
import threading
from array import array
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import torch
from pydantic import ValidationError

from genenv_core.algorithm.mixture import step_count
from genenv_core.canonical import file_sha256
from genenv_core.errors import Stopped, TrainingError
from genenv_core.training.grpo import trainer as grpo
from genenv_core.training.loop import checkpoints
from genenv_core.training.loop import steps as loop_steps
from genenv_core.training.loop.checkpoints import CheckpointKeeper, request_digest
from genenv_core.training.processes.workers import WorkerTrainer
from genenv_core.training.requests import TrainerCheckpoints, UpdateResult
from genenv_core.training.rwr import trainer as rwr
from genenv_core.training.rwr.leash import Leash
from genenv_core.training.updates.grpo import GrpoRequest
from genenv_core.training.updates.rwr import RwrRequest
from genenv_core.training.updates.table import run_update
from genenv_core.training.updates.warm_start import SftRequest
from genenv_core.training.warm_start.request import noted_steps
from tests.examples import some
from tests.mutations import mutation
from tests.unit.training.builders_training import (
    grpo_of,
    grpo_rows,
    load,
    random_rows,
    rwr_of,
    rwr_rows,
    sft_of,
    tiny_checkpoint,
)
from tests.waiting import BOUND_S, until

pytestmark = pytest.mark.slow

Request = GrpoRequest | RwrRequest | SftRequest
STATE_FILE = "state-00001-of-00001.safetensors"
CHECKPOINTS = "genenv_core/training/loop/checkpoints.py"
NEVER = 1e6
"""Seconds between checkpoints that no test lasts."""


class Killed(BaseException):
    """Simulates the end of the process; no handler of an update may catch it."""


@dataclass(frozen=True)
class Case:
    """A request, the result of its uninterrupted update, and the digest of the weights."""

    request: Request
    result: UpdateResult
    sha256: str


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("resume")
    tiny_checkpoint(path / "policy", seed=1)
    return path


def grpo_request(home: Path, name: str = "grpo", **settings: Any) -> GrpoRequest:
    """Return an update of 5 groups: 2 passes of 3 steps; 3 micro-batches a step, 2 in the last."""
    defaults = {"groups_per_step": 2, "passes": 2, "micro_batch_rows": 3}
    defaults |= {"temperature": 0.9, "seed": 3}
    rows = grpo_rows(5, 4, sampler=load(home / "policy"), masked=True)
    return grpo_of(home, name, rows, home / "policy", **defaults | settings)


def rwr_request(home: Path, name: str, **settings: Any) -> RwrRequest:
    defaults = {"max_grad_norm": 1000, "micro_batch_rows": 3, "learning_rate": 1e-3}
    defaults["steps_per_row"] = 100
    policy = home / "policy"
    return rwr_of(home, name, rwr_rows(8), policy, policy, **defaults | settings)


REQUESTS: dict[str, tuple[Callable[[Path], Request], str, int]] = {
    "grpo": (lambda home: grpo_request(home), "updated", 6),
    "grpo with kl": (
        lambda home: grpo_request(home, "kl", kl_coef=0.1, warmup_steps=4),
        "updated",
        6,
    ),
    # Of another temperature than the rows: tokens that were off at the start are left out.
    "grpo near": (
        lambda home: grpo_request(home, "near", max_mismatch=0.2, learning_rate=1e-2),
        "updated",
        6,
    ),
    "rwr": (lambda home: rwr_request(home, "rwr", kl_cap=1e6, steps=4), "updated", 4),
    # Above the cap after steps 3 and 5, back under it after 4 and 6.
    "pull": (lambda home: rwr_request(home, "pull", kl_cap=1.09, steps=6), "pulled", 6),
    "roll back": (
        lambda home: rwr_request(home, "back", kl_cap=1.8, steps=8, kl_cap_action="roll_back"),
        "rolled_back",
        4,
    ),
    # Never under the cap again: the weights of the start are needed at the end.
    "to the start": (
        lambda home: rwr_request(home, "start", kl_cap=1e-4, steps=4),
        "rolled_back",
        4,
    ),
    "warm start": (
        lambda home: sft_of(
            home, "sft", random_rows(9), home / "policy", batch_rows=3, micro_batch_rows=2
        ),
        "updated",
        3,
    ),
}


@pytest.fixture(scope="module")
def cases(home: Path) -> dict[str, Case]:
    """Return every case after an uninterrupted update without checkpoints."""
    found: dict[str, Case] = {}
    for name, (make, action, steps) in REQUESTS.items():
        request = make(home)
        result = update(request)
        assert (result.action, result.steps, result.resumed_at) == (action, steps, 0)
        found[name] = Case(request, result, weights_sha256(result))
    return found


def update(request: Request, stop: Callable[[], bool] = lambda: False) -> UpdateResult:
    return run_update(request, stop)


def weights_sha256(result: UpdateResult) -> str:
    return file_sha256(result.checkpoint / "model.safetensors")


def kept(case: Case, tmp_path: Path, seconds: float = 0.0, folder: str = "progress") -> Request:
    """Return the request with trainer checkpoints, by default after every step."""
    checkpoints = TrainerCheckpoints(folder=tmp_path / folder, seconds=seconds)
    output = tmp_path / f"out-{folder}"
    return case.request.model_copy(update={"checkpoints": checkpoints, "output": output})


def assert_same(case: Case, result: UpdateResult, resumed_at: int) -> None:
    assert result.resumed_at == resumed_at
    outside = {"resumed_at", "checkpoint"}
    assert result.model_dump(exclude=outside) == case.result.model_dump(exclude=outside)
    assert weights_sha256(result) == case.sha256


def die_after(step: int, how: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> None:
    """Call `how` right after the checkpoint of one optimizer step of an update."""
    original = CheckpointKeeper.on_save

    def on_save(self: Any, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        original(self, args, state, control, **kwargs)
        if state.global_step == step:
            how()

    monkeypatch.setattr(CheckpointKeeper, "on_save", on_save)


def _killed() -> None:
    raise Killed


def interrupted(request: Request, step: int) -> Path:
    """Kill an update after the checkpoint of a step; returns the folder of its checkpoints."""
    assert request.checkpoints is not None
    with pytest.MonkeyPatch.context() as patch, pytest.raises(Killed):
        die_after(step, _killed, patch)
        update(request)
    return request.checkpoints.folder


@mutation(
    "a resumed update looks for mismatches under its moved weights",
    "genenv_core/training/grpo/stored.py",
    "        self._leave_out_mismatches()  # the last moment of the start's weights where one "
    "resumes\n",
    "", by="[grpo near]",
)  # fmt: skip
@mutation(
    "a resumed update scores its reference with other rows",
    "genenv_core/training/grpo/reference.py",
    "together = self._together[row]", "together = rows", by="[grpo with kl]",
)  # fmt: skip
@pytest.mark.parametrize("name", some(REQUESTS, ("grpo with kl", "rwr")))
def test_an_update_killed_after_any_step_ends_on_the_same_bits(
    tmp_path: Path, cases: dict[str, Case], name: str
) -> None:
    case = cases[name]
    for step in range(1, case.result.steps):
        request = kept(case, tmp_path, folder=str(step))
        folder = interrupted(request, step)
        assert {path.name for path in folder.iterdir()} == {f"checkpoint-{step}", "lock"}
        assert not request.output.exists()
        assert_same(case, update(request), resumed_at=step)


@mutation(
    "an update without a trainer checkpoint reads its models for one", CHECKPOINTS,
    "self._asked = request\n", "self._asked, _ = request, request_digest(request)\n",
)  # fmt: skip
def test_models_are_read_for_a_digest_only_where_there_is_a_checkpoint(
    tmp_path: Path, cases: dict[str, Case], monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(_: Request) -> str:
        raise AssertionError("the models of an update were read")

    monkeypatch.setattr("genenv_core.training.loop.checkpoints.request_digest", read)
    assert_same(cases["grpo"], update(kept(cases["grpo"], tmp_path, seconds=NEVER)), resumed_at=0)


@pytest.mark.parametrize("name", ["grpo with kl", "pull"])
def test_a_resumed_update_starts_with_the_numbers_of_its_checkpoint(
    tmp_path: Path, cases: dict[str, Case], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    request = kept(cases[name], tmp_path)
    saved = json.loads((interrupted(request, 3) / "checkpoint-3" / "update.json").read_text())
    assert saved["grad_norm"] > 0
    found: list[Any] = []

    def on_train_begin(self: Any, *_: Any, **__: Any) -> None:
        found.append(json.loads(json.dumps(self._trainer.counters())))

    monkeypatch.setattr(CheckpointKeeper, "on_train_begin", on_train_begin)
    update(request)
    assert found == [saved]


@mutation(
    "an update that continues counts its steps from 0", CHECKPOINTS,
    '(newest / _LOSSES).read_bytes() if newest else b""', 'b""',
)  # fmt: skip
@mutation(
    "steps of GRPO are planned for whole steps alone", "genenv_core/algorithm/mixture.py",
    "math.ceil(groups / per_step)", "(groups // per_step)", by="[grpo]",
)  # fmt: skip
@mutation(
    "the loss of GRPO is never shown", "genenv_core/training/grpo/stored.py",
    "self.add(loss=loss / self.training.processes)", "pass", by="[grpo]",
)  # fmt: skip
@mutation(
    "a checkpoint without its steps' losses is continued from", CHECKPOINTS,
    "*([_LOSSES] if self._noted else [])", "",
)  # fmt: skip
@pytest.mark.parametrize("name", ["grpo", "rwr"])
def test_the_losses_that_are_noted_go_on_where_the_update_does(
    tmp_path: Path, cases: dict[str, Case], name: str
) -> None:
    case, noted = cases[name], tmp_path / "losses"
    whole = case.request.model_copy(update={"output": tmp_path / "whole", "noted": noted})
    result = update(whole)
    losses, (steps, _) = noted.read_bytes(), noted_steps(noted)
    assert weights_sha256(result) == case.sha256
    assert steps == result.steps and array("d", losses)[-1] == result.metrics["loss"] != 0
    if isinstance(whole, GrpoRequest):
        assert step_count(5, passes=2, per_step=2) == steps
    request = kept(case, tmp_path).model_copy(update={"noted": noted})
    noted.write_bytes(losses * 3)  # of an attempt that ran out of memory
    folder = interrupted(request, 3) / "checkpoint-3"
    assert noted.read_bytes() == losses[: 3 * 8] == (folder / "losses").read_bytes()
    noted.unlink()  # the next attempt has another scratch folder
    assert_same(case, update(request), resumed_at=3)
    assert noted.read_bytes() == losses
    silent = kept(case, tmp_path, folder="silent")
    interrupted(silent, 2)
    assert update(silent.model_copy(update={"noted": noted})).resumed_at == 0
    assert noted.read_bytes() == losses


def test_an_update_killed_again_and_again_ends_on_the_same_bits(
    tmp_path: Path, cases: dict[str, Case]
) -> None:
    request = kept(cases["pull"], tmp_path)
    for step in (1, 3, 4):
        interrupted(request, step)
    assert_same(cases["pull"], update(request), resumed_at=4)


def _sigkill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _update_killed_after_step_2(request: Request) -> UpdateResult:
    die_after(2, _sigkill, pytest.MonkeyPatch())
    return update(request)


def _update_killed_after_step_5(request: Request) -> UpdateResult:
    die_after(5, _sigkill, pytest.MonkeyPatch())
    return update(request)


@pytest.mark.parametrize(
    ("name", "step", "function"),
    [
        ("grpo with kl", 2, _update_killed_after_step_2),
        ("pull", 5, _update_killed_after_step_5),
    ],
)
def test_a_worker_process_killed_by_sigkill_loses_nothing(
    tmp_path: Path, cases: dict[str, Case], name: str, step: int, function: Any
) -> None:
    request = kept(cases[name], tmp_path)
    trainer = WorkerTrainer()
    try:
        with pytest.raises(TrainingError, match="was killed"):
            trainer._call(function, request, "it", "grpo.micro_batch_rows")
    finally:
        trainer.close()
    assert_same(cases[name], update(request), resumed_at=step)


@pytest.mark.parametrize(
    ("place", "resumed_at"),
    [("_seal", 2), ("_delete_all_but", 3)],
    ids=["before the seal", "after the seal, before the older one goes"],
)
def test_a_kill_in_the_middle_of_a_checkpoint_leaves_the_one_before(
    tmp_path: Path, cases: dict[str, Case], place: str, resumed_at: int
) -> None:
    request = kept(cases["grpo"], tmp_path)
    original = getattr(CheckpointKeeper, place)

    def dies_in_the_third(self: Any, folder: Path | None, *rest: Any) -> None:
        if folder is not None and folder.name == "checkpoint-3":
            raise Killed
        original(self, folder, *rest)

    with pytest.MonkeyPatch.context() as patch, pytest.raises(Killed):
        patch.setattr(CheckpointKeeper, place, dies_in_the_third)
        update(request)
    assert request.checkpoints is not None
    left = {path.name for path in request.checkpoints.folder.iterdir()}
    assert left == {"checkpoint-2", "checkpoint-3", "lock"}
    assert_same(cases["grpo"], update(request), resumed_at=resumed_at)


def test_a_kill_while_the_result_is_saved_repeats_the_last_step(
    tmp_path: Path, cases: dict[str, Case], monkeypatch: pytest.MonkeyPatch
) -> None:
    request = kept(cases["rwr"], tmp_path)
    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(Leash, "settle", lambda *_: _killed())
        update(request)
    assert not request.output.exists()
    assert_same(cases["rwr"], update(request), resumed_at=3)


def flip_a_bit(folder: Path) -> None:
    path = folder / STATE_FILE
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def tear_the_seal(folder: Path) -> None:
    data = (folder / "seal.json").read_bytes()
    (folder / "seal.json").write_bytes(data[: len(data) // 2])


DAMAGE: dict[str, tuple[Callable[[Path], None], str]] = {
    "torn seal": (tear_the_seal, "seal.json is damaged"),
    "flipped bit": (flip_a_bit, f"altered, missing or unknown: {STATE_FILE}"),
    "lost file": (
        lambda folder: (folder / "trainer_state.json").unlink(),
        "unknown: trainer_state.json",
    ),
    "added file": (
        lambda folder: (folder / "pytorch_model.bin").write_bytes(b"pickle"),
        "unknown: pytorch_model.bin",
    ),
}


@pytest.mark.parametrize(("damage", "message"), DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_checkpoint_is_ignored_aloud(
    tmp_path: Path,
    cases: dict[str, Case],
    caplog: pytest.LogCaptureFixture,
    damage: Callable[[Path], None],
    message: str,
) -> None:
    request = kept(cases["grpo"], tmp_path)
    damage(interrupted(request, 4) / "checkpoint-4")
    with caplog.at_level(logging.WARNING, "genenv.training"):
        result = update(request)
    assert_same(cases["grpo"], result, resumed_at=0)
    (warned,) = [one.getMessage() for one in caplog.records if one.levelno >= logging.WARNING]
    assert "checkpoint-4 ignored" in warned and message in warned


def test_the_checkpoint_before_a_damaged_one_is_used(
    tmp_path: Path, cases: dict[str, Case], caplog: pytest.LogCaptureFixture
) -> None:
    request = kept(cases["grpo"], tmp_path)
    folder = interrupted(request, 2)
    shutil.copytree(folder / "checkpoint-2", tmp_path / "aside")
    interrupted(request, 4)
    (tmp_path / "aside").rename(folder / "checkpoint-2")
    flip_a_bit(folder / "checkpoint-4")
    assert_same(cases["grpo"], update(request), resumed_at=2)
    assert "checkpoint-4 ignored" in caplog.text


def test_a_checkpoint_of_another_request_is_ignored_aloud(
    tmp_path: Path, cases: dict[str, Case], caplog: pytest.LogCaptureFixture
) -> None:
    request = kept(cases["grpo"], tmp_path)
    interrupted(request.model_copy(update={"seed": 4}), 4)
    assert_same(cases["grpo"], update(request), resumed_at=0)
    assert "belongs to another request" in caplog.text


def test_the_digest_of_a_request_is_of_all_that_decides_its_result(
    tmp_path: Path, cases: dict[str, Case]
) -> None:
    request = cases["grpo"].request
    assert isinstance(request, GrpoRequest)
    rows = pl.read_parquet(request.rows)
    other_rows = tmp_path / "other.parquet"
    rows.with_columns(reward=pl.col("reward") + 1).write_parquet(other_rows)
    same_rows, same_model = tmp_path / "same.parquet", tmp_path / "same"
    shutil.copy(request.rows, same_rows)
    shutil.copytree(request.checkpoint, same_model)
    settings = request.settings.model_copy(update={"learning_rate": 7e-5})
    checkpoints = TrainerCheckpoints(folder=tmp_path, seconds=7)
    known = request_digest(request)
    different = [
        *(
            request_digest(request.model_copy(update=change))
            for change in (
                {"seed": 9},
                {"threads": 2},
                {"temperature": 1.0},
                {"settings": settings},
                {"rows": other_rows},
                {"checkpoint": tiny_checkpoint(tmp_path / "model", seed=2)},
            )
        ),
    ]
    assert len({known, *different}) == 1 + len(different)
    moved = {"rows": same_rows, "output": tmp_path / "o", "checkpoints": checkpoints}
    moved["checkpoint"] = same_model
    assert request_digest(request.model_copy(update=moved)) == known
    references = (request.checkpoint, same_model, tmp_path / "model")
    pulled = [request_digest(request.model_copy(update={"reference": r})) for r in references]
    assert pulled[0] == pulled[1] and len({known, *pulled}) == 3


def test_no_pickle_is_written_or_read(
    tmp_path: Path, cases: dict[str, Case], monkeypatch: pytest.MonkeyPatch
) -> None:
    request = kept(cases["pull"], tmp_path)
    made = interrupted(request, 2) / "checkpoint-2"
    names = {path.name for path in made.iterdir()}
    tensors = {STATE_FILE, "update-00001-of-00001.safetensors"}
    assert names == tensors | {"trainer_state.json", "update.json", "seal.json"}

    def load(*_: Any, **__: Any) -> Any:
        raise AssertionError("torch.load was called")

    monkeypatch.setattr(torch, "load", load)
    assert_same(cases["pull"], update(request), resumed_at=2)


def test_checkpoints_are_as_rare_as_asked_and_never_after_the_last_step(
    tmp_path: Path, cases: dict[str, Case], monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []
    original = CheckpointKeeper._seal

    def seal(self: Any, folder: Path, step: int) -> None:
        made.append(folder.name)
        original(self, folder, step)

    monkeypatch.setattr(CheckpointKeeper, "_seal", seal)
    now = [100.0]
    monkeypatch.setattr(checkpoints.time, "monotonic", lambda: now[0])

    def tick() -> bool:
        now[0] += 10
        return False

    assert_same(cases["grpo"], update(kept(cases["grpo"], tmp_path, NEVER), tick), resumed_at=0)
    assert made == []
    assert_same(cases["grpo"], update(kept(cases["grpo"], tmp_path, 20), tick), resumed_at=0)
    assert made == ["checkpoint-2", "checkpoint-4"]
    made.clear()
    back = kept(cases["roll back"], tmp_path, folder="back")
    assert_same(cases["roll back"], update(back), resumed_at=0)
    assert made == ["checkpoint-1", "checkpoint-2", "checkpoint-3"]
    with pytest.raises(ValidationError, match="greater than or equal to 0"):
        TrainerCheckpoints(folder=tmp_path, seconds=-1)


def test_checkpoints_print_nothing(
    tmp_path: Path, cases: dict[str, Case], capfd: pytest.CaptureFixture[str]
) -> None:
    request = kept(cases["grpo"], tmp_path)
    capfd.readouterr()
    interrupted(request, 3)
    update(request)
    assert capfd.readouterr() == ("", "")


def test_a_weight_that_the_model_does_not_take_back_is_an_error(
    tmp_path: Path, cases: dict[str, Case], monkeypatch: pytest.MonkeyPatch
) -> None:
    request = kept(cases["grpo"], tmp_path)
    interrupted(request, 2)
    original = loop_steps.load_tensors

    def renaming(*args: Any, **options: Any) -> dict[str, torch.Tensor]:
        tensors = original(*args, **options)
        tensors["weight/old.norm"] = tensors.pop("weight/model.norm.weight")
        return tensors

    monkeypatch.setattr(loop_steps, "load_tensors", renaming)
    missing, unknown = r"missing \['weight/model.norm.weight'\]", r"unknown \['weight/old.norm'\]"
    with pytest.raises(TrainingError, match=f"does not fit the model: {missing}, {unknown}"):
        update(request)


@pytest.mark.parametrize("name", ["grpo", "pull"])
def test_a_stop_ends_the_update_after_its_step_and_loses_nothing(
    tmp_path: Path, cases: dict[str, Case], name: str
) -> None:
    request = kept(cases[name], tmp_path, NEVER)
    asked: list[int] = []

    def at_the_third() -> bool:
        asked.append(1)
        return len(asked) == 3

    with pytest.raises(Stopped, match="after step 3 of 6: the same command continues from there"):
        update(request, at_the_third)
    assert not request.output.exists()
    assert_same(cases[name], update(request), resumed_at=3)


def test_a_stop_without_a_folder_starts_again_and_one_in_the_last_step_is_late(
    tmp_path: Path, cases: dict[str, Case]
) -> None:
    request = cases["rwr"].request.model_copy(update={"output": tmp_path / "out"})
    with pytest.raises(Stopped, match=r"after step 1 of 4 without a folder.*starts it again"):
        update(request, lambda: True)
    asked: list[int] = []
    assert_same(cases["rwr"], update(request, lambda: len(asked) > 3 or bool(asked.append(1))), 0)
    assert len(asked) == 3


@mutation(
    "a closed terminal kills the workers of a run", "genenv_core/training/processes/workers.py",
    "signal.SIGTERM, signal.SIGHUP)", "signal.SIGTERM)",
)  # fmt: skip
def test_workers_stop_on_request_and_leave_signals_to_the_parent(
    tmp_path: Path, home: Path
) -> None:
    request = grpo_request(home, "long", passes=12)
    case = Case(request, whole := update(request), weights_sha256(whole))
    request = kept(case, tmp_path)
    trainer, caught = WorkerTrainer(), list[Exception]()

    def run() -> None:
        try:
            trainer.update(request)
        except Exception as error:
            caught.append(error)

    try:
        thread = threading.Thread(target=run)
        thread.start()
        folder = tmp_path / "progress"
        until(lambda: list(folder.glob("*/seal.json")))
        for process in trainer._busy[0].processes:
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                os.kill(process.pid or 0, number)
        trainer.request_stop()
        thread.join(BOUND_S)
        assert [type(error) for error in caught] == [Stopped], caught
        with pytest.raises(Stopped, match="not started"):
            trainer.update(request)
    finally:
        trainer.close()
    (made,) = folder.glob("checkpoint-*")
    step = json.loads((made / "seal.json").read_text())["step"]
    assert f"after step {step} of 36" in str(caught[0])
    assert_same(case, update(request), resumed_at=step)


def _allocate_a_petabyte(*_: Any, **__: Any) -> Any:
    return torch.empty(10**15, dtype=torch.uint8)


@pytest.mark.parametrize(
    ("rows", "remedy"),
    [(3, "lower it, for example --set {}=1"), (1, "set execution.gradient_checkpointing=full or")],
)
def test_out_of_memory_names_the_setting_to_lower(
    home: Path, monkeypatch: pytest.MonkeyPatch, rows: int, remedy: str
) -> None:
    monkeypatch.setattr(grpo.StoredRolloutTrainer, "_compute_loss", _allocate_a_petabyte)
    monkeypatch.setattr(rwr.WeightedRegressionTrainer, "compute_loss", _allocate_a_petabyte)
    requests = {
        "grpo.micro_batch_rows": grpo_request(home, "hungry", micro_batch_rows=rows),
        "rwr.micro_batch_rows": rwr_request(home, "hungry2", kl_cap=1e6, micro_batch_rows=rows),
    }
    for setting, request in requests.items():
        with pytest.raises(TrainingError) as caught:
            update(request)
        message = str(caught.value)
        assert f"ran out of memory with {setting} {rows}: {remedy.format(setting)}" in message
        assert "\n" not in message
        assert not request.output.exists()


@pytest.mark.parametrize(
    ("error", "starved"),
    [
        (MemoryError(), True),
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"), True),
        (RuntimeError("CUDA error: out of memory"), True),
        (RuntimeError("CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate"), True),
        (RuntimeError("size mismatch"), False),
        (ValueError("out of memory"), False),
    ],
)
def test_only_out_of_memory_is_reported_as_such(
    home: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, starved: bool
) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise error

    monkeypatch.setattr(grpo.StoredRolloutTrainer, "_compute_loss", fail)
    with pytest.raises(TrainingError, match="ran out of memory" if starved else "see the cause"):
        update(grpo_request(home, "failing"))
