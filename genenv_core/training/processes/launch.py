"""Updates in several processes, which `accelerate launch` starts; they end with the update.

The request and the result are files; a file also asks the processes to stop. They end when this
process ends, however it ends. When a GPU's memory runs out, all of them end, and new ones continue
with smaller micro-batches (`attempts.py` beside this file). This module loads neither torch nor
accelerate.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

import yaml

from genenv_core.config.sections.training import TrainingConfig
from genenv_core.errors import GenenvError, OutOfMemory, Stopped, TrainingError
from genenv_core.machine import surroundings
from genenv_core.training.processes import lines
from genenv_core.training.processes.attempts import visible_gpus
from genenv_core.training.requests import UpdateRequest, UpdateResult
from genenv_core.training.updates.table import UPDATES

STOP, RESULT, ERROR, LOG = "stop", "result.json", "error-{}.json", "log"
PROGRAM = "genenv_core.training.processes.program"
"""The module that each process runs."""
LAST_OUTPUT = 2000
"""Characters of a process's last output in the error about one that ended without a reason."""


def accelerate_config(training: TrainingConfig) -> dict[str, Any]:
    """Return the configuration file of `accelerate launch` for several processes of one machine."""
    kinds = {"ddp": "MULTI_GPU", "fsdp2": "FSDP", "zero3": "DEEPSPEED"}
    config: dict[str, Any] = {
        "compute_environment": "LOCAL_MACHINE",
        # Several processes on CPUs count as GPUs here: accelerate starts only those by itself (else
        # by MPI); each of them then finds that it has no GPU and uses gloo.
        "distributed_type": kinds[training.strategy],
        "use_cpu": training.device == "cpu",
        "mixed_precision": "bf16" if training.precision == "bfloat16" else "no",
        "num_processes": training.processes,
        "num_machines": 1,
        "machine_rank": 0,
        "main_process_port": 0,
        "rdzv_backend": "static",
        "same_network": True,
        "debug": False,
    }
    if training.strategy == "fsdp2":
        config["fsdp_config"] = {
            "fsdp_version": 2,
            "fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
            "fsdp_reshard_after_forward": True,
            "fsdp_offload_params": False,
            "fsdp_cpu_ram_efficient_loading": False,
            "fsdp_state_dict_type": "SHARDED_STATE_DICT",
            "fsdp_activation_checkpointing": False,
        }
    if training.strategy == "zero3":
        config["deepspeed_config"] = {
            "zero_stage": 3,
            "zero3_init_flag": False,
            "zero3_save_16bit_model": True,
            "offload_optimizer_device": "none",
            "offload_param_device": "none",
            "gradient_accumulation_steps": "auto",
            "gradient_clipping": "auto",
        }
    return config


class Launcher:
    """Starts updates and ends them; safe to call from several threads."""

    def __init__(self) -> None:
        """Start nothing yet."""
        self._running: dict[Path, subprocess.Popen[bytes]] = {}
        self._stopping = False
        self._lock = threading.Lock()

    def update(self, request: UpdateRequest) -> UpdateResult:
        """Return the result of an update in its own processes; raises what they raised."""
        prefix = f"genenv-{request.loss}-"
        with tempfile.TemporaryDirectory(prefix=prefix, ignore_cleanup_errors=True) as name:
            home = Path(name)
            try:
                (home / "request.json").write_text(request.model_dump_json(), encoding="utf-8")
                config = yaml.safe_dump(accelerate_config(request.training))
                (home / "accelerate.yaml").write_text(config, encoding="utf-8")
                with (home / "output").open("wb") as output:
                    status = self._start(home, request, output).wait()
                lines.told(home / LOG)
                return self._outcome(request.loss, home, status)
            finally:
                with self._lock:
                    self._running.pop(home, None)

    def request_stop(self) -> None:
        """Ask running updates to save a checkpoint after their step, and to raise `Stopped`."""
        with self._lock:
            self._stopping = True
            for home in self._running:
                (home / STOP).touch()

    def close(self) -> None:
        """End all processes at once, even in the middle of an update."""
        with self._lock:
            self._stopping = True
            for process in self._running.values():
                process.kill()  # its children see their parent gone, and end

    def _start(self, home: Path, request: UpdateRequest, output: Any) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", PROGRAM, request.loss, str(home)]
        environment = surroundings.environment(os.environ)
        environment["OMP_NUM_THREADS"] = str(request.threads)
        if request.training.on_gpus:
            given = environment.get("CUDA_VISIBLE_DEVICES")
            environment["CUDA_VISIBLE_DEVICES"] = visible_gpus(given, request.training.processes)
        with self._lock:
            if self._stopping:
                raise Stopped(f"{request.loss} was not started: a stop was requested")
            process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,  # closes when this process is gone
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,  # Ctrl-C is for this process, which asks them to stop
            )
            self._running[home] = process
        return process

    def _outcome(self, loss: str, home: Path, status: int) -> UpdateResult:
        if (home / RESULT).is_file():
            return UpdateResult.model_validate_json((home / RESULT).read_bytes())
        paths = sorted(home.glob(ERROR.format("*")), key=lambda path: path.stat().st_mtime_ns)
        errors = [json.loads(path.read_bytes()) for path in paths]
        for error in errors:  # one that ran out of memory is the cause of the others
            if "rows" in error:
                raise OutOfMemory(error["message"], error["rows"])
        if errors:
            # When one fails, the others lose their connection to it: the first error is the cause.
            known = {kind.__name__: kind for kind in GenenvError.__subclasses__()}
            raise known.get(errors[0]["kind"], TrainingError)(errors[0]["message"])
        if self._stopping:
            raise Stopped(
                f"{loss} was ended: the same command continues from its last trainer checkpoint, "
                "or starts it again"
            )
        last = ""
        with contextlib.suppress(OSError):
            last = (home / "output").read_text("utf-8", errors="replace")[-LAST_OUTPUT:]
        raise TrainingError(
            f"the training processes of {loss} ended with status {status} and said no reason, most "
            f"likely for want of memory: lower {UPDATES[loss].rows_field} and run again; their "
            f"last words: {' '.join(last.split())[-300:]}"
        )
