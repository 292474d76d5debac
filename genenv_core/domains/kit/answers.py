"""Finds the answer in an agent's text: the marked answer, the last line, or the last number.

A domain chooses one of these as its `extract`. None of them raises; '' means no answer.
"""

from __future__ import annotations

from genenv_core.domains.kit.marked_answers import LONGEST, extracted
from genenv_core.domains.kit.texts.numbers import last_quantity
from genenv_core.domains.tool_calls import after_thought


def without_thought(text: str) -> str:
    """Return a text without the thought that a reasoning model writes first."""
    return text[after_thought(text) :]


def marked_answer(text: str) -> str:
    """Return the answer that a text marks, or the whole text.

    Marks are "Final answer: ...", `\\boxed{}`, `<answer>` and `Finish[]`, as Bamboogle reads them.
    """
    return extracted(without_thought(text)).strip()


def last_line(text: str) -> str:
    """Return the marked answer, or the last line that is not empty."""
    lines = [line.strip() for line in marked_answer(text).splitlines() if line.strip()]
    return lines[-1] if lines else ""


def last_number(text: str) -> str:
    """Return the last number of the marked answer, or of the whole text, and the rest of its line.

    The rest may be a unit.
    """
    found = last_quantity(marked_answer(text)[-LONGEST:])
    return found.text if found else ""
