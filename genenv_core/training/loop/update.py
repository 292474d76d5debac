"""The course of every update, whatever its loss: rows, policy, training, checkpoint, result.

It runs in a quiet and seeded process, with a scratch folder and a device.
"""

# torch and transformers come without complete types.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false

from __future__ import annotations

import gc
import logging
import math
import random
import shutil
import threading
import traceback
import warnings
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np
import torch
import transformers
from transformers.utils import logging as hf_logging

from genenv_core.config.sections.training import TrainingConfig
from genenv_core.config.stages import STEPPING
from genenv_core.engines.transformers.unloaded import steady_positions
from genenv_core.errors import GenenvError, OutOfMemory, TrainingError, one_line
from genenv_core.machine.freeing import trim
from genenv_core.training.loop.checkpoints import CheckpointKeeper
from genenv_core.training.loop.rows import RowRoom
from genenv_core.training.loop.steps import train_quietly
from genenv_core.training.memory.estimate import GB, fitted
from genenv_core.training.policies import ranks
from genenv_core.training.policies.prefixes import check_prefixes
from genenv_core.training.policies.weights import LoadedPolicy, load_policy
from genenv_core.training.requests import UpdateRequest, UpdateResult
from genenv_core.training.updates.table import UPDATES

_LIBRARIES = ("trl", "accelerate", "datasets", "transformers")
# Thread counts, random states and accelerate's singletons belong to the process: two updates in
# one process take turns.
_ONE_UPDATE = threading.RLock()


class StoredRows(Protocol):
    """The rows of an update, checked as far as possible without its model."""

    def check_room(self, room: RowRoom) -> None:
        """Raise `TrainingError` when a row does not fit into what a model has room for."""
        ...


Request = TypeVar("Request", bound=UpdateRequest)
Rows = TypeVar("Rows", bound=StoredRows)


def carry_out(
    request: Request,
    stop: Callable[[], bool],
    read: Callable[[Request], Rows],
    trainer_of: Callable[[LoadedPolicy, Rows, Request, Path], Any],
) -> UpdateResult:
    """Return the result of an update, which saves the policy in `request.output`.

    `read` returns the checked rows; `trainer_of` returns the `StepTrainer` of the loss, with its
    checkpoints in the given folder. The loop calls `stop` after each optimizer step; True ends the
    update with `Stopped`.
    """
    rows = read(request)
    request = fitted(request, device_memory(request.training))
    # The update has a frame of its own: `alone` collects what it made once nothing refers to it.
    with alone(request):
        return _computed(request, stop, rows, trainer_of)


def _computed(
    request: Request,
    stop: Callable[[], bool],
    rows: Rows,
    trainer_of: Callable[[LoadedPolicy, Rows, Request, Path], Any],
) -> UpdateResult:
    with (
        workspace(request.output, *request.models) as work,
        CheckpointKeeper(request, stop) as keeper,
    ):
        policy = load_policy(request.checkpoint, request.training)
        bound = UPDATES[request.loss].bound
        rows.check_room(RowRoom(policy.vocabulary, steady_positions(policy.config), bound))
        if request.training.shares_rows:
            check_prefixes(policy.model, request.checkpoint)
        trainer = trainer_of(policy, rows, request, keeper.folder or work)
        steps = train_quietly(trainer, keeper)
        outcome = trainer.outcome()
        policy.save(trainer.model, request.output, work)
    return UpdateResult(
        steps=steps,
        checkpoint=request.output,
        metrics=outcome.metrics | {"grad_norm": trainer.grad_norm} | policy.metrics,
        action=outcome.action,
        note=outcome.note,
        micro_batch_rows=request.settings.micro_batch_rows,
        resumed_at=keeper.resumed_at,
    )


