"""Code versions: a digest of the project's modules that a stage uses.

The digest is of syntax trees without docstrings and positions, so a comment or a docstring does not
invalidate a stage, while a changed line anywhere in what it imports does. Nobody has to remember a
number. A module's own name does not count, only its content and the contents that it is tied to, so
a file may move and a package may get another name (`genenv_core.storage.records.module_form`). No
import leads to what the configuration chooses (an engine, a domain), because genenv opens that by
name; the key adds the code of the chosen one (`tasks.stage.key`).
"""

from __future__ import annotations

import ast
import contextlib
import hashlib
import sysconfig
import threading
from collections.abc import Mapping
from functools import cache
from importlib.machinery import ModuleSpec
from importlib.metadata import packages_distributions
from importlib.util import decode_source, find_spec
from pathlib import Path
from typing import NamedTuple

from genenv_core.storage.records.module_form import EMPTY, form_digest, form_of

PROJECT = ("genenv_core", "schemas", "tasks")
"""Packages whose modules count; libraries are in the key by their versions."""

APART = {
    "genenv_core.config": "the values that a stage reads are in its key themselves",
    "genenv_core.errors": "names of failures: a stage that fails leaves no output",
    "genenv_core.exchange.given_models": "an input's digest covers the files that it takes over",
    "genenv_core.storage": "moves bytes; FORMAT, in each key, is the version of their layout",
    "genenv_core.training.memory": "lowers the rows of a micro-batch to what fits into a limited "
    "memory; the number of rows that it chose is among the facts of the update",
    "schemas": "refuses rows and changes none; each file holds its table's version",
    "tasks.placement": "chooses which process computes a stage, under one and the same key",
    "tasks.policies.trainer": "holds the training workers of this process",
    "tasks.stage": "the machinery around a stage; what it decides is in genenv_core.ids, which "
    "counts for every stage",
    "tasks.tracking": "tells MLflow what a stage committed",
    "tasks.upkeep": "merges and collects files of finished epochs",
}
"""Packages and modules that decide no result, each with the reason; imports end there."""

_parsing = threading.Lock()
_PARSE_TRIES = 10


@cache
def code_version(*modules: str) -> str:
    """Return the digest (16 hex digits) of modules and all project modules that they import."""
    found = {name: _read(name) for name in counted(*modules)}
    lines: list[str] = []
    for one in found.values():
        # A module without an import to it decides nothing, or the key adds it where it is chosen.
        ties = (
            f"{use} {found[target].digest if target in found else 'elsewhere'}"
            for use, target in one.ties
        )
        if one.digest != EMPTY or one.ties:  # the file that makes a folder a package
            lines.append("\n".join([one.digest, *sorted(ties)]))
    return hashlib.sha256("\n\n".join(sorted(lines)).encode()).hexdigest()[:16]


def counted(*modules: str) -> list[str]:
    """Return the modules that `code_version` digests, sorted; those named always count."""
    seen: set[str] = set()
    waiting = [module for module in modules if _source(module) is not None]
    while waiting:
        module = waiting.pop()
        if module not in seen:
            seen.add(module)
            waiting += [name for name in imported_modules(module) if not is_apart(name)]
    return sorted(seen)


def source_path(module: str) -> Path | None:
    """Return the file with a module's source, None without one; imports nothing."""
    return _source(module)


def is_apart(module: str) -> bool:
    """Return whether a module decides no result by itself or as part of a package in `APART`."""
    return any(module == name or module.startswith(f"{name}.") for name in APART)


def source_digest(source: str) -> str:
    """Return the digest of a module's source, as `form_digest` makes it of the syntax tree."""
    return form_digest(_parse(source))


def imported_modules(module: str) -> tuple[str, ...]:
    """Return the project modules that a module's source imports, anywhere in it, sorted.

    For a plug-in, these include the modules of its own distribution, or of its own folder where it
    is not installed.
    """
    return _read(module).imports


class ModuleSource(NamedTuple):
    """A module as it counts: see `module_form.Form` for `digest` and `ties`."""

    digest: str
    imports: tuple[str, ...]
    """The project modules that it imports, sorted; for a plug-in, those of its own."""
    ties: tuple[tuple[str, str], ...]


