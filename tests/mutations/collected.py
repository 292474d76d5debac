"""The mutations above tests, read from the text of the files: imports would take minutes."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class Mutation:
    """An edit of one file: `old`, which occurs once in it, becomes `new`; then `test` must fail.

    `test` is a node id from the root of the repository, and `above` the place of the decorator.
    """

    name: str
    file: str
    old: str
    new: str
    test: str
    above: str


def collected(root: Path) -> tuple[Mutation, ...]:
    """Return the mutations of all files below tests/, in the order of files and lines.

    Raises ValueError for a decorator that cannot be read.
    """
    found: list[Mutation] = []
    for path in sorted((root / "tests").rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if "@mutation(" in text:
            tree = ast.parse(text)
            file, constants = path.relative_to(root).as_posix(), _constants(tree)
            for names, function in _functions(tree.body):
                here = f"{file}::{'::'.join(names)}"
                found += (
                    _read(one, here, constants) for one in function.decorator_list if _is(one)
                )
    return tuple(found)


def _functions(
    body: list[ast.stmt], within: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], Function]]:
    for node in body:
        if isinstance(node, ast.ClassDef):
            yield from _functions(node.body, (*within, node.name))
        elif isinstance(node, Function):
            yield (*within, node.name), node


def _constants(tree: ast.Module) -> dict[str, str]:
    """Return the module's names for texts."""
    return {
        target.id: node.value.value
        for node in tree.body
        if isinstance(node, ast.Assign)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
        for target in node.targets
        if isinstance(target, ast.Name)
    }


def _is(decorator: ast.expr) -> bool:
    match decorator:
        case ast.Call(func=ast.Name("mutation")):
            return True
    return False


def _read(decorator: ast.expr, here: str, constants: dict[str, str]) -> Mutation:
    def text(node: ast.expr) -> str:
        match node:
            case ast.Constant(str(value)):
                return value
            case ast.Name(name) if name in constants:
                return constants[name]
        raise ValueError(
            f"{here}, line {node.lineno}: an argument of @mutation is neither a text nor a "
            "constant of its module"
        )

    assert isinstance(decorator, ast.Call)
    keywords = {one.arg: text(one.value) for one in decorator.keywords}
    by = keywords.pop("by", "")
    if len(decorator.args) != 4 or keywords:
        raise ValueError(
            f"{here}, line {decorator.lineno}: @mutation takes name, file, old and new"
        )
    name, file, old, new = map(text, decorator.args)
    test = f"tests/{by}" if by and by[0] != "[" else here + by
    return Mutation(name, file, old, new, test, here)


def fault(mutation: Mutation, root: Path) -> str:
    """Return why a mutation cannot be tried in this tree, '' when it can."""
    text = _text(root / mutation.file)
    if text is None:
        return f"{mutation.file} is not there"
    found = text.count(mutation.old)
    if found != 1 or mutation.old == mutation.new:
        return f"its text is {found} times in {mutation.file}, not once"
    file, *names = mutation.test.split("::")
    function = names[-1].partition("[")[0] if names else ""
    if not (root / file).is_file() or not Path(file).name.startswith("test_"):
        return f"{file} is no file of tests; by= names the one that is run"
    # A class may have its tests from a contract, above which the mutation stands.
    inherited = mutation.above.rpartition("::")[2] == function
    if not inherited and f"def {function}(" not in (_text(root / file) or ""):
        return f"{mutation.test} is no test"
    return ""


@cache
def _text(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.is_file() else None
