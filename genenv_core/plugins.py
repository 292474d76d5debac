"""Finds domains, benchmarks and algorithms by entry points, genenv's own and other packages'.

The entry points of genenv itself stand in its `pyproject.toml`, those of other packages in theirs.
This module reads them from the installed packages, and callers load only the chosen one. A process
reads each group once, and again where `sys.path` has changed. The place of a class names one that
is in no package.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from difflib import get_close_matches
from functools import cache
from importlib import invalidate_caches
from importlib.metadata import EntryPoint, PackageNotFoundError, distribution, entry_points
from importlib.util import find_spec
from pathlib import Path

from genenv_core.errors import ConfigError

DOMAINS = "genenv.domains"
BENCHMARKS = "genenv.benchmarks"
ALGORITHMS = "genenv.updates"
"""genenv registers nothing in this group: its own algorithms are no plug-ins."""

DISTRIBUTION = "genenv"


def own_points(group: str) -> Mapping[str, EntryPoint]:
    """Return genenv's own entry points of a group by name; empty where genenv is not installed."""
    return _own(group, tuple(sys.path))


def known_names(group: str) -> list[str]:
    """Return the names that `point_of` accepts, sorted, without loading anything."""
    return sorted({*own_points(group), *_all(group, tuple(sys.path))})


def check_installed(group: str) -> None:
    """Raise ConfigError where genenv was installed before its entry points of this group."""
    if not own_points(group):
        raise ConfigError(
            f"genenv's own entry points in {group} are not installed: what is installed of genenv "
            "is older than its code; install it again, by `make install` or `pip install -e .`"
        )


def point_of(
    group: str, name: str, field: str, elsewhere: str = "", also: tuple[str, ...] = ()
) -> EntryPoint:
    """Return the entry point of a name; genenv's own wins over another one of the same name.

    Raises ConfigError where the name is unknown, where several packages offer different things, and
    where genenv's own are not installed, so that no other one can take the place of one of them.

    Args:
        group: `DOMAINS`, `BENCHMARKS` or `ALGORITHMS`.
        name: the name.
        field: the field that has the name, for errors.
        elsewhere: what else the field takes, after the known names, for errors.
        also: names that mean something without an entry point, for errors.
    """
    own = own_points(group).get(name)
    if own is not None:
        return own
    if group != ALGORITHMS:
        check_installed(group)
    points = _all(group, tuple(sys.path)).get(name, ())
    if not points and name.endswith(".py"):
        raise ConfigError(
            f"{field} {name!r} names a file and no class in it: add the class, as in "
            f"{Path(name).name}:MyClass"
        )
    if not points:
        known = [*also, *known_names(group)]
        near = get_close_matches(name, known, n=1)
        meant = f"did you mean {near[0]!r}? " if near else ""
        raise ConfigError(
            f"{field} {name!r} is unknown; known: {', '.join(known)}{elsewhere} ({meant}"
            f"a package offers others by an entry point in {group})"
        )
    if len({point.value for point in points}) > 1:
        raise ConfigError(
            f"{field} {name!r} is offered by several packages "
            f"({', '.join(sorted(point.value for point in points))}): uninstall all but one"
        )
    return points[0]


def placed_point(group: str, name: str, field: str, example: str) -> EntryPoint:
    """Return an entry point for the class at a place; raises ConfigError.

    It appends the folder of a file, or for a module the current folder, to `sys.path`.

    Args:
        group: the group of the entry point.
        name: the place: `my_file.py:Class` or `package.module:Class`.
        field: the field that has the name, for errors.
        example: the name of a class in a file, for errors.
    """
    place, _, attribute = name.rpartition(":")
    if not place or not attribute.isidentifier():
        raise ConfigError(
            f"{field} {name!r}: a class is named by its place, as in {example} or "
            f"package.module:{example.rpartition(':')[2]}"
        )
    if place.endswith(".py"):
        return EntryPoint(
            name, f"{_of_file(name, Path(place).expanduser(), field)}:{attribute}", group
        )
    if not all(part.isidentifier() for part in place.split(".")):
        raise ConfigError(f"{field} {name!r}: {place!r} is neither a .py file nor a module")
    _importable(Path.cwd())
    return EntryPoint(name, f"{place}:{attribute}", group)


@cache
def _own(group: str, path: tuple[str, ...]) -> dict[str, EntryPoint]:
    # By the distribution's name: looking through all distributions would take longer.
    try:
        points = distribution(DISTRIBUTION).entry_points
    except PackageNotFoundError:
        return {}
    return {point.name: point for point in points if point.group == group}


@cache
def _all(group: str, path: tuple[str, ...]) -> dict[str, list[EntryPoint]]:
    found: dict[str, list[EntryPoint]] = {}
    for point in entry_points(group=group):
        found.setdefault(point.name, []).append(point)
    return found


def _of_file(name: str, path: Path, field: str) -> str:
    """Return the module name of a file; raises ConfigError where Python cannot import it."""
    if not os.path.isfile(path):  # whatever the name
        start = (
            ": check its name"
            if path.is_absolute()
            else (
                "; a relative path is read from the folder that the command, or `genenv up`, runs "
                "in: change into the right one, or write the whole path"
            )
        )
        raise ConfigError(f"{field} {name!r}: there is no file {path.absolute()}{start}")
    path = path.resolve()
    parts, folder = [path.stem], path.parent
    while (folder / "__init__.py").is_file():
        parts.insert(0, folder.name)
        folder = folder.parent
    module = ".".join(parts)
    if not all(part.isidentifier() for part in parts):
        raise ConfigError(
            f"{field} {name!r}: Python cannot import a module named {module!r}: rename the file"
        )
    _importable(folder)
    try:
        spec = find_spec(module)
    except (ImportError, ValueError):  # of a package that fails, of a module without a spec
        spec = None
    found = spec.origin if spec else None
    if found is None or Path(found).resolve() != path:
        raise ConfigError(
            f"{field} {name!r}: Python finds {found or 'nothing'} under the name {module!r}: "
            "rename the file"
        )
    return module


def _importable(folder: Path) -> None:
    """Append a folder to `sys.path`, so that its files hide no library."""
    if str(folder) not in sys.path:
        sys.path.append(str(folder))
        invalidate_caches()
