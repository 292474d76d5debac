"""Writes numbers and measures in words, for the report, the page and the terminal."""

from __future__ import annotations

import math
from collections.abc import Sequence

MEASURES = {
    "answer_probability": "probability of the answer",
    "sampled": "sampled success",
    "greedy": "greedy success",
}
"""Measures of the view `test_gains`, in words."""

SHORT_MEASURES = {"answer_probability": "P(answer)", "sampled": "success", "greedy": "greedy"}
"""The same where a line has little room."""


def number(value: float | None, digits: int = 3) -> str:
    """Return a number for people, '' for None."""
    if value is None:
        return ""
    if isinstance(value, int):
        return f"{value:,}"
    if value and not 1e-3 <= abs(value) < 1e6:
        return f"{value:.{digits - 1}e}"
    places = max(0, digits - 1 - math.floor(math.log10(abs(value)))) if value else 0
    return f"{value:,.{places}f}"


def whole(value: float | None) -> str:
    """Return a whole number without digits after the point, any other as `number` does."""
    is_whole = isinstance(value, float) and value.is_integer()
    return f"{value:.0f}" if is_whole else number(value)


def first_to_last(first: int, last: int) -> str:
    """Return a range of whole numbers, such as `4 to 6`, or `4` where it holds one."""
    return f"{first}" if first == last else f"{first} to {last}"


def spans(numbers: Sequence[int]) -> str:
    """Return ordered whole numbers as text such as `0 to 2, 5`."""
    found: list[list[int]] = []
    for each in numbers:
        if found and each == found[-1][-1] + 1:
            found[-1].append(each)
        else:
            found.append([each])
    return ", ".join(first_to_last(one[0], one[-1]) for one in found)


def percent(value: float | None) -> str:
    """Return a share as percent, '' for None."""
    return "" if value is None else f"{value:.0%}"


def signed(value: float | None) -> str:
    """Return a difference with its sign, '' for None."""
    return "" if value is None else f"{value:+z.3f}".replace("-", "−")


def duration(seconds: float) -> str:
    """Return a length of time in the unit that a person would choose: s, min or h."""
    for unit, size in (("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.1f} s"


def count(value: int) -> str:
    """Return a large count in three digits, with k, M or G."""
    for letter, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= size:
            return f"{number(value / size)} {letter}"
    return str(value)
