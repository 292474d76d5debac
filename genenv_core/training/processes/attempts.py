"""How an update is asked for, wherever it is computed: packages first, GPUs in turn, and again with
smaller micro-batches when a GPU's memory runs out. Light: neither torch nor accelerate is loaded.
"""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import threading
from collections.abc import Callable

from genenv_core.config.sections.training import TrainingConfig
from genenv_core.errors import OutOfMemory, TrainingError
from genenv_core.training.requests import UpdateRequest, UpdateResult
from genenv_core.training.updates.table import UPDATES

log = logging.getLogger("genenv.training")

_GPUS = threading.Lock()


def attempted(
    request: UpdateRequest, attempt: Callable[[UpdateRequest], UpdateResult]
) -> UpdateResult:
    """Return the result of `attempt`; raises what it raises.

    When a GPU's memory runs out, it calls `attempt` again with half the rows in a micro-batch. The
    processes of the first attempt must have ended by then.
    """
    _need_packages(request.training)
    # Each update takes whole GPUs: side by side, both would run out of memory.
    turn = _GPUS if request.training.on_gpus else contextlib.nullcontext()
    with turn:
        while True:
            try:
                return attempt(request)
            except OutOfMemory as error:
                if not request.training.yields or error.rows < 2:
                    raise
                request = _halved(request, error)


def visible_gpus(given: str | None, processes: int) -> str:
    """Return the value of CUDA_VISIBLE_DEVICES for an update: one GPU a process, the first ones.

    With several GPUs, the Trainer would make a single process DataParallel, which TRL refuses.
    `given` is the variable's current value.
    """
    if given is None:
        return ",".join(map(str, range(processes)))
    return ",".join(given.split(",")[:processes])


def _need_packages(training: TrainingConfig) -> None:
    """Raise `TrainingError` for a setting whose package is not installed."""
    wanted = {
        "deepspeed": ("training.strategy zero3", "fsdp2", training.strategy == "zero3"),
        "liger_kernel": ("training.kernels liger", "torch", training.kernels == "liger"),
    }
    for package, (setting, instead, needed) in wanted.items():
        if needed and importlib.util.find_spec(package) is None:
            name = package.replace("_", "-")
            raise TrainingError(
                f"{setting} needs the package {name}: pip install {name} where the update runs, or "
                f"set {setting.split()[0]}={instead}"
            )


def _halved(request: UpdateRequest, error: OutOfMemory) -> UpdateRequest:
    """Return the request with half the rows in a micro-batch, for new processes.

    They continue from the last trainer checkpoint, or start again: they neither lose nor repeat a
    step, and a step's loss and gradient do not depend on how it is cut.
    """
    rows = error.rows // 2
    log.warning(
        "update=%s device=%s memory ran out with micro_batch_rows=%d: it goes on with %d; set "
        "%s=%d to be rid of this, or training.memory_gb",
        request.loss, request.training.device, error.rows, rows,
        UPDATES[request.loss].rows_field, rows,
    )  # fmt: skip
    return request.with_micro_batch(rows)
