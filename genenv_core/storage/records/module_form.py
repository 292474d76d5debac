"""The form of a module's source that no longer names the modules that it imports.

The digest of a stage's code is over this form, so moving a file or renaming a package changes no
key. Imports of the project's own modules leave the tree, wherever they stand, and become ties. In
the rest of the tree, numbers by first use replace each name that such an import bound, and each
text that spells such a module, like `genenv_core.engines.fake` in a table. Ties say which module is
used where, so that the same code over other modules has another digest.
"""

from __future__ import annotations

import ast
import hashlib
import re
from collections.abc import Callable
from typing import NamedTuple, TypeVar, cast

Statement = TypeVar("Statement", ast.Import, ast.ImportFrom)

_SPELLED = re.compile(r"(\w+(?:\.\w+)+)(:\w+)?")
"""A module in a text, and the name that is taken out of it."""


class Form(NamedTuple):
    """A module's source as a digest, and its ties to other modules of the project.

    `ties` holds pairs of a use and the module used. A use is an imported name with its local name,
    or a number in the tree.
    """

    digest: str
    ties: tuple[tuple[str, str], ...]


def form_of(tree: ast.Module, is_own: Callable[[str], bool]) -> Form:
    """Return the form of a module; changes `tree`.

    Args:
        tree: the source; imports in it are absolute.
        is_own: whether a dotted name is a module of the project.
    """
    taking = _Taking(is_own)
    taking.visit(tree)
    numbers: dict[str, str] = {}

    def number(module: str) -> str:
        return numbers.setdefault(module, f"module {len(numbers)}")

    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id in taking.bound:
            node.id = number(taking.bound[node.id])
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            spelled = _SPELLED.fullmatch(node.value)
            if spelled and is_own(spelled[1]):
                node.value = number(spelled[1]) + (spelled[2] or "")
    unused = (("unused", module) for module in taking.bound.values() if module not in numbers)
    ties = [*taking.ties, *((use, module) for module, use in numbers.items()), *unused]
    return Form(form_digest(tree), tuple(sorted(ties)))


def form_digest(tree: ast.Module) -> str:
    """Return the digest of a tree after removing its docstrings; positions do not count.

    Every Python from 3.11 on gives the same digest, so that machines with several of them share
    what is stored.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            node.body = [item for item in node.body if not _is_docstring(item)]
    return hashlib.sha256(_form(tree).encode()).hexdigest()


class _Taking(ast.NodeTransformer):
    """Takes the project's imports out of a tree."""

    def __init__(self, is_own: Callable[[str], bool]) -> None:
        self._is_own = is_own
        self.bound: dict[str, str] = {}
        """Local name -> the module that it stands for."""
        self.ties: list[tuple[str, str]] = []

    def visit_Import(self, node: ast.Import) -> ast.Import | None:
        left: list[ast.alias] = []
        for alias in node.names:
            if not self._is_own(alias.name):
                left.append(alias)
            elif alias.asname:
                self.bound[alias.asname] = alias.name
            else:  # its uses spell the whole name, so here a move counts
                self.ties.append(("import", alias.name))
        return _with(node, left)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.ImportFrom | None:
        left: list[ast.alias] = []
        for alias in node.names:
            module = f"{node.module}.{alias.name}"
            if self._is_own(module):
                self.bound[alias.asname or alias.name] = module
            elif self._is_own(node.module or ""):
                self.ties.append((f"{alias.name} as {alias.asname}", node.module or ""))
            else:
                left.append(alias)
        return _with(node, left)


def _with(node: Statement, names: list[ast.alias]) -> Statement | None:
    node.names = names
    return node if names else None


def _form(value: object) -> str:
    """Return a syntax tree as a text that does not depend on the version of Python.

    `ast.dump` writes empty fields in one version and leaves them out in another, and newer versions
    have fields that older ones lack. This function sorts fields and leaves empty ones out, such
    as the empty texts that 3.12 puts into an f-string.
    """
    if isinstance(value, ast.JoinedStr):
        parts = [
            part
            for part in value.values
            if not (isinstance(part, ast.Constant) and part.value == "")
        ]
        return f"JoinedStr({','.join(map(_form, parts))})"
    if isinstance(value, ast.AST):
        fields = ((name, getattr(value, name, None)) for name in sorted(value._fields))
        constant = isinstance(value, ast.Constant)
        held = [
            f"{name}={_form(inner)}"
            for name, inner in fields
            if inner not in (None, []) or (constant and name == "value")
        ]
        return f"{type(value).__name__}({','.join(held)})"
    if isinstance(value, list):
        return f"[{','.join(_form(item) for item in cast('list[object]', value))}]"
    return ascii(value)


def _is_docstring(node: ast.stmt) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


EMPTY = form_digest(ast.Module([], []))
"""The digest of a module without code."""
