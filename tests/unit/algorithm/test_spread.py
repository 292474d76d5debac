"""A few of many rows.

Invariants: they lie at even distances, over all parts together; where fewer are there, `spread`
takes each once and `evenly` repeats them.
"""

from __future__ import annotations

import pytest

from genenv_core.algorithm.spread import evenly, spread


@pytest.mark.parametrize(
    ("total", "count", "taken"),
    [(8, 2, [0, 4]), (8, 3, [0, 2, 5]), (3, 3, [0, 1, 2]), (2, 4, [0, 0, 1, 1]), (0, 0, [])],
)
def test_indices_are_at_even_distances(total: int, count: int, taken: list[int]) -> None:
    assert evenly(total, count) == taken


@pytest.mark.parametrize(
    ("rows", "count", "taken"),
    [
        ([4, 4], 2, [[0], [0]]),
        ([3, 5], 4, [[0, 2], [1, 3]]),
        ([2, 1], 9, [[0, 1], [0]]),
        ([2, 2], 0, [[], []]),
        ([], 3, []),
    ],
)
def test_rows_are_evenly_spread(rows: list[int], count: int, taken: list[list[int]]) -> None:
    assert spread(rows, count) == taken
