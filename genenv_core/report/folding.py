"""Folds equal turns into one, for pages."""

from __future__ import annotations

from collections.abc import Sequence

from genenv_core.play.transcript import Turn


def folded(turns: Sequence[Turn]) -> list[tuple[Turn, int]]:
    """Return turns with a count each: equal tool turns in a row become one."""
    found: list[tuple[Turn, int]] = []
    for turn in turns:
        before = found[-1][0] if found else None
        same = before and (before.parts, before.earned) == (turn.parts, turn.earned)
        if turn.role == "tool" and same:
            found[-1] = (Turn("tool", turn.parts, earned=turn.earned), found[-1][1] + 1)
        else:
            found.append((turn, 1))
    return found
