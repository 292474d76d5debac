"""Checks of this machine for `genenv doctor`."""

from __future__ import annotations

import os
import shutil
import sys
import time
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from genenv_core.errors import GenenvError
from genenv_core.machine.allowances import allowances
from genenv_core.storage.sql.confine import landlock_version
from genenv_core.storage.store.opening import open_store
from genenv_core.training.memory.devices import gpus
from genenv_core.types import Policy

NEEDED = (
    "prefect", "fastapi", "mlflow", "duckdb", "polars", "pandera", "torch", "transformers", "trl"
)  # fmt: skip
FREE_BYTES = 2 * 10**9
MEMORY_BYTES = 3 * 10**9


@dataclass(frozen=True, slots=True)
class MachineCheck:
    """One check; `detail` says what was found, and what to do when it is not ok."""

    name: str
    ok: bool
    detail: str


def checks(root: str) -> list[MachineCheck]:
    """Return what was found, in order."""
    machine = [_memory(), _limits(), _cores(), _gpus(), _sandbox()]
    return [_python(), _libraries(), _duckdb(), _root(root), *machine]


def model_checks(folder: Path) -> list[MachineCheck]:
    """Return what the probes of a checkpoint found, as either policy."""
    from genenv_core.exchange.given_models import probe_of

    found: list[MachineCheck] = []
    folder = folder.expanduser()
    for policy in Policy:
        name = f"as pi_{policy}"
        try:
            given, probe = probe_of(policy, folder, field="--model")
        except GenenvError as error:
            found.append(MachineCheck(name, False, str(error)))
        else:
            found.append(
                MachineCheck(name, True, f"{'; '.join(probe.lines)} (sha256 {given.sha256[:16]})")
            )
    if all(one.ok for one in found):
        found.append(_sampled(folder))
    return found


def _sampled(folder: Path) -> MachineCheck:
    """Load a checkpoint as the engine transformers does, where this machine has the memory."""
    from genenv_core.engines.transformers.engine import TransformersEngine
    from genenv_core.engines.transformers.unloaded import bytes_as_float32

    name, needed, free = "by engine transformers", bytes_as_float32(folder), _free_memory()
    if needed > free:
        return MachineCheck(
            name, True,
            f"not tried: its weights take {needed / 1e9:.1f} GB as float32 and {free / 1e9:.1f} GB "
            "are free; ask on the machine that samples",
        )  # fmt: skip
    began = time.monotonic()
    try:
        TransformersEngine.load(folder, threads=1).close()
    except GenenvError as error:
        return MachineCheck(name, False, str(error))
    seconds = time.monotonic() - began
    return MachineCheck(name, True, f"loads in {seconds:.1f} s and continues a text from its cache")


def _free_memory() -> float:
    """Return the bytes that a process may still take here."""
    import psutil

    limits = [one.left for one in allowances() if one.what == "memory"]
    return min([psutil.virtual_memory().available, *limits])


def _python() -> MachineCheck:
    text = ".".join(map(str, sys.version_info[:3]))
    return MachineCheck("python", sys.version_info >= (3, 11), f"{text} (3.11 or later is needed)")


def _libraries() -> MachineCheck:
    have: list[str] = []
    missing: list[str] = []
    for name in NEEDED:
        try:
            have.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            missing.append(name)
    if missing:
        return MachineCheck("libraries", False, f"missing {', '.join(missing)}: run `make install`")
    return MachineCheck("libraries", True, ", ".join(have))


def _sandbox() -> MachineCheck:
    found = landlock_version()
    kernel = f"Landlock {found}" if found else "no Landlock: the other layers remain"
    return MachineCheck("sandbox of genenv sql", True, kernel)


def _duckdb() -> MachineCheck:
    found = version("duckdb")
    good = found.startswith("1.5.")
    remedy = "" if good else ": install duckdb 1.5; 2.0 returned wrong rows through fsspec"
    return MachineCheck("duckdb", good, f"{found}{remedy}")


def _root(root: str) -> MachineCheck:
    try:
        store = open_store(root)
    except GenenvError as error:
        return MachineCheck("root", False, str(error))
    free = shutil.disk_usage(store.home).free
    good = free > FREE_BYTES
    remedy = "" if good else "; a run needs 2 GB"
    where = f"{store.uri} is writable, {free / 1e9:.1f} GB free in {store.home}"
    return MachineCheck("root", good, f"{where}{remedy}")


def _memory() -> MachineCheck:
    pages, size = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    total = pages * size
    good = total >= MEMORY_BYTES
    remedy = "" if good else "; the quickstart needs 3 GB"
    return MachineCheck("memory", good, f"{total / 1e9:.1f} GB{remedy}")


def _limits() -> MachineCheck:
    found = allowances()
    lacking = [one for one in found if not one.enough]
    lines = "; ".join(one.line() for one in lacking or found)
    return MachineCheck("limits", not lacking, lines or "none of memory, processes or open files")


def _gpus() -> MachineCheck:
    found = gpus()
    if not found:
        return MachineCheck("GPUs", True, "none: training.device=cpu, for tiny models")
    listed = ", ".join(f"{gpu.name} {gpu.memory / 1e9:.0f} GB" for gpu in found)
    return MachineCheck("GPUs", True, f"{listed}; `genenv plan` says what updates need of one")


def _cores() -> MachineCheck:
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return MachineCheck("cores", True, f"{count}")
