"""How lines of a chart differ without colour: dashes, marks, and short names."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from itertools import takewhile
from typing import Any

from flows.view.shown import colour_of

MARKS = (
    "M-4 0a4 4 0 1 0 8 0a4 4 0 1 0 -8 0z",
    "M-3.6 -3.6H3.6V3.6H-3.6z",
    "M0 -4.6L4.6 3.6H-4.6z",
    "M0 -5L5 0L0 5L-5 0z",
    "M0 4.6L4.6 -3.6H-4.6z",
    "M-1.4 -4.5H1.4V-1.4H4.5V1.4H1.4V4.5H-1.4V1.4H-4.5V-1.4H-1.4z",
    "M-4.4 -2.4L-2.4 -4.4L0 -2L2.4 -4.4L4.4 -2.4L2 0L4.4 2.4L2.4 4.4L0 2L-2.4 4.4L-4.4 2.4L-2 0z",
)
"""Circle, square, triangle, diamond, triangle downwards, plus and cross: as SVG writes paths."""

DASHES = (
    (), (9, 4), (3, 3), (11, 3, 2, 3), (15, 4), (6, 6), (11, 3, 2, 3, 2, 3), (2, 6),
)  # fmt: skip
"""Lengths of strokes and gaps in pixels. Only the first is solid, so that it shows through the gaps
of the others."""

LEAST_CUT = 4
"""Fewest letters of a common beginning that `short_names` cuts off."""

BREAKS = "-_. :/"
"""Letters behind which `short_names` may cut a name."""


@dataclass(frozen=True, slots=True)
class Look:
    """The look of a line: its colour by its name in the style sheet, its dashes, and its mark."""

    colour: str
    dash: tuple[int, ...]
    mark: str

    @property
    def data(self) -> dict[str, Any]:
        """Return the look in the form that the page's script reads."""
        return asdict(self)


def look_of(index: int) -> Look:
    """Return the look of line number `index`, from 0; the first 56 differ."""
    return Look(colour_of(index), DASHES[index % len(DASHES)], MARKS[index % len(MARKS)])


def looks(names: Iterable[str]) -> dict[str, Look]:
    """Return the look of each line by its name, in any order of the names."""
    return {name: look_of(index) for index, name in enumerate(sorted(set(names)))}


def short_names(names: Iterable[str]) -> dict[str, str]:
    """Return each name with "…" for the beginning that all share."""
    whole = list(dict.fromkeys(names))
    columns = takewhile(lambda letters: len(set(letters)) == 1, zip(*whole, strict=False))
    common = [letters[0] for letters in columns] if len(whole) > 1 else []
    end = max((at + 1 for at, letter in enumerate(common) if letter in BREAKS), default=0)
    if end < LEAST_CUT or any(len(name) == end for name in whole):
        return {name: name for name in whole}
    return {name: f"…{name[end:]}" for name in whole}
