"""The program that `launch` starts: first `accelerate launch`, then each process of an update.

`python -m genenv_core.training.processes.program LOSS FOLDER` is the launcher. The processes that
it starts run this module too; an environment variable marks them.
"""

# accelerate comes without complete types.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportMissingTypeStubs=false

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

from genenv_core.config.sections.training import TrainingConfig
from genenv_core.errors import GenenvError, OutOfMemory, Stopped
from genenv_core.storage.files import move_over, temporary
from genenv_core.training.processes import lines
from genenv_core.training.processes.launch import ERROR, LOG, PROGRAM, RESULT, STOP
from genenv_core.training.requests import UpdateRequest
from genenv_core.training.updates.table import UPDATES, run_update

_LAUNCHER = "GENENV_LAUNCHER"
"""Environment variable with the launcher's process id, for the processes that compute."""

LOOK_S = 1.0
"""Seconds between two looks whether the parent is still there."""


def main(program: str = PROGRAM) -> None:
    """Start the processes of an update, which run the module `program`; or be one of them."""
    loss, home = sys.argv[1], Path(sys.argv[2])
    if _LAUNCHER in os.environ:
        _end_with(int(os.environ[_LAUNCHER]))
        sys.exit(_compute(UPDATES[loss].request, home))
    threading.Thread(target=_end_with_stdin, daemon=True).start()
    os.environ[_LAUNCHER] = str(os.getpid())
    from accelerate.commands import launch

    parser = launch.launch_command_parser()
    config = str(home / "accelerate.yaml")
    arguments = ["--config_file", config, "-m", program, loss, str(home)]
    launch.launch_command(parser.parse_args(arguments))


def _compute(kind: type[UpdateRequest], home: Path) -> int:
    """Return the exit status of one process: 0 when the update is done or stopped on request."""
    rank = int(os.environ.get("RANK", "0"))
    with lines.kept(home / LOG) if rank == 0 else contextlib.nullcontext():
        return _computed(kind, home, rank)


def _computed(kind: type[UpdateRequest], home: Path, rank: int) -> int:
    request = kind.model_validate_json((home / "request.json").read_bytes())
    try:
        _join(request.training)
        result = run_update(request, (home / STOP).exists)
    except GenenvError as error:
        report: dict[str, Any] = {"kind": type(error).__name__, "message": str(error)}
        if isinstance(error, OutOfMemory):
            report["rows"] = error.rows
        (home / ERROR.format(rank)).write_text(json.dumps(report), encoding="utf-8")
        return 0 if isinstance(error, Stopped) else 1
    if rank == 0:
        move_over(temporary(home, result.model_dump_json().encode()), home / RESULT)
    return 0


def _join(training: TrainingConfig) -> None:
    """Connect to the other processes."""
    from accelerate import PartialState

    if training.processes > 1 and training.device == "cpu":
        PartialState(cpu=True, backend="gloo")
    elif training.processes > 1:
        PartialState()


def _end_with(parent: int) -> None:
    """End this process soon after its parent ends, however that ends, or at once if it has."""

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
