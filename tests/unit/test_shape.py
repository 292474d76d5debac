"""The shape of the product: numbers that may fall and never rise.

Invariants: a class name has one home; a folder holds at most `PEERS` modules and folders beside
those that a table names one by one, and a module at most `LINES` lines; a room of the house imports
only rooms on lower floors, and what lies in one folder imports one another in no circle; nothing
outside of `flows`, `tasks` and the wing of benchmarks names a benchmark. What breaks one of these
already stands in a table below, with how far it is off. A table that says too much fails.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path

from genenv_core.benchmarks.registry import known_benchmarks
from genenv_core.config.stages import STAGES
from genenv_core.plugins import BENCHMARKS, DOMAINS, own_points
from tests.mutations import mutation
from tests.unit.test_layers import LAYERS, REPOSITORY, imports, modules

PEERS = 14
"""Modules and folders that one folder holds at most, `__init__` and those of `shelved` not among
them. Put a further one into a folder inside of it."""

CROWDED = {
    "flows": 17,
    "genenv_core": 28,
    "genenv_core/config/sections": 17,
    "genenv_core/epoch": 16,
    "genenv_core/exchange": 15,
    "genenv_core/play": 17,
    "genenv_core/storage/records": 18,
}
"""Folders that hold more."""

LINES = 400

LONG = dict[str, int]()
"""Modules that are longer."""

FLOORS = (
    {"addresses", "canonical", "errors", "importing", "named_files", "record", "types"},
    {"checks", "hiding", "ids", "machine", "plugins", "schemas"},
    {"config", "domains"},
    {"algorithm", "engines", "storage"},
    {"bundle", "play", "pools"},
    {"epoch", "report", "training"},
    {"benchmarks", "compare", "exchange"},
    {"evidence", "spending"},
    {"tasks"},
    {"flows"},
)
"""The floors of the house from the ground up, with their rooms.

A room is `flows`, `tasks`, `schemas`, or what lies in `genenv_core` itself. It stands one floor
above the highest room that it imports. There is to be no further floor.
"""

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


def shelved() -> set[str]:
    """Return the modules and folders that a table names one by one: one a benchmark, domain, stage.

    Whoever knows one of them knows all, so a further one makes no folder harder to read.
    """
    points = [*own_points(BENCHMARKS).values(), *own_points(DOMAINS).values()]
    named = {"/".join(point.module.split(".")[:3]) for point in points}
    return named | {f"tasks/{stage}" for stage in STAGES}


def test_a_folder_has_few_peers() -> None:
    """Put a further module into a folder inside of the full one; the numbers stay or fall."""
    peers, known = defaultdict[str, set[str]](set), shelved()
    for path in files():
        inside = path if path.name != "__init__.py" else path.parent
        if relative(inside.with_suffix("")) not in known:
            peers[relative(inside.parent)].add(inside.stem)
    del peers["."]
    assert {place: len(of) for place, of in peers.items() if len(of) > PEERS} == CROWDED


def test_a_module_is_short() -> None:
    lines = {relative(path): len(path.read_text(encoding="utf-8").splitlines()) for path in files()}
    assert {path: count for path, count in lines.items() if count > LINES} == LONG


Arrows = dict[str, dict[str, str]]
"""A room -> the rooms that it imports, each with the first import of it: where, and of what."""


@cache
def known_imports() -> dict[str, list[tuple[str, int]]]:
    """Return the imports of modules of ours by module, each with its line."""
    known = modules()
    return {
        module: [(name, line) for name, line in imports(tree) if name in known]
        for module, tree in known.items()
    }


def arrows(room_of: Callable[[str], str | None]) -> Arrows:
    """Return who imports whom among the rooms that modules and names of modules are in."""
    found: Arrows = {room: {} for module in modules() if (room := room_of(module))}
    for module, named in known_imports().items():
        if (own := room_of(module)) is None:
            continue
        for name, line in named:
            room = room_of(name)
            if room is not None and room != own:
                found[own].setdefault(room, f"{module}:{line} imports {name}")
    return found


def room(module: str) -> str | None:
    """Return the room of the house that a module is in, None for the package of them all."""
    parts = module.removeprefix("genenv_core.").split(".")
    return None if parts[0] == "genenv_core" else parts[0]


@mutation(
    "an engine looks up to how attempts are played", "genenv_core/engines/tokenizers.py",
    "import blame_machine\n",
    "import blame_machine\nfrom genenv_core.play.transcript import turns as turns\n",
)  # fmt: skip
@mutation(
    "tables ask the configuration for a word", "schemas/relations.py",
    "from schemas.enums import Arm\n", "from genenv_core.config.arms import Arm\n",
)  # fmt: skip
def test_imports_go_down() -> None:
    """Move what both need below both, or what is in the wrong room to where it is used."""
    floor_of = {room: floor for floor, rooms in enumerate(FLOORS, start=1) for room in rooms}
    found = arrows(room)
    assert found.keys() == floor_of.keys()
    upward = [
        f"{said}: {room} is on floor {floor_of[room]}, {other} on floor {floor_of[other]}"
        for room, others in found.items()
        for other, said in others.items()
        if floor_of[other] >= floor_of[room]
    ]
    assert upward == []
    lowest = {
        room: 1 + max((floor_of[other] for other in others), default=0)
        for room, others in found.items()
    }
    assert {room: floor for room, floor in lowest.items() if floor != floor_of[room]} == {}


def circles(found: Arrows) -> set[tuple[str, ...]]:
    """Return the largest sets of rooms each of which leads to all others, sorted inside."""
    reached = {room: set(others) for room, others in found.items()}
    for over in reached:  # Warshall's transitive closure
        for others in reached.values():
            if over in others:
                others |= reached[over]
    return {
        tuple(sorted(one for one in others if room in reached[one]))
        for room, others in reached.items()
        if room in others
    }


def neighbour(folder: str, module: str) -> str | None:
    """Return which module or package of a folder a module is, or is in; None for others."""
    inside = module.removeprefix(f"{folder}.")
    return None if inside == module else inside.partition(".")[0]


def test_circles_are_seen() -> None:
    ring: Arrows = {
        "a": {"b": ""},
        "b": {"a": "", "c": ""},
        "c": {"d": ""},
        "d": {},
        "e": {"a": ""},
    }
    assert circles(ring) == {("a", "b")}
    assert circles({**ring, "d": {"a": ""}}) == {("a", "b", "c", "d")}


@mutation(
    "two packages of a folder import each other", "genenv_core/algorithm/success/signal.py",
    "from genenv_core.checks import finite\n",
    "from genenv_core.algorithm.pay.alpha import tracked_target as tracked_target\n"
    "from genenv_core.checks import finite\n",
)  # fmt: skip
def test_neighbours_import_one_another_in_no_circle() -> None:
    """Move what both need below both, or what is in the wrong package to where it is used."""
    for folder in {module.rpartition(".")[0] for module in modules() if "." in module}:
        among = arrows(partial(neighbour, folder))
        said = [
            line
            for ring in sorted(circles(among))
            for one in ring
            for other, line in among[one].items()
            if other in ring
        ]
        assert said == []


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
