"""Finds the nearest earlier task of each new one, and says how alike the two are.

Two programs are as alike as the bags of their words and of their pairs of neighbouring words: the
coefficient of Dice (Ecology 26, 1945, p. 297), twice what they share over what they have. It is 1
for equal programs and 0 for those without a common word. The pairs tell `a b` from `b a`; the bags
tell `a a` from `a`. A word is a run of letters and digits, a mark, or one sign of a script that
leaves no blanks between words.
"""

# scikit-learn and scipy have partial types only.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false
# pyright: reportArgumentType=false

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Similarities = NDArray[np.float64]

_WORD = re.compile(r"[\u0e00-\u0e7f\u3040-\u30ff\u3400-\u9fff]|[^\W_]+|[^\w\s]|_")
_AT_ONCE = 64  # new texts; their similarities to all earlier ones are in memory at once
_DIGITS = 6  # of a cosine: the sums behind it have no fixed order


@dataclass(frozen=True, slots=True)
class Nearest:
    """The place of the nearest earlier text, and how alike the two are, in [0, 1]."""

    place: int
    similarity: float


def pieces(text: str) -> list[tuple[str, ...]]:
    """Return the words of a text and its pairs of neighbouring words, each with a number.

    The nth equal piece has the number n, so two texts share as many pieces as their bags do.
    """
    words = _WORD.findall(text.casefold())
    seen: Counter[tuple[str, ...]] = Counter()
    numbered: list[tuple[str, ...]] = []
    for piece in [*((word,) for word in words), *pairwise(words)]:
        seen[piece] += 1
        numbered.append((*piece, str(seen[piece])))
    return numbered


def nearest(
    new: Sequence[str], earlier: Sequence[str], joins: Sequence[bool] | None = None
) -> list[Nearest | None]:
    """Return the nearest earlier text of each new one, the oldest of those that are equally near.

    Args:
        new: the texts to compare, in order.
        earlier: the texts before them, oldest first.
        joins: whether each of `new` counts as an earlier text for those behind it. The places of
            `new` come after those of `earlier`. With None no text of `new` counts.

    Returns:
        One for each of `new`; None where nothing comes before it.
    """
    from scipy.sparse import csr_matrix
    from sklearn.feature_extraction.text import CountVectorizer

    texts = [*earlier, *new]
    if not earlier and joins is None:
        return [None] * len(new)
    try:
        counted = CountVectorizer(analyzer=pieces, binary=True, dtype=np.int64).fit_transform(texts)
    except ValueError:  # no text has a word
        counted = csr_matrix((len(texts), 1), dtype=np.int64)
    bags = csr_matrix(counted)
    sizes = np.asarray(bags.sum(axis=1), dtype=np.float64).ravel()
    before = len(texts) if joins is not None else len(earlier)
    placed, known = bags[len(earlier) :], bags[:before]

    def alike(first: int, last: int) -> Similarities:
        shared = np.asarray((placed[first:last] @ known.T).todense(), dtype=np.float64)
        both = sizes[len(earlier) :][first:last, None] + sizes[None, :before]
        return np.divide(2 * shared, both, out=np.zeros_like(shared), where=both > 0)

    return _highest(alike, len(new), len(earlier), joins)


def nearest_vectors(
    new: ArrayLike, earlier: ArrayLike, joins: Sequence[bool] | None = None
) -> list[Nearest | None]:
    """Return the same as `nearest` by the cosine of embeddings, shapes (new, d) and (earlier, d).

    A negative cosine counts as 0, and so does that of a vector without length.
    """
    placed, known = _units(new), _units(earlier)
    count = len(known)
    if joins is not None:
        known = np.concatenate([known, placed]) if count else placed
    if not len(known):
        return [None] * len(placed)

    def alike(first: int, last: int) -> Similarities:
        return np.clip(placed[first:last] @ known.T, 0.0, 1.0).round(_DIGITS)

    return _highest(alike, len(placed), count, joins)


def _highest(
    alike: Any, new: int, earlier: int, joins: Sequence[bool] | None
) -> list[Nearest | None]:
    """Return the first highest similarity of each row among the columns that come before it."""
    found: list[Nearest | None] = []
    before = np.arange(earlier)
    behind = np.flatnonzero(joins) if joins is not None else np.zeros(0, dtype=np.int64)
    for first in range(0, new, _AT_ONCE):
        rows = alike(first, min(first + _AT_ONCE, new))
        for at, row in enumerate(rows, first):
            allowed = np.concatenate([before, earlier + behind[behind < at]])
            if not len(allowed):
                found.append(None)
                continue
            place = int(allowed[np.argmax(row[allowed])])
            found.append(Nearest(place, float(row[place])))
    return found


def _units(vectors: ArrayLike) -> Similarities:
    """Return the vectors scaled to length 1; those of length 0 stay."""
    rows = np.asarray(vectors, dtype=np.float64)
    if rows.size == 0:
        return np.zeros((0, 0))
    length = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.divide(rows, length, out=np.zeros_like(rows), where=length > 0)
