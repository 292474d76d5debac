"""Finding a domain: a built-in, a plug-in of the entry-point group, or a class in a file or module.

All are entry points, loaded by name, so only the chosen domain's code counts in a stage's key.
A plug-in is a callable that takes the mapping `domain.options` and returns a `Domain`. Its package
registers it under the entry-point group `genenv.domains`. Without a package it is named by its
place: `my_domain.py:Units` or `package.module:Units`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from importlib import invalidate_caches
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from genenv_core.domains.protocol import Domain
from genenv_core.errors import ConfigError, GenenvError, described
from genenv_core.shortage import blame_machine

ENTRY_POINT_GROUP = "genenv.domains"

_BENCHMARKS = "genenv_core.benchmarks.training"
_BUILT_IN = {
    "alfworld": f"{_BENCHMARKS}.alfworld:AlfworldDomain.from_options",
    "api_bank": f"{_BENCHMARKS}.api_bank:ApiBankDomain.from_options",
    "arithmetic": "genenv_core.domains.arithmetic:Arithmetic",
    "bamboogle": f"{_BENCHMARKS}.bamboogle:BamboogleDomain.from_options",
    "bfcl": f"{_BENCHMARKS}.bfcl:BfclDomain.from_options",
    "desk": "genenv_core.domains.desk:DeskDomain.from_options",
    "trails": "genenv_core.domains.trails:TrailsDomain.from_options",
    "travelplanner": f"{_BENCHMARKS}.travelplanner:TravelPlannerDomain.from_options",
}


def known_domains() -> list[str]:
    """Return the names that `get_domain` accepts, sorted; plug-ins are not loaded for it."""
    return sorted({*_BUILT_IN, *(point.name for point in entry_points(group=ENTRY_POINT_GROUP))})


def is_built_in(name: str) -> bool:
    """Return whether a domain is part of genenv, and so tested with it."""
    return name in _BUILT_IN


def get_domain(name: str, options: Mapping[str, Any] | None = None) -> Domain:
    """Return the domain with its options; a built-in wins over a plug-in of the same name.

    A class is called with the options, or its `from_options` is. The folder of a file, or for a
    module the current one, goes to the end of `sys.path`. Raises ConfigError when the name is
    unknown, a plug-in does not load, or options are refused.
    """
    point = _point(name)
    try:
        made: Any = point.load()
        return getattr(made, "from_options", made)(dict(options or {}))
    except GenenvError:
        raise
    except Exception as error:  # a plug-in is foreign code: whatever it raises is named here
        blame_machine(error, f"domain.name {name!r} was not loaded")
        raise ConfigError(
            f"domain.name {name!r}: the plug-in {point.value} failed with {described(error)}"
        ) from error


def modules_of(name: str, domain: Domain) -> list[str]:
    """Return the modules whose code a domain is: of its class, and of what made it.

    A plug-in may be a function, or a class that takes over what another module makes of it.
    """
    made_in = [] if is_built_in(name) else [_point(name).module]
    return [type(domain).__module__, *made_in]


def _point(name: str) -> EntryPoint:
    """Return where a domain is made; raises ConfigError unless that is one place."""
    if ":" in name:
        return EntryPoint(name, _placed(name), ENTRY_POINT_GROUP)
    if name in _BUILT_IN:
        return EntryPoint(name, _BUILT_IN[name], ENTRY_POINT_GROUP)
    points = list(entry_points(group=ENTRY_POINT_GROUP, name=name))
    if not points:
        raise ConfigError(
            f"domain.name {name!r} is unknown; known: {', '.join(known_domains())} "
            f"(others come from packages with an entry point in {ENTRY_POINT_GROUP}; a class of "
            "your own is named by its place: my_domain.py:Units or package.module:Units)"
        )
    if len({point.value for point in points}) > 1:
        raise ConfigError(
            f"domain.name {name!r} is offered by several packages "
            f"({', '.join(sorted(point.value for point in points))}): uninstall all but one"
        )
    return points[0]


def _placed(name: str) -> str:
    """Return `module:Class` for a class that is named by its place; raises ConfigError."""
    place, _, attribute = name.rpartition(":")
    if not place or not attribute.isidentifier():
        raise ConfigError(
            f"domain.name {name!r}: a class is named by its place, as in my_domain.py:Units or "
            "package.module:Units"
        )
    if place.endswith(".py"):
        return f"{_of_file(name, Path(place).expanduser())}:{attribute}"
    if not all(part.isidentifier() for part in place.split(".")):
        raise ConfigError(f"domain.name {name!r}: {place!r} is neither a .py file nor a module")
    _importable(Path.cwd())
    return f"{place}:{attribute}"


def _of_file(name: str, path: Path) -> str:
    """Return the name under which a file is imported; raises ConfigError where it cannot be."""
    if not os.path.isfile(path):  # whatever the name
        raise ConfigError(f"domain.name {name!r}: there is no file {path.absolute()}")
    path = path.resolve()
    parts, folder = [path.stem], path.parent
    while (folder / "__init__.py").is_file():
        parts.insert(0, folder.name)
        folder = folder.parent
    module = ".".join(parts)
    if not all(part.isidentifier() for part in parts):
        raise ConfigError(
            f"domain.name {name!r}: Python cannot import a module named {module!r}: rename the file"
        )
    _importable(folder)
    try:
        spec = find_spec(module)
    except (ImportError, ValueError):  # of a package that fails, of a module without a spec
        spec = None
    found = spec.origin if spec else None
    if found is None or Path(found).resolve() != path:
        raise ConfigError(
            f"domain.name {name!r}: Python finds {found or 'nothing'} under the name {module!r}: "
            "rename the file"
        )
    return module


def _importable(folder: Path) -> None:
    """Put a folder behind all others, so that what lies in it hides no library."""
    if str(folder) not in sys.path:
        sys.path.append(str(folder))
        invalidate_caches()
