"""Reads what the surroundings of a process decide: environment variables and processor.

A process in which genenv trains or serves a model gets an environment that genenv makes: `PASSED`
and `DECIDING` list what it takes over. They lack the variables of launchers (`WORLD_SIZE`, `RANK`,
`SLURM_*`, `OMPI_*`, `ACCELERATE_*`): accelerate and transformers would take numbers from them that
no configuration has. The keys of stages (`tasks/stage/key.py`) hold the variables that change
arithmetic, and the kind of processor. Light: loads no library.
"""

from __future__ import annotations

import hashlib
import platform
import subprocess
import sys
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

PASSED = (
    # Programs, folders and languages.
    "PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "LC_*", "TZ", "TMPDIR", "TEMP",
    "TMP", "XDG_*", "LD_*", "DYLD_*", "MALLOC_*", "CC", "CXX", "CPATH", "LIBRARY_PATH", "CONDA_*",
    "VIRTUAL_ENV", "PYTHON*",
    # Devices, how they reach each other, and the folders of code for them.
    "CUDA_*", "NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES", "NCCL_*", "GLOO_*", "UCX_*",
    "FI_*", "HIP_*", "ROCR_*", "HSA_*", "PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF",
    "TORCH_HOME", "TORCH_EXTENSIONS_DIR", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR",
    # Networks.
    "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "all_proxy",
    "no_proxy", "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE",
    # Libraries: their folders, and how much they print.
    "HF_HOME", "HF_HUB_CACHE", "HF_HUB_OFFLINE", "HF_HUB_DISABLE_TELEMETRY", "HF_MODULES_CACHE",
    "HF_HUB_DISABLE_PROGRESS_BARS", "HF_DATASETS_CACHE", "TRANSFORMERS_VERBOSITY", "DO_NOT_TRACK",
    "TRL_EXPERIMENTAL_SILENCE", "TOKENIZERS_PARALLELISM", "*_NUM_THREADS",
    "GENENV_*",
)  # fmt: skip
"""Variables that a process gets; `*` stands for any letters at one end of the name."""

DECIDING = (
    "ATEN_*", "ONEDNN_*", "DNNL_*", "MKL_*", "OPENBLAS_*", "BLIS_*", "GLIBC_TUNABLES",
    "KMP_DETERMINISTIC_REDUCTION", "CUBLAS*", "CUDNN_*", "NVIDIA_TF32_OVERRIDE", "NCCL_ALGO",
    "NCCL_PROTO", "PYTORCH_TUNABLEOP_*", "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE", "TORCH_BLAS_*",
    "TORCH_CUDNN_*", "TORCH_LINALG_*", "USE_HUB_KERNELS",
)  # fmt: skip
"""Variables by which torch and its libraries choose arithmetic. They pass, and are in keys."""

SILENT = ("*_NUM_THREADS", "*_VERBOSE")
"""Those of them that change no result: `compute.threads` sets the threads."""

OWN = ("GENENV_LAUNCHER",)
"""Variables that a process of an update sets for its children; a nested one must not see them."""

QUIET = {"DO_NOT_TRACK": "1", "TOKENIZERS_PARALLELISM": "false"}

WITHOUT = {"DISABLE_MLFLOW_INTEGRATION": "TRUE"}
"""Set in every process: TRL would import MLflow, which costs 2 s of CPU and which nobody uses."""

_CPUINFO = Path("/proc/cpuinfo")
_X86 = ("vendor_id", "cpu family", "model", "flags")
_ARM = ("CPU implementer", "CPU architecture", "CPU part", "Features")
_INSTRUCTIONS = ("avx", "sse", "fma", "amx", "f16c", "asimd", "sve", "sme", "bf16", "i8mm", "fp")
"""Beginnings of names of instructions by which libraries choose their arithmetic."""
_ANSWER_S = 10.0


def environment(given: Mapping[str, str], also: Iterable[str] = ()) -> dict[str, str]:
    """Return the environment of a process that computes with a model: what it takes over and needs.

    `also` are further names that pass, in the form of `PASSED`.
    """
    names = (*PASSED, *DECIDING, *also)
    passed = {
        name: value for name, value in given.items() if _is_one(name, names) and name not in OWN
    }
    return QUIET | passed | WITHOUT


def deciding(given: Mapping[str, str]) -> dict[str, str]:
    """Return the variables among these that change the arithmetic of a model."""
    return {
        name: value
        for name, value in sorted(given.items())
        if _is_one(name, DECIDING) and not _is_one(name, SILENT)
    }


def _is_one(name: str, patterns: Iterable[str]) -> bool:
    return any(
        name.startswith(pattern[:-1])
        if pattern.endswith("*")
        else name.endswith(pattern[1:])
        if pattern.startswith("*")
        else name == pattern
        for pattern in patterns
    )


@cache
def processor() -> str:
    """Return the kind of this machine's processor: maker, family, model and instructions.

    Sums of floats differ between kinds, because libraries choose their code by them. The
    instructions (of which a virtual machine may hide some) are a digest of 8 hex digits.
    """
    if sys.platform == "darwin":
        return _command("sysctl", "-n", "machdep.cpu.brand_string") or platform.machine()
    try:
        return processor_of(_CPUINFO.read_text("utf-8", errors="replace"))
    except OSError:
        return platform.machine()


def processor_of(cpuinfo: str) -> str:
    """Return the kind of processor in the text of /proc/cpuinfo: that of its first core."""
    lines = (line.partition(":") for line in cpuinfo.partition("\n\n")[0].splitlines())
    values = {name.strip(): value.strip() for name, _, value in lines}
    names = _X86 if _X86[0] in values else _ARM
    maker, family, model, instructions = (values.get(name, "?") for name in names)
    chosen = sorted(one for one in instructions.split() if one.startswith(_INSTRUCTIONS))
    digest = hashlib.sha256(" ".join(chosen).encode()).hexdigest()[:8]
    return f"{maker} {family}/{model} {digest}"


def _command(*words: str) -> str:
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=_ANSWER_S, check=True)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip()
