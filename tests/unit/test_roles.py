"""Updates are roles: what an algorithm is stands in its own modules, and the rest asks its record.

Invariant: outside of its homes no module names GRPO or RWR, except for those in `NAMING`, a list
that may only become shorter. Settings (`grpo.passes`, `config.rwr.pay`) are words of users, and
docstrings explain: neither counts.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from genenv_core.training.updates.table import UPDATES
from tests.mutations import mutation
from tests.unit.test_shape import files, relative

TRAINERS = {kind.trainer.split(".")[2] for kind in UPDATES.values()}
HOMES = re.compile(
    rf"genenv_core/training/({'|'.join(sorted({'updates', *TRAINERS}))})/"  # their homes
    r"|tasks/(grpo|rwr)_update\.py"  # the stages, whose names stay
)
"""The modules of the updates, each with its request and record, and the packages of their trainers:
a new algorithm may stand on GRPO's."""

NAMING = {
    "genenv_core/config/schema.py",  # the sections, and messages about the loss of GRPO alone
    "genenv_core/config/sections/updates.py",  # the fields of both sections
    "genenv_core/config/stages.py",  # the table of stages
    "genenv_core/epoch/env_update.py",  # the weights of RWR
    "genenv_core/epoch/publishing.py",  # columns of `epochs`
    "genenv_core/evidence/gradients.py",  # measures the gradient of GRPO
    "genenv_core/report/data.py",  # a setting in the nested values of a configuration
    "tasks/policies/attribution.py",  # what a group of GRPO teaches
    "tasks/publish.py",  # inputs of a stage, whose names are in its key
    "tasks/stage/effort.py",  # what each stage reads and samples
    "flows/epoch.py",  # the stages of a round
    "flows/evidence/foreseen.py",  # takes P(answer) from where a group's teaching is measured
    "flows/evidence/taught.py",  # what a group of GRPO teaches
    "flows/shown/tables.py",  # columns of `epochs`
    "flows/state.py",  # an input of the stage
    "flows/view/pages/run.py",  # columns of `epochs`
    "schemas/tables/pools.py",  # a column of RWR weights
    "schemas/tables/progress.py",  # columns of `epochs`
}
"""Other modules that name one, each with what for."""

_NAME = re.compile(r"(?<![a-z])(grpo|rwr)(?![a-z]|\.[a-z])", re.IGNORECASE)


def _words(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Yield the names and strings of a module with their lines, without docstrings and attributes.

    Parts of a module's dotted name are parted by slashes: `grpo.trainer` is no setting.
    """
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                yield from ((one.name.replace(".", "/"), node.lineno) for one in names)
            case ast.ImportFrom(module=module, names=names):
                dotted = (f"{module}.{one.name}" for one in names)
                yield from ((one.replace(".", "/"), node.lineno) for one in dotted)
            case ast.Constant(value=str(text)) if id(node) not in docstrings:
                module = text.startswith(("genenv_core.", "tasks."))
                yield text.replace(".", "/") if module else text, node.lineno
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name) | ast.Name(id=name):
                yield name, node.lineno
            case ast.arg(arg=name):
                yield name, node.lineno
            case ast.keyword(arg=str(name)):
                yield name, node.value.lineno
            case _:
                pass


def _naming(source: str) -> list[int]:
    """Return the lines of a module that name an algorithm."""
    return sorted({line for word, line in _words(ast.parse(source)) if _NAME.search(word)})


def test_the_look_sees_names_and_no_settings() -> None:
    seen = (
        "import genenv_core.training.grpo.trainer", "from a.rwr import b", 'x = "grpo_update"',
        "def of_grpo(): ...", "f(rwr=1)", "def f(grpo): ...", "x = grpo", 'x = f"GRPO of {y}"',
        'x = "genenv_core.training.rwr.trainer"',
    )  # fmt: skip
    assert [_naming(one) for one in seen] == [[1]] * len(seen)
    unseen = ('"""GRPO."""', "# rwr", "x = config.grpo.passes", 'x = "--set rwr.steps=4"', "grpos")
    assert [_naming(one) for one in unseen] == [[]] * len(unseen)


@mutation(
    "the memory of an update knows the algorithms", "genenv_core/spending/needs.py",
    "kind = agent_kind(config.agent_update)",
    'kind = UPDATES["own" if config.agent_update.own else "grpo"]',
)  # fmt: skip
@mutation(
    "a branch spells the stage of the agent's update", "genenv_core/storage/records/branches.py",
    "maker = update_of(Policy.AGENT) if number", 'maker = "grpo_update" if number',
)  # fmt: skip
def test_algorithms_are_named_in_their_homes() -> None:
    """Ask the record of the update (`genenv_core.training.updates.table`) or the table of stages.

    A name that is gone leaves `NAMING`, which gets no new one.
    """
    found = {
        path: lines
        for file in files()
        if not HOMES.match(path := relative(file))
        and (lines := _naming(file.read_text(encoding="utf-8")))
    }
    new = [f"{path}:{line}" for path in found.keys() - NAMING for line in found[path]]
    assert sorted(new) == []
    assert NAMING - found.keys() == set()
