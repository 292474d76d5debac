"""Code versions: a digest of the project's modules that a stage uses.

The syntax trees are digested without docstrings and positions, so a comment or a docstring does not
invalidate a stage, while a changed line anywhere in what it imports does. Nobody has to remember a
number. What the configuration chooses (an engine, a domain) is opened by name, so no import leads
there; the key adds the code of the chosen one (`tasks.stage.key`).
"""

from __future__ import annotations

import ast
import contextlib
import hashlib
import threading
from functools import cache
from importlib.util import find_spec
from pathlib import Path

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
    lines = "\n".join(f"{name} {_read(name)[0]}" for name in counted(*modules))
    return hashlib.sha256(lines.encode()).hexdigest()[:16]


def counted(*modules: str) -> list[str]:
    """Return the modules that `code_version` digests, sorted: a named one counts always."""
    seen: set[str] = set()
    waiting = [module for module in modules if _source(module) is not None]
    while waiting:
        module = waiting.pop()
        if module not in seen:
            seen.add(module)
            waiting += [name for name in imported_modules(module) if not is_apart(name)]
    return sorted(seen)


def is_apart(module: str) -> bool:
    """Return whether a module decides no result by itself or as part of a package in `APART`."""
    return any(module == name or module.startswith(f"{name}.") for name in APART)


def source_digest(source: str) -> str:
    """Return the digest of a module's syntax tree without docstrings, comments and positions."""
    tree = _parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            node.body = [item for item in node.body if not _is_docstring(item)]
    return hashlib.sha256(ast.dump(tree).encode()).hexdigest()


def imported_modules(module: str) -> tuple[str, ...]:
    """Return the project modules that a module's source imports, anywhere in it, sorted.

    The other modules of a plug-in's own package are among them.
    """
    return _read(module)[1]


@cache
def _read(module: str) -> tuple[str, tuple[str, ...]]:
    """Return the digest of a module's source and the project modules that it imports."""
    path = _source(module)
    if path is None:
        return "", ()
    source = path.read_text(encoding="utf-8")
    found: set[str] = set()
    for node in ast.walk(_parse(source)):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            found.add(node.module)
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
    own = (*PROJECT, module.split(".")[0])
    names = sorted(n for n in found if n.split(".")[0] in own and _source(n) is not None)
    return source_digest(source), tuple(names)


def _parse(source: str) -> ast.Module:
    """Return the syntax tree.

    CPython 3.11 counts the recursion of all threads' parsers together (gh-106905), so a parse may
    fail with SystemError when another thread, of a library for one, parses at the same time. Ours
    take turns, and one that met a foreign parse is tried again.
    """
    for _ in range(_PARSE_TRIES):
        with _parsing, contextlib.suppress(SystemError):
            return ast.parse(source)
    return ast.parse(source)


@cache
def _source(module: str) -> Path | None:
    # By path, because find_spec of a submodule would import its parents, torch and all.
    top, *rest = module.split(".")
    spec = find_spec(top)
    if spec is None or spec.origin is None:
        return None
    origin = Path(spec.origin)
    if not rest and origin.name != "__init__.py":  # a plug-in that is one file
        return origin if origin.suffix == ".py" else None
    stem = origin.parent.joinpath(*rest)
    for path in (stem / "__init__.py", stem.with_suffix(".py")):
        if path.is_file():
            return path
    return None


def _is_docstring(node: ast.stmt) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )
