"""Imports large libraries, and checks that Python finds genenv's own packages under their names.

`schemas` and `tasks` are names that people give files of their own, and Python looks into the
working folder first. An import of such a file fails somewhere inside genenv, without a reason.
"""

from __future__ import annotations

import atexit
import gc
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

HOME = Path(__file__).resolve().parents[1]
"""The folder that holds genenv's packages."""

SELDOM = (50_000, 20, 20)
"""Thresholds of the garbage collector in a process of genenv's own; Python's are 700, 10, 10."""


def collect_seldom() -> None:
    """Let the garbage collector of a process of genenv's own run seldom, and not at its end.

    The modules of a run are a million objects that stay. Looking through them during the imports,
    and once more when Python ends, took 7 of its 60 seconds.
    """
    gc.set_threshold(*SELDOM)
    atexit.unregister(gc.freeze)
    atexit.register(gc.freeze)


def load(name: str) -> ModuleType:
    """Return a module that imports large libraries, without collecting garbage meanwhile.

    Nearly all objects that torch, transformers and TRL make stay. A thousand collections would look
    through them, take a tenth of the CPU time of the imports, and free 10 MB.
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        return import_module(name)
    finally:
        if collecting:
            gc.enable()


def check_ours(*names: str) -> None:
    """Raise ImportError, with what to do, where something else has the name of a package."""
    for name in names:
        found = _place(name)
        if found is not None and found.parents[1] != HOME:
            other = found.parent if found.name == "__init__.py" else found
            raise ImportError(
                f"genenv needs its own package {name!r}, and Python finds {other} under this name: "
                f"rename that, or put it into a package of your own (from mine import {name}); "
                "docs/quickstart.md says more (names that are taken)",
                name=name,
            )


def _place(name: str) -> Path | None:
    """Return the file that Python imports, or has imported, under a name; None without one."""
    module = sys.modules.get(name)
    if module is not None:
        place = getattr(module, "__file__", None)
    else:
        spec = find_spec(name)
        place = spec.origin if spec else None
    return Path(place).resolve() if place else None
