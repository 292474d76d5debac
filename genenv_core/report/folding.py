"""Turns as a page shows them: those that repeat each other are one."""

from __future__ import annotations

from collections.abc import Sequence

from genenv_core.play.transcript import Turn


def folded(turns: Sequence[Turn]) -> list[tuple[Turn, int]]:
    """Return turns with how often each comes in a row, so that equal acknowledgements are one."""
    found: list[tuple[Turn, int]] = []
    for turn in turns:
        if turn.role == "tool" and found and found[-1][0].parts == turn.parts:
            found[-1] = (Turn("tool", turn.parts), found[-1][1] + 1)
        else:
            found.append((turn, 1))
    return found
