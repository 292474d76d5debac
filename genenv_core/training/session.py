"""What an update runs in: a quiet, seeded session of its own, a scratch folder, a device."""

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
import warnings
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
import torch
import transformers
from transformers.utils import logging as hf_logging

from genenv_core.config.training import TrainingConfig
from genenv_core.errors import GenenvError, OutOfMemory, TrainingError
from genenv_core.training import ranks
from genenv_core.training.memory import GB

_LIBRARIES = ("trl", "accelerate", "datasets", "transformers")
# Thread counts, random states and accelerate's singletons belong to the process: two updates in
# one process take turns.
_ONE_UPDATE = threading.RLock()


@contextmanager
def training_session(
    what: str, *, threads: int, seed: int, section: str, micro_batch_rows: int
) -> Generator[None]:
    """Return a context in which an update runs alone, seeded, silent and with `threads` threads.

    `what` opens the message of every foreign exception, which leaves as a `TrainingError`; when
    memory ran out, as an `OutOfMemory` that names `micro_batch_rows` of the configuration's
    `section`. The process's own random states, thread count and log levels are as before
    afterwards.
    """
    with _ONE_UPDATE, ExitStack() as stack:
        stack.enter_context(_silence())
        stack.enter_context(torch.random.fork_rng(devices=range(torch.cuda.device_count())))
        stack.callback(random.setstate, random.getstate())
        stack.callback(np.random.set_state, np.random.get_state())
        stack.callback(torch.set_num_threads, torch.get_num_threads())
        # The loop collects garbage when it starts; frozen, the process's own objects (a third of
        # a second after the imports) are not looked through each time.
        gc.freeze()
        stack.callback(gc.unfreeze)
        torch.set_num_threads(threads)
        transformers.set_seed(seed)
        try:
            yield
        except GenenvError:
            raise
        except Exception as error:
            text = " ".join(str(error).split())
            if not _is_out_of_memory(error, text):
                message = f"{what} failed: {type(error).__name__}: {text}; see the cause"
                raise TrainingError(message) from error
            setting = f"{section}.micro_batch_rows"
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
def workspace(output: Path, *inputs: Path) -> Generator[Path]:
    """Return a scratch folder beside `output`, gone afterwards; refuse to overwrite an input.

    The processes of an update share it; the first one makes and removes it.
    """
    for path in inputs:
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
    """Return the bytes of a device that the update may fill: the least of all its processes'."""
    limit = None if training.memory_gb is None else training.memory_gb * GB
    if training.device == "cpu":
        return limit
    need_gpu()
    free, _ = torch.cuda.mem_get_info()
    return min([limit or math.inf, *ranks.collected(float(free))])


def need_gpu() -> None:
    """Raise `TrainingError` where torch finds no GPU."""
    if not torch.cuda.is_available():
        raise TrainingError(
            "training.device is cuda and torch finds no GPU here: run the stage where there is one "
            "(placement.grpo_update, placement.rwr_update), or set training.device=cpu"
        )
