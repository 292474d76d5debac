"""The list of mutations fits the code: each edit has one place, and each named test exists."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.mutations.listed import MUTATIONS, Mutation, fault

REPOSITORY = Path(__file__).parents[2]


@pytest.mark.parametrize("mutation", MUTATIONS, ids=[one.name for one in MUTATIONS])
def test_a_mutation_can_be_tried(mutation: Mutation) -> None:
    assert fault(mutation, REPOSITORY) == ""


def test_names_are_distinct() -> None:
    assert len({one.name for one in MUTATIONS}) == len(MUTATIONS) > 60