@contextmanager
def alone(request: UpdateRequest) -> Generator[None]:
    """Return a context in which an update runs alone, seeded, silent and with its threads.

    A foreign exception becomes a `TrainingError`; when memory runs out, an `OutOfMemory` that names
    the setting to lower. At the end it restores random states, thread count and log levels, and
    frees what the update left in memory: a trainer is a cycle of references, as large as four
    copies of its model.
    """
    what, micro_batch_rows = request.what, request.settings.micro_batch_rows
    with _ONE_UPDATE, ExitStack() as stack:
        stack.enter_context(_silence())
        # Of its own GPU alone: a look at the others' states would fill some of their memory.
        own = [torch.cuda.current_device()] if torch.cuda.is_initialized() else []
        stack.enter_context(torch.random.fork_rng(devices=own))
        stack.callback(random.setstate, random.getstate())
        stack.callback(np.random.set_state, np.random.get_state())
        stack.callback(torch.set_num_threads, torch.get_num_threads())
        # TRL's loop collects garbage when it starts, and the update does when it ends. Neither
        # looks through frozen objects: the process's own take a third of a second after the
        # imports. The update collects before it unfreezes them, into the oldest generation.
        gc.freeze()
        stack.callback(gc.unfreeze)
        stack.callback(_give_back)
        torch.set_num_threads(request.threads)
        transformers.set_seed(request.seed)
        try:
            yield
        except GenenvError as error:
            _let_go(error)
            raise
        except Exception as error:
            _let_go(error)
            text = one_line(error)
            if not _is_out_of_memory(error, text):
                message = f"{what} failed: {type(error).__name__}: {text}; see the cause"
                raise TrainingError(message) from error
            setting = UPDATES[request.loss].rows_field
            remedy = (
                f"lower it, for example --set {setting}={micro_batch_rows // 2}"
                if micro_batch_rows > 1
                else "set execution.gradient_checkpointing=full or training.lora.rank, shard over "
                "more processes (training.strategy=fsdp2), or use shorter completions"
            )
            raise OutOfMemory(
                f"{what} ran out of memory with {setting} {micro_batch_rows}: {remedy} "
                f"({text[:200]})",
                micro_batch_rows,
            ) from error


def _give_back() -> None:
    """Free what an update left, and give the memory back to the system and to the GPU.

    glibc would hold it while the run samples: 2.2 GB after an update of 171 M weights. So would
    torch on a GPU, where another process samples.
    """
    gc.collect()
    trim()
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()


def _let_go(error: BaseException) -> None:
    """Empty the frames on an error's way: they refer to the trainer."""
    seen: BaseException | None = error
    while seen is not None:
        traceback.clear_frames(seen.__traceback__)
        seen = seen.__cause__ or seen.__context__


def _is_out_of_memory(error: Exception, text: str) -> bool:
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    # What torch raises on a CPU, and CUDA's libraries outside of torch's own allocator.
    signs = ("can't allocate memory", "out of memory", "ALLOC_FAILED")
    return isinstance(error, RuntimeError) and any(sign in text for sign in signs)


@contextmanager
def _silence() -> Generator[None]:
    loggers = [logging.getLogger(name) for name in _LIBRARIES]
    levels = [logger.level for logger in loggers]
    verbosity, bars = hf_logging.get_verbosity(), hf_logging.is_progress_bar_enabled()
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    hf_logging.set_verbosity_error()
    hf_logging.disable_progress_bar()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        hf_logging.set_verbosity(verbosity)
        if bars:
            hf_logging.enable_progress_bar()
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


@contextmanager
def workspace(output: Path, *given: Path) -> Generator[Path]:
    """Yield a scratch folder beside `output`, and delete it at the end.

    The processes of an update share it; the first one makes and removes it. Raises TrainingError
    where `output` is one of the paths in `given`.
    """
    for path in given:
        if path.resolve() == output.resolve():
            raise TrainingError(f"output {output} is also an input of the update: choose another")
    folder = output.parent / f".{output.name}.work"
    if ranks.first():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
    ranks.wait()
    try:
        yield folder
    finally:
        if ranks.first():
            shutil.rmtree(folder, ignore_errors=True)


def device_memory(training: TrainingConfig) -> float | None:
    """Return the bytes of a device that the update may fill; None: no limit.

    It is the least over all its processes. Raises `TrainingError` where the configuration wants a
    GPU and torch finds none.
    """
    limit = None if training.memory_gb is None else training.memory_gb * GB
    if training.device == "cpu":
        return limit
    if not torch.cuda.is_available():
        raise TrainingError(
            "training.device is cuda and torch finds no GPU here: run the stage where there is one "
            f"({', '.join(f'placement.{stage}' for stage in STEPPING)}), or set training.device=cpu"
        )
    free, _ = torch.cuda.mem_get_info()
    return min([limit or math.inf, *ranks.collected(float(free))])
