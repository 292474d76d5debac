"""The shape of the product: numbers that may fall and never rise.

Invariants: a class name has one home; a folder holds at most `PEERS` modules and folders, and a
module at most `LINES` lines; the configuration and the domains import nothing above them; nothing
outside of `flows`, `tasks` and the wing of benchmarks names a benchmark. What breaks one of
these already stands in a table below, with how far it is off. A table that says too much fails.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from pathlib import Path

import pytest

from genenv_core.benchmarks.registry import known_benchmarks
from tests.mutations import mutation
from tests.unit.test_layers import LAYERS, REPOSITORY, imports, modules

PEERS = 14
"""Modules and folders that one folder holds at most, `__init__` not among them."""

CROWDED = {
    "flows": 17,
    "flows/cli": 15,
    "genenv_core": 28,
    "genenv_core/config/sections": 17,
    "genenv_core/epoch": 16,
    "genenv_core/exchange": 15,
    "genenv_core/play": 17,
    "genenv_core/storage/records": 18,
    "tasks": 19,
}
"""Folders that hold more."""

LINES = 400

LONG = dict[str, int]()
"""Modules that are longer."""

_ABOVE = ("benchmarks", "epoch", "play", "engines", "training", "exchange")

BELOW = {
    "genenv_core.config": (*_ABOVE, "domains", "storage"),
    "genenv_core.domains": (*_ABOVE, "config"),
}
"""What these packages must not import, as names of packages of `genenv_core`."""

UPWARD = set[str]()
"""Imports upward that are there."""

WINGS = ("flows/", "tasks/", "genenv_core/benchmarks/")
"""Where a benchmark may be named."""

NAMING = {"genenv_core/config/request.py"}
"""Other modules that name one: here as the names of presets."""


def files() -> list[Path]:
    return [path for layer in LAYERS for path in sorted((REPOSITORY / layer).rglob("*.py"))]


def relative(path: Path) -> str:
    return path.relative_to(REPOSITORY).as_posix()


@mutation(
    "a class name has two homes", "genenv_core/engines/vllm/wire.py",
    "class WireRequest", "class Attempt:\n    pass\n\n\n@dataclass\nclass WireRequest",
)  # fmt: skip
def test_a_class_name_has_one_home() -> None:
    homes: defaultdict[str, list[str]] = defaultdict(list)
    for module, tree in modules().items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef):
                homes[node.name].append(f"{module}:{node.lineno}")
    assert len(homes) > 500
    assert {name: places for name, places in homes.items() if len(places) > 1} == {}


def test_a_folder_has_few_peers() -> None:
    peers: defaultdict[str, set[str]] = defaultdict(set)
    for path in files():
        inside = path if path.name != "__init__.py" else path.parent
        peers[relative(inside.parent)].add(inside.stem)
    del peers["."]
    assert {place: len(of) for place, of in peers.items() if len(of) > PEERS} == CROWDED


def test_a_module_is_short() -> None:
    lines = {relative(path): len(path.read_text(encoding="utf-8").splitlines()) for path in files()}
    assert {path: count for path, count in lines.items() if count > LINES} == LONG


@pytest.mark.parametrize("package", BELOW)
def test_imports_go_down(package: str) -> None:
    above = re.compile(rf"(genenv_core\.(?:{'|'.join(BELOW[package])})(?:\.\w+)?)\b")
    found = {
        f"{module} imports {match[1]}"
        for module, tree in modules().items()
        if module == package or module.startswith(f"{package}.")
        for name, _ in imports(tree)
        if (match := above.match(name))
    }
    assert found == {line for line in UPWARD if line.startswith(package)}


def test_benchmarks_are_named_in_their_wings_alone() -> None:
    name = re.compile("|".join(known_benchmarks()))
    naming = {
        relative(path)
        for path in files()
        if not relative(path).startswith(WINGS) and any(name.search(one) for one in _names(path))
    }
    assert naming == NAMING


def _names(path: Path) -> list[str]:
    """Return the strings and the imported names of a module, without its docstrings."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    found = [name for name, _ in imports(tree)]
    return found + [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and id(node) not in docstrings
    ]
