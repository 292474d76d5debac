"""Which earlier text resembles a new one most, and by how much.

Invariants: a similarity is in [0, 1], symmetric, 1 for equal bags of words and of neighbours, 0
without a common word; it is Dice's number, counted by hand here; the oldest of equally near
texts is named; a new text is held against those before it alone, and of its own batch against
those that joined; the numbers are those of one text at a time, whatever else is compared. Vectors
are held by their cosine.
"""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from genenv_core.epoch.writing import likeness
from genenv_core.epoch.writing.likeness import Nearest, nearest, nearest_vectors, pieces
from tests.mutations import mutation

LIKENESS = "genenv_core/epoch/writing/likeness.py"

TEXTS = st.lists(
    st.lists(st.sampled_from(["+", "*", ";", "nuts", "3", "8"]), max_size=6).map(" ".join),
    max_size=6,
)


def dice(left: str, right: str) -> float:
    """Return Dice's number of two texts with blanks between words, by the bags of their pieces."""
    bags = [Counter[object]((*text.split(), *pairwise(text.split()))) for text in (left, right)]
    both = sum(bag.total() for bag in bags)
    return 2 * (bags[0] & bags[1]).total() / both if both else 0.0


@mutation(
    "a text is held against itself", LIKENESS, "behind[behind < at]", "behind[behind <= at]",
)  # fmt: skip
@mutation("the shares are not doubled", LIKENESS, "2 * shared", "shared")
@mutation(
    "neighbours do not count", LIKENESS,
    "for piece in [*((word,) for word in words), *pairwise(words)]:",
    "for piece in [(word,) for word in words]:",
)  # fmt: skip
@mutation(
    "a word counts once however often it is said", LIKENESS,
    "        seen[piece] += 1\n", "        seen[piece] = 1\n",
)  # fmt: skip
@given(TEXTS, TEXTS, st.data())
def test_each_text_is_held_against_those_before_it(
    new: list[str], earlier: list[str], drawn: st.DataObject
) -> None:
    joins = drawn.draw(st.lists(st.booleans(), min_size=len(new), max_size=len(new)))
    for place, (text, found) in enumerate(
        zip(new, nearest(new, earlier, joins), strict=True), len(earlier)
    ):
        before = [
            (at, other)
            for at, other in enumerate([*earlier, *new][:place])
            if at < len(earlier) or joins[at - len(earlier)]
        ]
        if not before:
            assert found is None
            continue
        best = max(dice(text, other) for _, other in before)
        oldest = next(at for at, other in before if dice(text, other) == best)
        assert found == Nearest(oldest, best)


@mutation(
    "a text is not held against those that joined before it", LIKENESS,
    "behind[behind < at]", "behind[:0]",
)  # fmt: skip
def test_numbers_by_hand() -> None:
    # Each has four words and three pairs; both have `- 3 nuts` and its two pairs.
    assert nearest(["- 3 nuts 2"], ["+ 3 nuts 4", "- 3 nuts 4"])[0] == Nearest(1, 2 * 5 / 14)
    # The same words in another order share four words, and no pair.
    # What the earlier texts do not say counts too.
    assert nearest(["a b"], ["a"])[0] == Nearest(0, 2 * 1 / 4)
    assert nearest(["a b c d"], ["d c b a"])[0] == Nearest(0, 2 * 4 / 14)
    assert nearest(["a"], ["a", "a"])[0] == Nearest(0, 1.0)
    assert nearest(["A-b"], ["a - B"])[0] == Nearest(0, 1.0)
    assert nearest(["a"], ["b", ""])[0] == Nearest(0, 0.0)
    assert nearest([""], [""])[0] == Nearest(0, 0.0)
    assert nearest(["a", "a"], []) == [None, None]
    assert nearest(["a", "a"], [], [True, True]) == [None, Nearest(0, 1.0)]
    assert nearest([], ["a"]) == []


def test_words_of_scripts_without_blanks() -> None:
    assert pieces("数を足す") == [
        *(("数", "1"), ("を", "1"), ("足", "1"), ("す", "1")),
        *(("数", "を", "1"), ("を", "足", "1"), ("足", "す", "1")),
    ]
    assert pieces("x_1 1.5") == [
        *(("x", "1"), ("_", "1"), ("1", "1"), ("1", "2"), (".", "1"), ("5", "1")),
        *(("x", "_", "1"), ("_", "1", "1"), ("1", "1", "1"), ("1", ".", "1"), (".", "5", "1")),
    ]


def test_batches_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice(list("abcdef"), 5)) for _ in range(60)]
    joins = [bool(rng.integers(2)) for _ in texts[20:]]
    whole = nearest(texts[20:], texts[:20], joins)
    monkeypatch.setattr(likeness, "_AT_ONCE", 7)
    assert nearest(texts[20:], texts[:20], joins) == whole


@mutation(
    "vectors are held by their product", LIKENESS,
    "np.divide(rows, length, out=np.zeros_like(rows), where=length > 0)", "rows",
)  # fmt: skip
def test_vectors_by_hand() -> None:
    earlier = [[2.0, 0.0], [0.0, 5.0], [0.0, 0.0]]
    found = nearest_vectors([[3.0, 4.0], [-1.0, -1.0], [3.0, 4.0]], earlier, [True, False, True])
    assert found == [Nearest(1, 0.8), Nearest(0, 0.0), Nearest(3, 1.0)]
    assert nearest_vectors([[1.0, 0.0]], np.zeros((0, 2))) == [None]
    assert nearest_vectors([[1.0, 0.0]] * 2, [], [True, True]) == [None, Nearest(0, 1.0)]
    assert nearest_vectors([], [[1.0]]) == []
