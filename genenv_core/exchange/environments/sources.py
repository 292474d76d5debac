"""The code that plays a domain, as a package of its own that needs no genenv.

`copied` copies the named modules and what they import of the project, and nothing else. The copies
lie in the folder's package, and their imports name it, so they neither need nor touch a genenv
beside them.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from importlib.util import decode_source
from itertools import accumulate
from pathlib import Path

from genenv_core.errors import ConfigError
from genenv_core.storage.records.code import imported_modules, source_path

NEVER = ("torch", "transformers", "trl", "vllm", "prefect", "mlflow")
"""Libraries that users of a folder should not need; `copied` refuses a domain that imports one."""


_FROM = re.compile(rb"from[\s\\]+")


@dataclass(frozen=True, slots=True)
class CopiedCode:
    """Copies of modules: texts by their path in the package, and what they need from elsewhere.

    `requirements` are those of a project file, such as `pydantic>=2.14`, sorted.
    """

    files: dict[str, bytes]
    requirements: list[str]


def copied(modules: Iterable[str], package: str, data: Iterable[Path] = ()) -> CopiedCode:
    """Return copies of modules, and of all that they import of the project, for a package.

    Args:
        modules: full names; each has a source.
        package: name of the package that the copies will lie in.
        data: files that the modules read; each lies in the folder of one of them, or below it.

    Raises ConfigError for a module without a source, an import that the copy would not find, a
    data file that lies elsewhere, and a library of `NEVER`.
    """
    places = {name: _place(name) for name in sorted(_needed(modules))}
    tops = {name.partition(".")[0] for name in places}
    files: dict[str, bytes] = {}
    libraries: dict[str, str] = {}
    for name, place in places.items():
        text = decode_source(place.read_bytes())
        tree = ast.parse(text)
        files[_path(name, place)] = _renamed(text, tree, name, tops, package)
        libraries |= {one: name for one in _libraries(tree) if one not in tops}
    for name in places:
        for parent in _parents(name):
            files.setdefault(f"{parent.replace('.', '/')}/__init__.py", b"")
    for library in sorted(set(NEVER) & libraries.keys()):
        raise ConfigError(
            f"{libraries[library]} imports {library}, which playing the tasks does not need: "
            "import it inside the function that uses it, or move that into another module"
        )
    folders = {place.parent: _path(name, place) for name, place in places.items()}
    for file in data:
        files[_beside(file, folders)] = file.read_bytes()
    return CopiedCode(files, sorted({_requirement(one) for one in libraries}))


def _needed(modules: Iterable[str]) -> set[str]:
    seen: set[str] = set()
    waiting = list(modules)
    while waiting:
        module = waiting.pop()
        if module not in seen:
            seen.add(module)
            waiting += imported_modules(module)
    return seen


def _place(module: str) -> Path:
    place = source_path(module)
    if place is None:
        raise ConfigError(f"the module {module} has no Python source, so it cannot be given away")
    return place


def _path(module: str, place: Path) -> str:
    path = module.replace(".", "/")
    return f"{path}/__init__.py" if place.name == "__init__.py" else f"{path}.py"


def _parents(module: str) -> list[str]:
    parts = module.split(".")
    return [".".join(parts[:count]) for count in range(1, len(parts))]


def _renamed(
    text: str, tree: ast.Module, module: str, tops: Collection[str], package: str
) -> bytes:
    """Return a source whose absolute imports of the copied modules begin with the package."""
    lines = text.encode().splitlines(keepends=True)
    begins = [0, *accumulate(map(len, lines))]
    made = bytearray(b"".join(lines))

    def place(line: int, column: int) -> int:
        return begins[line - 1] + column  # columns count bytes of UTF-8

    for node in sorted(_imports(tree), key=lambda one: (one.lineno, one.col_offset), reverse=True):
        start = place(node.lineno, node.col_offset)
        if isinstance(node, ast.ImportFrom):
            if node.level or (node.module or "").partition(".")[0] not in tops:
                continue
            made[start:] = _FROM.sub(f"from {package}.".encode(), made[start:], count=1)
        elif any(_top(one) in tops for one in node.names):
            said = ", ".join(_alias(one, module, tops, package) for one in node.names)
            end = place(node.end_lineno or node.lineno, node.end_col_offset or 0)
            made[start:end] = f"import {said}".encode()
    return bytes(made)


def _imports(tree: ast.Module) -> list[ast.Import | ast.ImportFrom]:
    return [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]


def _top(alias: ast.alias) -> str:
    return alias.name.partition(".")[0]


def _alias(alias: ast.alias, module: str, tops: Collection[str], package: str) -> str:
    """Return one name of an `import` statement; the local name stays."""
    if _top(alias) not in tops:
        return f"{alias.name} as {alias.asname}" if alias.asname else alias.name
    if "." in alias.name and not alias.asname:
        raise ConfigError(
            f"{module} says `import {alias.name}`, whose uses a copy cannot rename: say "
            f"`from {alias.name.rpartition('.')[0]} import ...`"
        )
    return f"{package}.{alias.name} as {alias.asname or alias.name}"


def _libraries(tree: ast.Module) -> Iterator[str]:
    """Yield the top-level modules that a source imports from elsewhere, not for types alone."""
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            waiting += node.orelse
            continue
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names = [node.module or ""]
        else:
            names = []
        yield from (
            top
            for top in (name.partition(".")[0] for name in names)
            if top and top not in sys.stdlib_module_names
        )
        waiting += ast.iter_child_nodes(node)


def _requirement(module: str) -> str:
    """Return what installs a library: as genenv asks for it, or by the name of its package."""
    name = next(iter(packages_distributions().get(module, [module])))
    return _asked_for().get(name.lower().replace("_", "-"), name)


@cache
def _asked_for() -> dict[str, str]:
    """Return the requirements of genenv by the name of the package."""
    try:
        own = requires("genenv") or []
    except PackageNotFoundError:
        return {}
    plain = [one for one in own if ";" not in one]
    return {re.split(r"[^A-Za-z0-9._-]", one)[0].lower().replace("_", "-"): one for one in plain}


def _beside(file: Path, folders: dict[Path, str]) -> str:
    """Return where a data file lies in the package: as it does beside the module that reads it."""
    for folder, path in folders.items():
        if file.resolve().is_relative_to(folder.resolve()):
            inner = file.resolve().relative_to(folder.resolve()).as_posix()
            return (Path(path).parent / inner).as_posix()
    raise ConfigError(
        f"the domain reads {file}, which lies outside of its own package: put it beside the "
        "domain's module, where it may be given away"
    )
