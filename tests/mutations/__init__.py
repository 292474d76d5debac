"""Edits that break one rule each, above the tests that must notice: `python -m tests.mutations`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

Test = TypeVar("Test", bound=Callable[..., object])


def mutation(name: str, file: str, old: str, new: str, *, by: str = "") -> Callable[[Test], Test]:
    """Return a decorator that leaves a test as it is: `collected` reads these lines unimported.

    The test fails when `old`, which occurs once in the file, becomes `new`. Another one is run
    where `by` names it, by its node id below tests/; "[id]" stands for one case of this test.
    The arguments are text, or constants of the test's module.
    """
    del name, file, old, new, by
    return lambda test: test
