"""Finds the answer that a text marks as such, in the four ways in which models do it."""

from __future__ import annotations

import re

LONGEST = 10_000
"""Characters at the end of a text to search for a marked answer."""

_SAID = (
    re.compile(r"<answer>(.*?)</answer>", re.I | re.S),
    re.compile(r"\\boxed\{((?:[^{}]|\{[^{}]*\})*)\}", re.S),
    re.compile(r"\bfinish\[([^\]\n]*)\]", re.I),
    re.compile(r"\bfinal answer(?: is)?\s*:?[ \t]*([^\n]+)", re.I),
)


def extracted(text: str) -> str:
    """Return the last answer that a text marks as such, or the whole text.

    Marks are `<answer>`, `\\boxed{}`, `Finish[]` (ReAct) and "final answer is:" (self-ask); the
    first kind that a text has counts.
    """
    for mark in _SAID:
        found = mark.findall(text[-LONGEST:])
        if found:
            return str(found[-1]).strip()
    return text
