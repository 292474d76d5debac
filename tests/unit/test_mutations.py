"""The mutations fit the code: each edit has one place, each a name of its own, and a test.

A slow test that must fail is in a suite that a change to the file of the edit asks for.
"""

from __future__ import annotations

import ast
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from tests.mutations import mutation
from tests.mutations.collected import Mutation, collected, fault
from tests.proof.table import asked, suite_of

REPOSITORY = Path(__file__).parents[2]

SOURCE = """
FILE = "product.py"

@mutation("first", FILE, "a\\n", "b")
@pytest.mark.parametrize("x", [1])
def test_one(x): ...

class TestStore:
    @pytest.mark.slow
    @mutation("third", "product.py", "c", "d", by="[2]")
    @mutation("second", "product.py", "gone", "d", by="test_other.py::test_two")
    async def test_two(self): ...
"""


@pytest.fixture(scope="module")
def every() -> tuple[Mutation, ...]:
    return collected(REPOSITORY)


def test_every_mutation_can_be_tried(every: tuple[Mutation, ...]) -> None:
    faults = [f"{one.above}: {one.name}: {why}" for one in every if (why := fault(one, REPOSITORY))]
    assert not faults, "\n".join(faults)
    names = Counter(one.name for one in every)
    assert [name for name, times in names.items() if times > 1] == []
    assert len(names) > 400


@cache
def slow_tests(file: str) -> set[str]:
    """Return the names of the tests of a file that are slow in all their cases."""
    text = (REPOSITORY / file).read_text(encoding="utf-8")
    if "mark.slow" not in text:
        return set()
    return {
        node.name
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and any(
            isinstance(one, ast.Attribute) and one.attr == "slow" for one in node.decorator_list
        )
    }


def test_who_breaks_a_rule_plays_its_slow_test(every: tuple[Mutation, ...]) -> None:
    slow = 0
    for one in every:
        file, name = one.test.split("::")[0], one.test.rpartition("::")[2].partition("[")[0]
        if name in slow_tests(file):
            slow += 1
            assert suite_of(file) in asked([one.file]), one.name
    assert slow > 0


def test_mutations_are_read_from_the_text_above_tests(tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    file = tmp_path / "tests" / "test_it.py"
    file.write_text(SOURCE)
    (tmp_path / "product.py").write_text("a\nc\n")
    first, third, second = collected(tmp_path)
    assert (first.name, first.file, first.old, first.new) == ("first", "product.py", "a\n", "b")
    assert first.test == first.above == "tests/test_it.py::test_one"
    assert third.test == "tests/test_it.py::TestStore::test_two[2]"
    assert second.test == "tests/test_other.py::test_two"
    assert fault(first, tmp_path) == fault(third, tmp_path) == ""
    assert fault(second, tmp_path) == "its text is 0 times in product.py, not once"
    file.write_text(SOURCE.replace('"product.py", "c"', 'file(), "c"'))
    with pytest.raises(ValueError, match="test_two, line 10: an argument of @mutation is neither"):
        collected(tmp_path)


def test_the_decorator_leaves_a_test_as_it_is() -> None:
    def test() -> None: ...

    assert mutation("name", "file", "old", "new", by="another")(test) is test
