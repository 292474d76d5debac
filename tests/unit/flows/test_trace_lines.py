"""How `genenv trace` breaks lines on a terminal.

Invariants: no word is broken that fits into a line; no line is wider than the terminal; what
continues a line begins below its text; no word is lost, and styles stay.
"""

from __future__ import annotations

import io

import pytest
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from flows.cli.runs.trace import wrapped

WORDS = "the quick brown fox jumps over a lazy dog and reads 漢字 twice, " * 6


def terminal(width: int) -> Console:
    """Return a terminal of so many columns."""
    return Console(file=io.StringIO(), force_terminal=True, width=width)


@pytest.mark.parametrize("width", [30, 80, 81, 200])
def test_lines_break_between_words(width: int) -> None:
    head = f"  {'assistant':>12}  "
    lines = wrapped(Text(head + WORDS), terminal(width), hang=len(head))
    assert all(cell_len(line.plain) <= max(width, len(head) + 20) for line in lines)
    assert {line.plain[: len(head)] for line in lines[1:]} == {" " * len(head)}
    assert " ".join(line.plain for line in lines).split() == (head + WORDS).split()


def test_own_lines_and_indents_stay() -> None:
    lines = wrapped(Text("  one\n\n    two " + "x" * 30), terminal(30))
    assert [line.plain for line in lines] == ["  one", "", "    two", "    " + "x" * 26, "    xxxx"]


def test_styles_stay() -> None:
    text = Text("  ").append("sure ").append("unsure words " * 9, style="red")
    lines = wrapped(text, terminal(40))
    assert len(lines) > 2
    assert all(any(span.style == "red" for span in line.spans) for line in lines)
