"""Reads the declarations of API-Bank's tool classes from their source, without running it."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from genenv_core.errors import DownloadError

BASE = "API"
FIELDS = ("description", "input_parameters", "output_parameters")
LONGEST = 500_000
"""Bytes of a module; the official ones have some 5,000."""


def written(sources: Mapping[str, Sequence[tuple[str, bytes]]]) -> bytes:
    """Return the JSON file of several sets of modules, each as name and source.

    Raises DownloadError for an unreadable source, and for two classes of one name.
    """
    docs: dict[str, list[dict[str, Any]]] = {}
    for key, modules in sources.items():
        found = [tool for name, source in modules for tool in declared(name, source)]
        found.sort(key=lambda tool: tool["name"])
        names = [tool["name"] for tool in found]
        if len(set(names)) != len(names) or not names:
            raise DownloadError(f"{key}: no tools, or two of one name, among {', '.join(names)}")
        docs[key] = found
    return json.dumps(docs, indent=1).encode()


def declared(module: str, source: bytes) -> Iterator[dict[str, Any]]:
    """Yield name and fields of each tool class in a module; raises DownloadError."""
    try:
        if len(source) > LONGEST:
            raise ValueError(f"{len(source)} bytes")
        tree = ast.parse(source)
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and _is_tool(node):
                yield {"name": node.name, **_fields(node)}
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError) as error:
        raise DownloadError(f"{module}: its classes cannot be read: {error!r}"[:300]) from error


def _is_tool(node: ast.ClassDef) -> bool:
    return any(isinstance(base, ast.Name) and base.id == BASE for base in node.bases)


def _fields(node: ast.ClassDef) -> dict[str, Any]:
    """Return the fields in their order; raises ValueError where one is missing or no literal."""
    given: dict[str, ast.expr] = {}
    for line in node.body:
        match line:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                given[name] = value
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                given[name] = value
            case _:
                pass
    lost = [name for name in FIELDS if name not in given]
    if lost:
        raise ValueError(f"class {node.name} has no {', '.join(lost)}")
    return {name: ast.literal_eval(given[name]) for name in FIELDS}
