"""Describes this installation for a bundle: sources, installed packages, locks, the machine."""

from __future__ import annotations

import platform
import re
import subprocess
from collections.abc import Iterable, Iterator
from importlib.metadata import distributions
from pathlib import Path

from genenv_core.importing import HOME
from genenv_core.storage.records.code import PROJECT, source_path

PACKAGES = ("flows", *PROJECT)
CODE, PLUGIN, LOCKS = "code/", "plugin/", "locks/"

_BESIDE = ("pyproject.toml", "README.md", "LICENSE")
"""What pip needs to install the packages; only genenv's repository has these files."""
_LOCKS = ("requirements.lock", "infra/torch-cpu.lock", "infra/torch-cuda.lock")


def code_files() -> dict[str, bytes]:
    """Return the files of genenv's packages, by the names of their members."""
    found = {CODE + name: (HOME / name).read_bytes() for name in _in_repository(_BESIDE)}
    for package in PACKAGES:
        for path in sorted((HOME / package).rglob("*")):
            inside = path.relative_to(HOME)
            if path.is_file() and not any(p.startswith((".", "__pycache__")) for p in inside.parts):
                found[CODE + inside.as_posix()] = path.read_bytes()
    return found


def plugin_files(modules: Iterable[str]) -> dict[str, bytes]:
    """Return the sources of these modules, without genenv's own."""
    found: dict[str, bytes] = {}
    for module in modules:
        path = source_path(module)
        if path is not None and module.partition(".")[0] not in PROJECT:
            name = module.replace(".", "/")
            name += "/__init__.py" if path.name == "__init__.py" else ".py"
            found[PLUGIN + name] = path.read_bytes()
    return found


def lock_files() -> dict[str, bytes]:
    """Return the list of installed packages, and in genenv's repository the locks with hashes."""
    lines = [f"{name}=={version}\n" for name, version in sorted(installed().items())]
    text = "# What was installed beside genenv, by its own metadata.\n" + "".join(lines)
    found = {f"{LOCKS}installed.txt": text.encode()}
    for name in _in_repository(_LOCKS):
        found[LOCKS + Path(name).name] = (HOME / name).read_bytes()
    return found


def installed() -> dict[str, str]:
    """Return the version of each installed distribution but genenv, by its normalised name."""
    found: dict[str, str] = {}
    for one in distributions():
        name = re.sub(r"[-_.]+", "-", one.metadata["Name"] or "").lower()
        if name and name != "genenv":
            found.setdefault(name, one.version)  # the first one is what Python imports
    return found


def machine() -> dict[str, str]:
    """Return Python and this machine: what decides the last bits of a result beside packages."""
    from torch.backends.cpu import get_cpu_capability

    return {
        "python": platform.python_version(),
        "implementation": platform.python_implementation(),
        "system": platform.system(),
        "machine": platform.machine(),
        "processor": _processor(),
        "capability": get_cpu_capability(),
    }


def commit() -> str:
    """Return the commit of genenv's repository, with -dirty for changed files; '' without one."""
    if not (HOME / ".git").exists():
        return ""
    command = ["git", "-C", str(HOME), "describe", "--always", "--dirty", "--abbrev=40"]
    command += ["--exclude=*"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip()


def _processor() -> str:
    """Return the name of the processor, as the system gives it."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:  # no Linux
        return platform.processor()
    found = re.search(r"^model name\s*:\s*(.+)$", text, re.M)
    return found[1].strip() if found else platform.processor()


def _in_repository(names: Iterable[str]) -> Iterator[str]:
    """Yield those of these files that exist, if the folder is genenv's repository."""
    project = HOME / "pyproject.toml"
    if project.is_file() and 'name = "genenv"' in project.read_text(encoding="utf-8"):
        yield from (name for name in names if (HOME / name).is_file())