@cache
def _read(module: str) -> ModuleSource:
    """Return a module's digest, ties and imports; '' is the digest of one without a source."""
    path = _source(module)
    if path is None:
        return ModuleSource("", (), ())
    content = path.read_bytes()
    try:
        tree = _parse(decode_source(content))
    except (SyntaxError, ValueError, RecursionError):  # which no import gets past either
        return ModuleSource(hashlib.sha256(content).hexdigest(), (), ())
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            # The absolute spelling says the same wherever the module lies.
            node.module, node.level = _imported_from(node, module, path), 0
            found.add(node.module)
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
    top = module.partition(".")[0]
    if top not in PROJECT:  # importing a module of a package runs the package's own file
        found.update(module.rsplit(".", count)[0] for count in range(1, module.count(".") + 1))
    tops = {n.partition(".")[0] for n in found if n}
    own = {*PROJECT, top, *(one for one in tops if _together(one, top))}

    def is_own(name: str) -> bool:
        return name.partition(".")[0] in own and _source(name) is not None

    imports = tuple(sorted(name for name in found if is_own(name)))
    return ModuleSource(imports=imports, **form_of(tree, is_own)._asdict())


def _imported_from(node: ast.ImportFrom, module: str, path: Path) -> str:
    """Return the module that `from ... import` names; '' for one above the top package."""
    if not node.level:
        return node.module or ""
    package = module.split(".") if path.name == "__init__.py" else module.split(".")[:-1]
    kept = package[: len(package) - node.level + 1]
    return ".".join([*kept, *([node.module] if node.module else [])]) if kept else ""


def _together(one: str, plug_in: str) -> bool:
    """Return whether a top-level module belongs to a plug-in's: by distribution, else by folder."""
    if plug_in in PROJECT:
        return False
    shared = _folders(one) & _folders(plug_in)
    if not shared <= _installed():
        return True
    owners = _distributions()
    return bool(shared and set(owners.get(one, ())) & set(owners.get(plug_in, ())))


def _folders(top: str) -> set[str]:
    """Return the folders of a top-level module: several for a package without a file."""
    spec = _spec(top)
    if spec is None:
        return set()
    if spec.submodule_search_locations is not None:
        return {str(Path(place).parent) for place in spec.submodule_search_locations}
    path = _source(top)
    return set() if path is None else {str(path.parent)}


@cache
def _installed() -> frozenset[str]:
    """Return the folders where Python and pip put modules of all distributions together."""
    names = ("stdlib", "platstdlib", "purelib", "platlib")
    return frozenset(sysconfig.get_path(name) for name in names)


@cache
def _distributions() -> Mapping[str, list[str]]:
    return packages_distributions()


def _parse(source: str) -> ast.Module:
    """Return the syntax tree.

    CPython 3.11 counts the recursion of all threads' parsers together (gh-106905), so a parse may
    fail with SystemError when another thread, of a library for one, parses at the same time. Ours
    take turns, and this function tries one again that met a foreign parse.
    """
    for _ in range(_PARSE_TRIES):
        with _parsing, contextlib.suppress(SystemError):
            return ast.parse(source)
    return ast.parse(source)


@cache
def _source(module: str) -> Path | None:
    # By path, because find_spec of a submodule would import its parents, torch and all.
    top, *rest = module.split(".")
    spec = _spec(top)
    if spec is None:
        return None
    if spec.submodule_search_locations is None:  # no package
        origin = Path(spec.origin or "")
        return origin if not rest and origin.suffix == ".py" else None
    for place in spec.submodule_search_locations:  # several where the package has no file
        stem = Path(place).joinpath(*rest)
        for path in (stem / "__init__.py", *([stem.with_suffix(".py")] if rest else [])):
            if path.is_file():
                return path
    return None


def _spec(top: str) -> ModuleSpec | None:
    try:
        return find_spec(top)
    except (ImportError, ValueError):  # of `__main__`, of a module that made itself
        return None
