"""Code versions: a digest of the project's modules that a stage uses.

The syntax trees are digested without docstrings and positions, so a comment or a docstring does not
invalidate a stage, while a changed line anywhere in what it imports does. Nobody has to remember a
number.
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

APART = (
    "genenv_core.config",
    "genenv_core.errors",
    "genenv_core.inputs",
    "genenv_core.models",
    "genenv_core.storage",
    "genenv_core.domains.registry",
    "genenv_core.training.launch",
    "genenv_core.training.launched",
    "genenv_core.training.local",
    "genenv_core.training.workers",
    "schemas",
    "tasks.housekeeping",
    "tasks.mlflow_client",
    "tasks.services",
    "tasks.stage",
    "tasks.progress",
    "tasks.tracking",
)
"""Modules that do not decide results: the configuration's values are in the key themselves, and the
machinery around a stage moves bytes without choosing them (its layout is versioned by FORMAT, a
table by its schema version). A domain and a trainer count where a stage names them, so that a
change in one does not invalidate the users of another."""

_parsing = threading.Lock()
_PARSE_TRIES = 10


@cache
def code_version(*modules: str) -> str:
    """Return the digest (16 hex digits) of modules and all project modules that they import."""
    seen: dict[str, str] = {}
    for module in modules:
        _visit(module, seen)
    lines = "\n".join(f"{name} {value}" for name, value in sorted(seen.items()))
    return hashlib.sha256(lines.encode()).hexdigest()[:16]


def source_digest(source: str) -> str:
    """Return the digest of a module's syntax tree without docstrings, comments and positions."""
    tree = _parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            node.body = [item for item in node.body if not _is_docstring(item)]
    return hashlib.sha256(ast.dump(tree).encode()).hexdigest()


def imported_modules(module: str) -> list[str]:
    """Return the project modules that a module's source imports, anywhere in it, sorted."""
    path = _source(module)
    if path is None:
        return []
    found: set[str] = set()
    for node in ast.walk(_parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            found.add(node.module)
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
    return sorted(name for name in found if _is_project(name) and _source(name) is not None)


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


def _visit(module: str, seen: dict[str, str]) -> None:
    if module in seen or any(module == name or module.startswith(name + ".") for name in APART):
        return
    path = _source(module)
    if path is None:
        return
    seen[module] = source_digest(path.read_text(encoding="utf-8"))
    for name in imported_modules(module):
        _visit(name, seen)


def _is_project(name: str) -> bool:
    return name.split(".")[0] in PROJECT


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
    base = origin.parent.joinpath(*rest)
    for path in (base / "__init__.py", base.with_suffix(".py")):
        if path.is_file():
            return path
    return None


def _is_docstring(node: ast.stmt) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )
