"""What `genenv_core.training.launch` starts: first `accelerate launch`, then each process of it.

`python -m genenv_core.training.launched grpo FOLDER` is the launcher; the processes that it starts
run this module too, and know it by a variable.
"""

# accelerate comes without complete types.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportMissingTypeStubs=false

from __future__ import annotations

import json
import logging
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

from genenv_core.config.training import TrainingConfig
from genenv_core.errors import GenenvError, OutOfMemory, Stopped
from genenv_core.training.launch import ERROR, LOG, PROGRAM, RESULT, STOP

_LAUNCHER = "GENENV_LAUNCHER"
"""The launcher's process id, for the processes that compute."""

LOOK_S = 1.0
"""Time between two looks whether the parent is still there."""


def main(program: str = PROGRAM) -> None:
    """Start the processes of an update, which run the module `program`, or be one of them."""
    kind, home = sys.argv[1], Path(sys.argv[2])
    if _LAUNCHER in os.environ:
        _end_with(int(os.environ[_LAUNCHER]))
        sys.exit(_compute(kind, home))
    threading.Thread(target=_end_with_stdin, daemon=True).start()
    os.environ[_LAUNCHER] = str(os.getpid())
    from accelerate.commands import launch

    parser = launch.launch_command_parser()
    config = str(home / "accelerate.yaml")
    arguments = ["--config_file", config, "-m", program, kind, str(home)]
    launch.launch_command(parser.parse_args(arguments))


def _compute(kind: str, home: Path) -> int:
    """Return the exit status of one process: 0 when the update is done or was asked to stop."""
    from genenv_core.training.base import GrpoRequest, RwrRequest
    from genenv_core.training.local import LocalTrainer

    rank = int(os.environ.get("RANK", "0"))
    if rank == 0:
        _log_to(home / LOG)
    text = (home / "request.json").read_bytes()
    try:
        trainer = LocalTrainer((home / STOP).exists)
        if kind == "grpo":
            grpo = GrpoRequest.model_validate_json(text)
            _join(grpo.training)
            result = trainer.grpo(grpo)
        else:
            rwr = RwrRequest.model_validate_json(text)
            _join(rwr.training)
            result = trainer.rwr(rwr)
    except GenenvError as error:
        told: dict[str, Any] = {"kind": type(error).__name__, "message": str(error)}
        if isinstance(error, OutOfMemory):
            told["rows"] = error.rows
        (home / ERROR.format(rank)).write_text(json.dumps(told), encoding="utf-8")
        return 0 if isinstance(error, Stopped) else 1
    if rank == 0:
        done = home / f"{RESULT}.tmp"
        done.write_text(result.model_dump_json(), encoding="utf-8")
        done.replace(home / RESULT)
    return 0


def _join(training: TrainingConfig) -> None:
    """Meet the other processes, before anything that they do together."""
    from accelerate import PartialState

    if training.processes > 1 and training.device == "cpu":
        PartialState(cpu=True, backend="gloo")
    elif training.processes > 1:
        PartialState()


def _log_to(path: Path) -> None:
    """Keep genenv's own lines for the process that wanted the update."""
    handler = logging.FileHandler(path, encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(levelno)d %(message)s"))
    logger = logging.getLogger("genenv")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)


def _end_with(parent: int) -> None:
    """End this process soon after its parent, however that ends, and be it over already."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(LOOK_S)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _end_with_stdin() -> None:
    sys.stdin.buffer.read()
    os._exit(1)


if __name__ == "__main__":
    main()
